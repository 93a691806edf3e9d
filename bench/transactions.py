#!/usr/bin/python3
# bench/transactions.py - SQLite transactions (rollback journal), told what to do line by line
#
#     transactions.py DATABASE
#
#     run MS    as many as it can for so long    -> count N ns N
#     one       a single one                     -> done
#
# SPDX-License-Identifier: Apache-2.0
import sqlite3
import sys
import time

connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("pragma journal_mode = delete")
connection.execute("create table if not exists t (n integer)")


def transaction():
    connection.execute("begin immediate")
    connection.execute("update t set n = n + 1")
    connection.execute("commit")


print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "one":
        transaction()
        print("done", flush=True)
        continue
    count, start = 0, time.monotonic_ns()
    while time.monotonic_ns() - start < int(words[1]) * 1000000:
        transaction()
        count += 1
    print("count", count, "ns", (time.monotonic_ns() - start) // max(1, count), flush=True)

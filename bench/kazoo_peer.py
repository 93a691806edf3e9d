#!/usr/bin/python3
# bench/kazoo_peer.py - kazoo's Lock, told what to do line by line
#
#     kazoo_peer.py HOST:PORT SESSION_TIMEOUT_MS [once PATH CMD...]
#
#     loop MS PATH              acquire and release for so long             -> cycles N ns N
#     pass ROUNDS FIRST PATH STATE  with another process: see handoff.c    -> samples NS...
#     acquire PATH              take it and keep it                         -> granted
#
# once: take the lock, run a command, release it, as flock(1) would.
# SPDX-License-Identifier: Apache-2.0
import logging
import mmap
import os
import struct
import subprocess
import sys
import time

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)


def loop(client, path, limit_ns):
    lock = client.Lock(path)
    cycles, start = 0, time.monotonic_ns()
    while time.monotonic_ns() - start < limit_ns:
        lock.acquire()
        lock.release()
        cycles += 1
    return f"cycles {cycles} ns {(time.monotonic_ns() - start) // max(1, cycles)}"


class State:
    """The page that handoff.c describes."""

    def __init__(self, name):
        with open(name, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 4096)

    def get(self, index):
        return struct.unpack_from("q", self.map, 8 * index)[0]

    def set(self, index, value):
        struct.pack_into("q", self.map, 8 * index, value)


def pass_on(client, rounds, first, path, state):
    samples = []
    lock = client.Lock(path)
    own, other = (0, 1) if first else (1, 0)
    if first:
        lock.acquire()
        state.set(2, own + 1)
    else:
        while state.get(2) == 0:
            time.sleep(0.001)
    for _ in range(rounds):
        if state.get(2) != own + 1:
            state.set(own, 1)
            lock.acquire()
            samples.append(time.monotonic_ns() - state.get(3))
            state.set(own, 0)
            state.set(2, own + 1)
        while not state.get(other):
            time.sleep(0.001)
        time.sleep(0.003)
        state.set(3, time.monotonic_ns())
        lock.release()
        while state.get(2) == own + 1:
            time.sleep(0.001)
    if not first:  # the other one's last round waits for one that waits
        return samples
    state.set(own, 1)
    lock.acquire()
    state.set(2, own + 1)
    lock.release()
    return samples


def main():
    client = KazooClient(sys.argv[1], timeout=int(sys.argv[2]) / 1000)
    client.start()
    if len(sys.argv) > 3:
        with client.Lock(sys.argv[4]):
            code = subprocess.call(sys.argv[5:])
        client.stop()
        sys.exit(code)
    print("ready", flush=True)
    held = []
    for line in sys.stdin:
        words = line.split()
        if words[0] == "loop":
            print(loop(client, words[2], int(words[1]) * 1000000), flush=True)
        elif words[0] == "pass":
            samples = pass_on(client, int(words[1]), words[2] == "first", words[3], State(words[4]))
            print("samples", *samples, flush=True)
        elif words[0] == "acquire":
            held.append(client.Lock(words[1]))
            held[-1].acquire()
            print("granted", flush=True)
    os._exit(0)


main()

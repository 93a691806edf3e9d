#!/bin/bash
# bench/records.sh [SECONDS] - two hosts lock and unlock disjoint bytes of one file: cycles, and what ZooKeeper has to do
#
# Each host has a byte of its own, so that after the first cycle of each nothing is left to ask other hosts: no request to
# ZooKeeper for a cycle.  Requests are counted by the server (mntr, zk_packets_received), and what the same hosts send when
# idle, heartbeats and pings, is measured in the same run and taken off.
#
# Prints, one a line:  cycles_per_second N (of both)   zookeeper_operations_per_cycle N   zookeeper_operations N
#                      idle_operations_per_second N    kernel_cycles_per_second N (both processes, no library)
#                      claims WHAT EACH HOST HAS
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"
seconds=${1:-5}

packets() { zk_mntr zk_packets_received; }

# both SECONDS - run the two loops; sets CYCLES
both() {
	local pids=() outs=()
	spawn alpha "$LOOP" -k posix -r 0,1 -s "$1" bench.dat
	pids+=("$spawned") outs+=("$spawned_out")
	spawn beta "$LOOP" -k posix -r 1,1 -s "$1" bench.dat
	pids+=("$spawned") outs+=("$spawned_out")
	wait "${pids[@]}"
	CYCLES=$(awk '/^cycles/ { sum += $2; lines++ } END { if (lines == 2) print sum }' "${outs[@]}")
	[ "$CYCLES" ] || { cat "${outs[@]/%/.err}" >&2 && exit 1; }
}

bench_start alpha beta
both 1 # each host has its byte
before=$(packets) start=$(now_ms)
sleep "$seconds"
idle=$(($(packets) - before)) idle_ms=$(($(now_ms) - start))
before=$(packets) start=$(now_ms)
both "$seconds"
busy=$(($(packets) - before)) busy_ms=$(($(now_ms) - start))
ours=$CYCLES
queue=/zkflock/records/s%2Fbench.dat
have=$(for claim in $(zkcat ls $queue); do zkcat get "$queue/$claim" | tr ' ' '\n' | grep '^[rw]='; done | sort | paste -sd' ')
MODE=native both "$seconds"
awk -v cycles="$ours" -v seconds="$seconds" -v busy=$busy -v busy_ms=$busy_ms -v idle=$idle -v idle_ms=$idle_ms \
	-v kernel="$CYCLES" 'BEGIN {
		operations = busy - idle * busy_ms / idle_ms
		printf "cycles_per_second %d\n", cycles / seconds
		printf "zookeeper_operations_per_cycle %.5f\n", (operations > 0 ? operations : 0) / cycles
		printf "zookeeper_operations %.1f\n", operations
		printf "idle_operations_per_second %.1f\n", idle * 1000 / idle_ms
		printf "kernel_cycles_per_second %d\n", kernel / seconds
	}'
echo "claims $have"

#!/bin/bash
# bench/flock.sh [CYCLES] - what an uncontended flock and its unlock cost: by the kernel, and over the library
#
#     plain     no library
#     unmapped  the library, and a file that is none of its business
#     covered   the library, and a file whose lock this host has
#
# In one run and by turns, so that whatever else the machine does hits all alike; of each way the best turn counts.
# Prints, one a line:  KIND WAY ns RATIO        for flock, and for whole-file record locks (posix)
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"
cycles=${1:-20000}
rounds=9

# loop_ns KIND WAY - nanoseconds of a cycle
loop_ns() {
	local file=bench.dat count=$cycles
	[ "$2" = unmapped ] && file=$T/bench.dat
	# a conversation for each: a tenth will do
	[ "$1 $2" = 'posix covered' ] && count=$((cycles / 10))
	if [ "$2" = plain ]; then
		MODE=native on alpha "$LOOP" -k "$1" -n "$count" "$file"
	else
		on alpha "$LOOP" -k "$1" -n "$count" "$file"
	fi | awk '/^cycles/ { print $4 }'
}

bench_start alpha
for kind in flock posix; do
	declare -A ns=()
	loop_ns $kind covered >/dev/null # the keeper is there, and the lock is this host's
	for ((round = 0; round < rounds; round++)); do
		for way in plain unmapped covered; do ns[$way]+=" $(loop_ns $kind $way)"; done
	done
	# shellcheck disable=SC2086 # lists
	plain=$(least ${ns[plain]})
	for way in plain unmapped covered; do
		# shellcheck disable=SC2086
		awk -v kind=$kind -v way=$way -v ns="$(least ${ns[$way]})" -v plain="$plain" \
			'BEGIN { printf "%s %s %d %.2f\n", kind, way, ns, ns / plain }'
	done
done

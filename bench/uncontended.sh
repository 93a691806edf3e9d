#!/bin/bash
# bench/uncontended.sh [ROUNDS] - what a lock and its unlock cost when nobody else wants it; one run of a program; counts
#
#     plain     the kernel, no library
#     floor     the kernel, no library, and a program that asks for the file's path before each lock, by two calls
#     unmapped  the library, and a file that is none of its business: it must ask for the path, too
#     covered   the library, and a file whose lock this host has
#     keep=0    the library, and a lock that is given back at every unlock: a cycle of ZooKeeper operations
#     curator, kazoo, client   what users would take instead; client is ZooKeeper's C client without any lock recipe
#
# By turns, in one run, so that whatever else the machine does hits all alike; of each way the median round counts.
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"
rounds=${1:-7}

cycle_ns() { awk '/^cycles/ { print $4 }'; }

# loop_ns KIND WAY - nanoseconds of a cycle
loop_ns() {
	case $2 in
	plain) MODE=native on alpha "$LOOP" -k "$1" -n 100000 bench.dat ;;
	floor) MODE=native on alpha "$LOOP" -k "$1" -n 50000 -p bench.dat ;;
	unmapped) on alpha "$LOOP" -k "$1" -n 50000 "$T/bench.dat" ;;
	covered) on alpha "$LOOP" -k "$1" -n 100000 bench.dat ;;
	keep=0) on alpha "$LOOP" -k "$1" -s 0.5 "$T/alpha/cold/bench.dat" ;;
	client) "$TOOLS/client" "127.0.0.1:$ZK_PORT" /client 0.5 ;;
	curator) peer_ask curator 'loop 500 /curator' && echo "$HEARD" ;;
	kazoo) peer_ask kazoo 'loop 500 /kazoo' && echo "$HEARD" ;;
	esac | cycle_ns
}

uncontended() {
	local kind=$1 way round plain ways='plain floor unmapped covered keep=0 client' floor='' aim value
	declare -A ns=()
	have_curator && ways+=' curator'
	have_kazoo && ways+=' kazoo'
	loop_ns "$kind" covered >/dev/null # the keeper is there, and the lock is this host's
	loop_ns "$kind" curator >/dev/null # compiled
	for ((round = 0; round < rounds; round++)); do
		for way in $ways; do ns[$way]+=" $(loop_ns "$kind" "$way")"; done
	done
	# shellcheck disable=SC2086 # lists
	for way in $ways; do
		value=$(median ${ns[$way]})
		[ $way = plain ] && plain=$value
		[ $way = floor ] && floor=$value
		case $way in
		covered) aim=$(verdict "$(ratio "$value" "$plain")" '<=' 2.0 'at most 2.0 x plain') ;;
		unmapped)
			aim=$([ "$kind" = flock ] && verdict $((value - plain)) '<=' 2500 "at most plain + 2.5 us: $((value - plain)) ns, of which the floor is $((floor - plain))")
			;;
		keep=0) aim=$([ "${ns[curator]}" ] && verdict "$value" '<=' "$(median ${ns[curator]})" "not slower than Curator") ;;
		curator) aim=$(verdict "$(ratio "$value" "$(median ${ns[covered]})")" '>=' 500 "covered: 500 x faster than Curator") ;;
		*) aim= ;;
		esac
		result "a uncontended pair" "$kind" "$way" "$value" ns "$(ratio "$value" "$plain")" "$aim"
	done
}

# environments of one host's programs, as spawn wants them
library="LD_PRELOAD=$BUILD/libzkflock.so,ZKFLOCK_CONF=$T/alpha/zkflock.conf,ZKFLOCK_RUNTIME_DIR=$T/alpha/run"

one_shot() {
	local plain ours other kazoo_ns
	{ read -r plain && read -r ours; } < <("$TOOLS/spawn" -n 200 - "$library" -- flock "$T/alpha/s/bench.dat" true)
	result 'b one-shot program' 'flock FILE true' plain "$plain" ns 1.00
	result 'b one-shot program' 'flock FILE true' zkflock "$ours" ns "$(ratio "$ours" "$plain")"
	if have_kazoo; then
		kazoo_ns=$("$TOOLS/spawn" -n 5 - -- $PYTHON "$BENCH/kazoo_peer.py" "127.0.0.1:$ZK_PORT" 6000 once /once true)
		result 'b one-shot program' 'flock FILE true' 'python+kazoo' "$kazoo_ns" ns "$(ratio "$kazoo_ns" "$plain")"
	fi
	{ read -r plain && read -r other && read -r ours; } < <(
		"$TOOLS/spawn" -n 2000 - "LD_PRELOAD=$TOOLS/empty.so" "$library" -- /bin/true)
	result 'b one-shot program' /bin/true 'empty library' "$other" ns 1.00
	result 'b one-shot program' /bin/true 'no library' "$plain" ns "$(ratio "$plain" "$other")"
	result 'b one-shot program' /bin/true zkflock "$ours" ns "$(awk -v a="$ours" -v b="$other" 'BEGIN { printf "%.3f", a / b }')" \
		"$(verdict "$ours" '<=' $((other * 103 / 100)) 'at most 3 % over an empty library')"
}

# Requests of N first locks and of N releases that give back, by the server's counters; what the heartbeats add is known.
counted() {
	local count=100 writes reads start beats
	on alpha "$PROBES/many" -n $count "$T/alpha/cold/c" # the names have their directories
	wait_until 10 claims_are locks cold.c0 0
	zk_counts
	writes=$WRITES reads=$READS start=$(now_ms)
	on alpha "$PROBES/many" -n $count "$T/alpha/cold/c"
	wait_until 10 no_cold_claims
	zk_counts
	beats=$((($(now_ms) - start) / 600))
	result 'a requests to ZooKeeper' 'lock and release, keep=0' writes \
		"$(ratio $((WRITES - writes - beats)) $count)" per_lock '' \
		"$(verdict "$(ratio $((WRITES - writes - beats)) $count)" '<=' 2.05 'lock 1 write + 1 read, release 1 write')"
	result 'a requests to ZooKeeper' 'lock and release, keep=0' reads "$(ratio $((READS - reads)) $count)" per_lock
}
no_cold_claims() { [ "$(zk_mntr zk_ephemerals_count)" -le 3 ]; }

bench_start
host alpha "map $T/alpha/cold cold.%r keep=0"
mkdir -p "$T/alpha/cold"
have_curator && curator_start curator
have_kazoo && kazoo_start kazoo
uncontended flock
uncontended posix
one_shot
counted

#!/bin/bash
# tests/80_scale_test.sh - many hosts, many locks, many processes: the shape of the cost, by the server's own counters
#
# Hosts here are real keepers.  Counts are asserted, not times: what one hand-over, one reader more, one lock more costs must
# not depend on how many there are.  bench/scale.sh has the large numbers.
# modes: cluster
# limit: 120
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"

CROWD=${CROWD:-15}

oneTimeSetUp() {
	[ -x "$BUILD/zkflockd" ] || { echo "nothing in $BUILD; run make"; return 1; }
	zk_start || return 1
	# A heartbeat of 2 s each: the longest there is, so that few are in the counts.
	SESSION_TIMEOUT=60s host alpha
	SESSION_TIMEOUT=60s host full 'keep 24h'
	crowd_make "$CROWD"
}

# crowd_make N - hosts c1 to cN, each with a keeper that has a session
crowd_make() {
	local i
	CROWD_HOSTS=()
	for ((i = 1; i <= $1; i++)); do
		SESSION_TIMEOUT=60s host "c$i" 'keep 24h'
		CROWD_HOSTS+=("c$i")
	done
}

# crowd_run CMD... - on each host of the crowd, in the background
crowd_run() {
	local name
	CROWD_PIDS=()
	for name in "${CROWD_HOSTS[@]}"; do
		spawn "$name" "$@"
		CROWD_PIDS+=("$spawned")
	done
}

# the_rest SINCE_MS - heartbeats and whatever else the sessions write by themselves since then, at most
beats_since() { echo $((($(now_ms) - $1) * (CROWD + 1) / 2000 + CROWD + 1)); }

all_gone() {
	local pid
	for pid in "${CROWD_PIDS[@]}"; do gone "$pid" || return 1; done
}
# claims_of_all N - by the server's own count, which costs no request; each session has a node more than its claims
claims_of_all() { [ "$(zk_mntr zk_ephemerals_count)" = $((CROWD + 1 + $1)) ]; }

test_a_hand_over_costs_the_same_however_many_wait() {
	local writes reads woken start beats
	hold alpha crowd.dat || { fail 'no lock'; return; }
	crowd_run sh -c 'exec "$@" "own.$$"' sh "$PROBES/lock" # keepers and sessions are there
	wait_until 30 all_gone
	wait_until 10 claims_of_all $((CROWD + 1))
	zk_counts
	reads=$READS woken=$WOKEN
	crowd_run "$PROBES/lock" -w crowd.dat
	wait_until 30 claims_of_all $((CROWD + CROWD + 1))
	assertTrue 'all wait' "claims_of_all $((CROWD + CROWD + 1))"
	wait_until 10 reads_settle
	zk_counts
	# Each arrival: its own list and watch, the holder's list.
	assertTrue "reads of an arrival: $READS - $reads" "[ $((READS - reads)) -le $((CROWD * 5)) ]"
	assertTrue "wakes of an arrival: $WOKEN - $woken" "[ $((WOKEN - woken)) -le $((CROWD * 3)) ]"
	writes=$WRITES reads=$READS woken=$WOKEN start=$(now_ms)
	end "$holder"
	wait_until 30 all_gone
	assertTrue 'all have had it' all_gone
	zk_counts
	beats=$(beats_since "$start")
	# Each hand-over: the node deleted; the next host's list; that host woken, and the watch of the one that leaves.
	assertTrue "writes of a hand-over: $WRITES - $writes, beats $beats" "[ $((WRITES - writes)) -le $((CROWD + 2 + beats)) ]"
	assertTrue "reads of a hand-over: $READS - $reads" "[ $((READS - reads)) -le $((CROWD * 4)) ]"
	assertTrue "wakes of a hand-over: $WOKEN - $woken" "[ $((WOKEN - woken)) -le $((CROWD * 4)) ]"
}

# Two samples of the reads are alike.
reads_settle() {
	zk_counts
	local before=$READS
	read -r -t 0.1 _ <>"$T/nap"
	zk_counts
	[ "$READS" = "$before" ]
}

test_a_reader_more_wakes_none_and_a_writer_recalls_all() {
	local reads woken
	crowd_run "$PROBES/lock" -m sh readers.dat
	wait_until 30 all_gone
	assertEquals 'all keep their share' "$CROWD" "$(claims locks readers.dat)"
	wait_until 10 reads_settle
	zk_counts
	reads=$READS woken=$WOKEN
	assertEquals granted "$(try alpha readers.dat -m sh)"
	wait_until 10 reads_settle
	zk_counts
	assertEquals 'hosts woken by one reader more' 0 $((WOKEN - woken))
	assertTrue "reads of one reader more: $((READS - reads))" "[ $((READS - reads)) -le 6 ]"
	assertEquals granted "$(wait_for alpha readers.dat 20)"
	wait_until 10 claims_are locks readers.dat 1
	assertEquals 'of the readers nothing is left' 1 "$(claims locks readers.dat)"
}

test_at_its_limit_a_keeper_gives_back_what_was_used_least_recently() {
	local out most kept
	env "ZKFLOCK_CONF=$T/full/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/full/run" ZKFLOCK_TEST_SESSION_BYTES=15000 \
		"$BUILD/zkflockd" 2>"$T/full/keeper.log" &
	wait_until 10 test -S "$T/full/run/socket"
	on full "$PROBES/lock" first.dat >/dev/null
	assertEquals 'kept' 1 "$(claims locks first.dat)"
	# All held: beyond the limit there is an error that says why.
	out=$(within 40 full "$PROBES/many" -o -e 1 -n 1000 held. 2>&1)
	assertContains "$out" 'No locks available'
	assertContains "$out" 'this host holds as many locks as one session may'
	most=$(zkcat ls /zkflock/locks | grep -c held)
	assertTrue "locks at the limit: $most" "[ $most -gt 100 ]"
	assertEquals 'kept and unused: given back before that' 0 "$(claims locks first.dat)"
	# They are kept and unused now.  Three times as many as there is room for, one after the other: none is refused.
	out=$(within 40 full "$PROBES/many" -n 300 new. 2>&1)
	assertEquals 'failed' 0 "$(awk 'NF == 3 { f = $3 } END { print f }' <<<"$out")"
	wait_until 10 reads_settle
	kept=$(for i in 0 60 120 180 240 290 299; do claims locks "new.$i"; done | tr -d '\n')
	assertTrue "of the first to the last: $kept" "[[ $kept =~ ^0+1+\$ ]]"
}

test_many_processes_of_a_host_at_once() {
	local pids=() i outs=()
	hold alpha busy.dat || { fail 'no lock'; return; }
	for ((i = 0; i < 60; i++)); do
		spawn c1 "$PROBES/lock" -w busy.dat
		pids+=("$spawned") outs+=("$spawned_out")
	done
	wait_until 20 conversations_of c1 60
	assertTrue 'one claim serves them all' "[ $(claims locks busy.dat) -le 2 ]"
	end "$holder"
	CROWD_PIDS=("${pids[@]}")
	wait_until 30 all_gone
	assertEquals 'granted' 60 "$(cat "${outs[@]}" | grep -cx granted)"
}

# The batch rule: who waited on a host when its turn came is served before the next host, by one hand-over.
test_one_hand_over_serves_all_that_wait_on_a_host() {
	local i name writes start CROWD_PIDS=()
	: >"$T/order"
	hold alpha batch.dat || { fail 'no lock'; return; }
	for name in c1 c2; do
		for ((i = 0; i < 20; i++)); do
			spawn $name flock batch.dat sh -c 'echo "$1" >>"$2"' sh $name "$T/order"
			CROWD_PIDS+=("$spawned")
		done
		wait_until 20 conversations_of $name 20
		wait_until 10 claims_are locks batch.dat $((${#CROWD_PIDS[@]} / 20 + 1))
	done
	wait_until 10 reads_settle
	zk_counts
	writes=$WRITES start=$(now_ms)
	end "$holder"
	wait_until 30 all_gone
	zk_counts
	assertEquals 'served' 40 "$(wc -l <"$T/order")"
	assertEquals 'in turn' 'c1 c2 ' "$(uniq "$T/order" | tr '\n' ' ')"
	# alpha's claim goes, and c1's; those of both that wait may have said that they do.
	assertTrue "writes: $WRITES - $writes" "[ $((WRITES - writes)) -le $((6 + $(beats_since "$start"))) ]"
}

# conversations_of HOST N - has its keeper so many connections, at least?
conversations_of() {
	local fds
	fds=(/proc/"$(keeper_pid "$1")"/fd/*)
	[ ${#fds[@]} -gt "$2" ]
}

# shellcheck source=/dev/null
. shunit2

#!/bin/bash
# tests/46_groups_stress_test.sh - many threads of many processes on three hosts in one group, some of them killed
# modes: cluster
# limit: 900
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

SECONDS_OF_STRESS=${SECONDS_OF_STRESS:-8} # make soak: more

oneTimeSetUp() {
	local host
	zk_start || return 1
	for host in alpha beta gamma; do
		host $host "map $T/$host/s/g group"
		mkdir "$T/$host/s/g"
	done
}

# nest INDEX HOST MS - the process of that index
nest() {
	spawn "$2" "$PROBES/nest" -t "$3" -n 4 "$T/state" g/1 g/2 g/3 g/4 g/5
	nests[$1]=$spawned
	nest_hosts[$1]=$2
	outs+=("$spawned_out")
}

free_everywhere() {
	local host
	for host in alpha beta gamma; do
		assertEquals "$1: free on $host" granted "$(wait_for $host "g/free" 5)"
	done
}

test_never_two_owners_never_a_leaked_hold() {
	local i host end killed=0 left out rounds=0 n keeper
	local -a nests nest_hosts outs
	end=$(($(now_ms) + SECONDS_OF_STRESS * 1000))
	i=0
	for host in alpha beta gamma alpha beta gamma alpha beta gamma alpha beta gamma; do
		nest $((i++)) $host $((SECONDS_OF_STRESS * 1000))
	done
	while left=$((end - $(now_ms))) && [ $left -gt 700 ]; do
		sleep 0.4 # time is the subject: so long they run undisturbed
		i=$((RANDOM % 12))
		kill -KILL "${nests[i]}" 2>/dev/null && wait "${nests[i]}" 2>/dev/null
		((++killed))
		# Every few kills a keeper goes, too: its group must be known again.
		if [ $((killed % 5)) = 0 ]; then
			keeper=$(keeper_pid "${nest_hosts[i]}") && kill -KILL "$keeper"
		fi
		nest $i "${nest_hosts[i]}" $((end - $(now_ms)))
	done
	for i in "${!nests[@]}"; do
		wait_until 30 gone "${nests[i]}" || fail "process $i waits for ever"
	done
	for out in "${outs[@]}"; do
		assertEquals "$(cat "$out.err")" '' "$(grep -v '^$' "$out.err")"
		n=$(sed -n 's/rounds \([0-9]*\) violations 0/\1/p' "$out")
		rounds=$((rounds + ${n:-0}))
	done
	echo "# $rounds rounds, $killed killed"
	assertTrue "rounds: $rounds" "[ $rounds -gt 100 ]"
	free_everywhere 'after the storm'
}

# All end at once, holding whatever they hold.
test_who_leaves_holding_leaks_nothing() {
	local i
	local -a pids
	for i in 1 2 3; do
		for host in alpha beta gamma; do
			spawn $host "$PROBES/nest" -x -t 800 -n 4 "$T/state2" g/1 g/2 g/3
			pids+=("$spawned")
		done
	done
	for i in "${pids[@]}"; do wait_until 20 gone "$i" || fail "$i waits for ever"; done
	free_everywhere 'after exit'
}

. shunit2

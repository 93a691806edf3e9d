#!/bin/bash
# bench/scale.sh [HOSTS...] - how the cost grows with hosts, with locks, with processes of a host
#
# Hosts are real keepers, each with a session of its own; "requests" are counted by the server.  Default: 10 100 300 hosts
# (1000 by `bench/scale.sh 1000`: it takes a quarter of an hour on two cores).  Writes the points to build/bench/scale.tsv:
#     hosts N REQUESTS_OF_A_HAND_OVER WAKES_OF_IT   locks N NS_OF_A_LOCK BYTES_OF_A_LOCK   processes N MS_UNTIL_ALL_HAD_IT
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"
points=$TOOLS/scale.tsv
limit=${LOCKS:-20000}

gone_all() { for pid in "${pids[@]}"; do gone "$pid" || return 1; done; }
waiting_are() { [ "$(zk_mntr zk_ephemerals_count)" -ge "$1" ]; }

# on_crowd CMD... - on all hosts so far, in the background
on_crowd() {
	local name
	pids=()
	for name in "${crowd[@]}"; do
		spawn "$name" "$@"
		pids+=("$spawned")
	done
}

hosts() {
	local count=$1 writes reads woken start beats before
	while [ ${#crowd[@]} -lt "$count" ]; do
		crowd+=("h${#crowd[@]}")
		SESSION_TIMEOUT=60s host "${crowd[-1]}" 'keep 24h'
		on "${crowd[-1]}" "$PROBES/lock" own.dat >/dev/null
	done
	hold alpha "crowd.$count"
	before=$(zk_mntr zk_ephemerals_count)
	zk_counts
	reads=$READS
	on_crowd "$PROBES/lock" -w "crowd.$count"
	PATIENCE=1 wait_until 300 waiting_are $((before + count))
	zk_counts
	result 'B hosts waiting for one lock' "$count hosts" 'reads of an arrival' "$(ratio $((READS - reads)) "$count")" requests
	writes=$WRITES reads=$READS woken=$WOKEN start=$(now_ms)
	end "$holder"
	PATIENCE=1 wait_until 300 gone_all
	zk_counts
	beats=$((($(now_ms) - start) * (count + 1) / 2000))
	result 'B hosts waiting for one lock' "$count hosts" 'a hand-over' \
		"$(ratio $((WRITES - writes - beats)) "$count")w+$(ratio $((READS - reads)) "$count")r" requests
	result 'B hosts waiting for one lock' "$count hosts" 'watches fired by it' "$(ratio $((WOKEN - woken)) "$count")" ''
	result 'B hosts waiting for one lock' "$count hosts" 'time of it' "$(ratio $(($(now_ms) - start)) "$count")" ms
	printf 'hosts\t%d\t%s\t%s\n' "$count" "$(ratio $((WRITES - writes - beats + READS - reads)) "$count")" \
		"$(ratio $((WOKEN - woken)) "$count")" >>"$points"
	on_crowd "$PROBES/lock" -m sh "shared.$count"
	PATIENCE=1 wait_until 300 gone_all
	zk_counts
	reads=$READS woken=$WOKEN
	on alpha "$PROBES/lock" -m sh "shared.$count" >/dev/null
	zk_counts
	result 'B hosts that share a lock' "$count hosts" 'one reader more' \
		"$((READS - reads))r, wakes $((WOKEN - woken))" requests "" "$(verdict $((WOKEN - woken)) '<=' 0 'wakes none')"
	start=$(now_ms)
	within 200 alpha "$PROBES/lock" -w "shared.$count" >/dev/null
	zk_counts
	result 'B hosts that share a lock' "$count hosts" 'a writer recalls all' \
		"$(ratio $((READS - reads)) "$count")r, wakes $(ratio $((WOKEN - woken)) "$count")" 'per host' "" "in $(($(now_ms) - start)) ms"
}

# Locks, each taken once and kept, then far more than a session may have.
many_locks() {
	local pid before bytes part ns failed
	SESSION_TIMEOUT=60s host many 'keep 24h'
	on many "$PROBES/lock" first.dat >/dev/null
	pid=$(keeper_pid many)
	before=$(awk '/RssAnon/ { print $2 }' "/proc/$pid/status")
	within 200 many "$PROBES/many" -n 8000 a >"$T/many.out"
	bytes=$((($(awk '/RssAnon/ { print $2 }' "/proc/$pid/status") - before) * 1024 / 8000))
	result 'B locks of one host' '8,000 kept' 'memory of a lock' "$bytes" bytes '' "$(verdict "$bytes" '<=' 1024 'under 1 KiB')"
	while read -r part ns failed; do
		printf 'locks\t%d\t%d\n' "$part" "$ns" >>"$points"
		result 'B locks of one host' "$part locks" 'a new lock' "$((ns / 1000))" us '' "$([ "$failed" = 0 ] || echo "failed: $failed")"
	done <"$T/many.out"
	within 200 many "$PROBES/many" -n "$limit" b >"$T/many.out"
	read -r part ns failed < <(tail -n 1 "$T/many.out")
	result 'B locks of one host' "$limit files in turn" 'the last tenth' "$((ns / 1000))" us '' \
		"$(verdict "$failed" '<=' 0 "no error; claims at the end: $(zk_mntr zk_ephemerals_count)")"
}

processes() {
	local count=$1 start i
	hold alpha "busy.$count"
	pids=()
	for ((i = 0; i < count; i++)); do
		spawn crew "$PROBES/lock" -w "busy.$count"
		pids+=("$spawned")
	done
	PATIENCE=1 wait_until 120 connections "$count"
	zk_counts
	local writes=$WRITES
	start=$(now_ms)
	end "$holder"
	PATIENCE=1 wait_until 120 gone_all
	zk_counts
	result 'B processes of one host' "$count at once" 'until all have had it' $(($(now_ms) - start)) ms '' \
		"writes to ZooKeeper: $((WRITES - writes)), granted: $(cat "$T"/out.* | grep -cx granted)"
	printf 'processes\t%d\t%d\n' "$count" $(($(now_ms) - start)) >>"$points"
	rm -f "$T"/out.*
}
connections() {
	local fds
	fds=(/proc/"$(keeper_pid crew)"/fd/*)
	[ ${#fds[@]} -ge "$1" ]
}

crowd=()
bench_start
: >"$points"
SESSION_TIMEOUT=60s host alpha 'keep 24h'
SESSION_TIMEOUT=60s host crew 'keep 24h'
[ $# -gt 0 ] || set -- 10 100
for count; do hosts "$count"; done
for count in 100 1000; do processes "$count"; done
many_locks

#!/bin/bash
# bench/contend.sh [ROUNDS] - two hosts that want one lock all the time, with nothing to do inside; hand-over; a crash
#
# Curator's and kazoo's processes have a session each.  Curator's are threads of one JVM for each host, which spares it
# the processor time of many JVMs.  Requests are counted by the server.
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"
rounds=${1:-5}
ms=2000

# ours PROCESSES - cycles per second of both hosts together; sets CYCLES
ours() {
	local pids=() outs=() i name
	for name in alpha beta; do
		for ((i = 0; i < $1; i++)); do
			spawn $name "$LOOP" -s "$((ms / 1000)).$((ms % 1000))" bench.dat
			pids+=("$spawned") outs+=("$spawned_out")
		done
	done
	wait "${pids[@]}"
	CYCLES=$(awk -v ms=$ms '/^cycles/ { sum += $2 } END { printf "%d", sum * 1000 / ms }' "${outs[@]}")
	rm -f "$T"/out.*
}
peers() { # the same of peers: NAME...
	local name sum=0
	for name; do peer_tell "$name" "$peer_command"; done
	for name; do
		peer_hear "$name" 60
		read -r _ cycles _ <<<"$HEARD"
		sum=$((sum + cycles))
	done
	CYCLES=$((sum * 1000 / ms))
}
curators() {
	for name in curator1 curator2; do peer_ask $name "clients $1" 60; done
	peer_command="contend $ms /contend.curator" peers curator1 curator2
}
kazoos() {
	local names=() i
	for ((i = 1; i <= 2 * $1; i++)); do names+=("kazoo$i"); done
	peer_command="loop $ms /contend.kazoo" peers "${names[@]}"
}

contend() {
	local processes=$1 round way ways=ours name aim
	declare -A cycles=() writes=() reads=()
	have_curator && ways+=' curators'
	have_kazoo && ways+=' kazoos'
	for ((round = 0; round < rounds; round++)); do
		for way in $ways; do
			zk_counts
			local w=$WRITES r=$READS
			$way "$processes"
			zk_counts
			cycles[$way]+=" $CYCLES"
			writes[$way]+=" $(ratio $((WRITES - w)) $((CYCLES * ms / 1000)))"
			reads[$way]+=" $(ratio $((READS - r)) $((CYCLES * ms / 1000)))"
		done
	done
	# shellcheck disable=SC2086 # lists
	for way in $ways; do
		name=${way%s} aim=
		[ $way = ours ] && name=zkflock && [ "${cycles[curators]}" ] && {
			aim=$(ratio "$(median ${cycles[ours]})" "$(median ${cycles[curators]})")
			aim=$(verdict "$aim" '>=' $((processes == 1 ? 1 : 10)) "$((processes == 1 ? 1 : 10)) x Curator: $aim")
		}
		result 'c two hosts contend' "$processes a host" $name "$(median ${cycles[$way]})" cycles/s \
			"$(ratio "$(median ${cycles[$way]})" "$(median ${cycles[ours]})")" "$aim"
		result 'c requests of a cycle' "$processes a host" $name \
			"$(median ${writes[$way]})w+$(median ${reads[$way]})r" requests
	done
}

new_state() {
	rm -f "$T/state"
	truncate -s 4096 "$T/state"
}
handed() { # WAY SAMPLES...: p50 and p99
	local way=$1 p50
	shift
	p50=$(median "$@")
	[ "$way" = zkflock ] && base50=$p50
	result 'd release to grant' 'p50' "$way" "$((p50 / 1000))" us "$(ratio "$p50" "$base50")"
	result 'd release to grant' 'p99' "$way" "$(($(quantile 99 "$@") / 1000))" us
}
handoff() {
	local count=200 first first_out
	new_state
	spawn alpha "$TOOLS/handoff" -1 -n $count pass.dat "$T/state"
	first=$spawned first_out=$spawned_out
	spawn beta "$TOOLS/handoff" -n $count pass.dat "$T/state"
	wait "$first" "$spawned"
	# shellcheck disable=SC2046 # a list
	handed zkflock $(sed 's/^samples//' "$first_out" "$spawned_out")
	if have_curator; then
		peer_ask curator1 "handoff $count /pass.curator" 120
		# shellcheck disable=SC2086
		handed curator ${HEARD#samples}
	fi
	if have_kazoo; then
		new_state
		peer_tell kazoo1 "pass $count first /pass.kazoo $T/state"
		peer_tell kazoo2 "pass $count second /pass.kazoo $T/state"
		local samples=
		for name in kazoo1 kazoo2; do
			peer_hear $name 120
			samples+=" ${HEARD#samples}"
		done
		# shellcheck disable=SC2086
		handed kazoo $samples
	fi
}

us() { echo "${EPOCHREALTIME/./}"; }
two_claims() { claims_are locks crash.dat 2; }
two_nodes() { [ "$(zkcat count /crash)" = 2 ]; }
crash() {
	local start times=() round curator=()
	for ((round = 0; round < rounds; round++)); do
		hold alpha crash.dat
		# shellcheck disable=SC2094
		host_env beta
		peer_start waiter "${HOST_ENV[@]}" sh -c 'echo ready; exec "$@"' sh "$PROBES/lock" -w crash.dat
		wait_until 5 two_claims
		start=$(us)
		kill -KILL "$holder"
		peer_hear waiter 30
		times+=($(($(us) - start)))
		wait "$holder" 2>/dev/null
		peer_stop waiter
	rm -f "$T"/peer.waiter.*
	done
	result 'f holder killed, to grant' '' zkflock "$(median "${times[@]}")" us 1.00 \
		"$(verdict "$(median "${times[@]}")" '<=' 50000 'at most 50 ms')"
	have_curator || return
	peer_stop curator2
	rm -f "$T"/peer.curator2.*
	for ((round = 0; round < (rounds < 2 ? rounds : 2); round++)); do
		curator_start curator2
		peer_ask curator2 'acquire /crash'
		peer_tell curator1 'crash' && peer_hear curator1 5 # it is there
		peer_tell curator1 'once /crash'
		wait_until 5 two_nodes
		start=$(us)
		peer_stop curator2
		rm -f "$T"/peer.curator2.*
		peer_hear curator1 60
		curator+=($(($(us) - start)))
	done
	result 'f holder killed, to grant' '' curator "$(median "${curator[@]}")" us \
		"$(ratio "$(median "${curator[@]}")" "$(median "${times[@]}")")" '(session timeout 6 s, as ours; its default is 60 s)'
}

bench_start alpha beta
if have_curator; then for i in 1 2; do curator_start curator$i; done; fi
if have_kazoo; then for i in 1 2 3 4 5 6 7 8; do kazoo_start kazoo$i; done; fi
if have_curator; then curators 4; fi # compiled
contend 1
contend 4
handoff
crash

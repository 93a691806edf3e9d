#!/bin/bash
# bench/sqlite.sh [ROUNDS] - SQLite: transactions per second with and without the library, and on two hosts in turn
#
# In turn: one transaction here, the next one there, so that each needs what the other host has.  Both hosts see the same
# data: two overlay mounts over one directory are two lock domains.  That takes root and a mount namespace of its own.
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
if [ -z "$ZKF_BENCH_MOUNTS" ]; then
	ZKF_BENCH_MOUNTS=1 unshare --mount --propagation private -- true 2>/dev/null &&
		exec env ZKF_BENCH_MOUNTS=1 unshare --mount --propagation private -- "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
rounds=${1:-5}
turns=100

# start NAME HOST DIRECTORY - a program with a database open
start() {
	local HOST_ENV
	host_env "$2"
	peer_start "$1" "${HOST_ENV[@]}" $PYTHON "$BENCH/transactions.py" "$3/data.db"
}

# in_turn FIRST SECOND - nanoseconds of a transaction
in_turn() {
	local i start=${EPOCHREALTIME/./}
	for ((i = 0; i < turns / 2; i++)); do
		peer_ask "$1" one 30
		peer_ask "$2" one 30
	done
	echo $(((${EPOCHREALTIME/./} - start) * 1000 / turns))
}
run_ns() { peer_ask "$1" 'run 500' 30 && echo "${HEARD##* }"; }

bench_end() { # the mounts must not be there when the directory is removed
	local name
	for name in "${!PEER_PID[@]}"; do peer_stop "$name"; done
	for name in "${HOSTS[@]}"; do [ -e "$T/$name/run/pid" ] && keeper_stop "$name"; done
	awk -v below="$T/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | xargs -r umount -l
	oneTimeTearDown
}

bench_start alpha beta
mkdir -p "$T/plain" "$T/alpha/s/own" "$T/shared/upper" "$T/shared/lower"
MODE=native start plain alpha "$T/plain"
start covered alpha "$T/alpha/s/own"
declare -A ns=()
for ((round = 0; round < rounds; round++)); do
	for way in plain covered; do ns[$way]+=" $(run_ns $way)"; done
done
# shellcheck disable=SC2086 # lists
for way in plain covered; do
	value=$(median ${ns[$way]}) base=$(median ${ns[plain]})
	result 'e SQLite' 'one host' $way $((1000000000 / value)) transactions/s "$(ratio "$base" "$value")"
done
ways='plain'
MODE=native start plain2 alpha "$T/plain"
shared=no
if [ "$ZKF_BENCH_MOUNTS" ]; then
	$PYTHON - "$T/shared/upper/data.db" <<-'END'
		import sqlite3, sys
		sqlite3.connect(sys.argv[1]).executescript("create table t (n integer); insert into t values (0)")
	END
	shared=yes
	for name in alpha beta; do
		mkdir -p "$T/shared/work.$name" "$T/$name/s/both"
		mount -t overlay overlay \
			-o "lowerdir=$T/shared/lower,upperdir=$T/shared/upper,workdir=$T/shared/work.$name,index=off" \
			"$T/$name/s/both" 2>/dev/null || shared=no
	done
fi
if [ $shared = yes ]; then
	start both1 alpha "$T/alpha/s/both"
	start both2 beta "$T/beta/s/both"
	ways+=' zkflock'
fi
ns=()
for ((round = 0; round < rounds; round++)); do
	for way in $ways; do
		[ "$way" = plain ] && ns[$way]+=" $(in_turn plain plain2)" || ns[$way]+=" $(in_turn both1 both2)"
	done
done
# shellcheck disable=SC2086
for way in $ways; do
	value=$(median ${ns[$way]}) base=$(median ${ns[plain]})
	result 'e SQLite' 'two in turn' $way $((1000000000 / value)) transactions/s "$(ratio "$base" "$value")"
done
[ $shared = yes ] || result 'e SQLite' 'two in turn' zkflock - '' '' 'needs root and overlay mounts'

# tests/lib.sh - what the test files share: servers, hosts, probes, deadlines
#
# A "host" is a directory of its own for files (s), a configuration of its own, and a runtime directory, hence a keeper,
# of its own.  The rules of all hosts map their s to the same lock names.  Programs run in s, so "job.lock" means the
# same lock on every host.  With MODE=native all hosts share one s and nothing is preloaded: the kernel answers, and
# every expectation must hold there too.
#
# Only the program under test is preloaded, never the shell of the test.  Everything waits with a deadline.
# Nothing stays: children are ended by their id in tearDown, keepers and servers in oneTimeTearDown.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # used by the test files; shunit2 sets

export LC_ALL=C
MODE=${MODE:-cluster}
TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BUILD=$(realpath -m "${BUILD:-$TESTS/../build}")
PROBES=$BUILD/probes
unset LD_PRELOAD ZKFLOCK_CONF ZKFLOCK_RUNTIME_DIR ZKFLOCK_LOG
PYTHON=/usr/bin/python3 # not whatever a version manager's wrapper script starts

# usable_dir DIR - may programs be run from it, and is there room?
usable_dir() {
	local try
	try=$(mktemp "$1/zkflock-try.XXXXXX" 2>/dev/null) || return 1
	printf '#!/bin/sh\n' >"$try" && chmod +x "$try" && "$try" 2>/dev/null &&
		[ "$(df -P -k "$1" | awk 'NR == 2 { print $4 }')" -gt 100000 ]
	local result=$?
	rm -f "$try"
	return $result
}

for T in /dev/shm "${TMPDIR:-/tmp}"; do usable_dir "$T" && break; done
T=$(realpath "$(mktemp -d "$T/zkflock-test.XXXXXX")")
[ "$ZKF_RESULTS" ] && echo "$T" >"$ZKF_RESULTS.dir"
mkdir "$T/actors"
mkfifo "$T/nap"
# Marks every process that a test starts, and what those start.
export ZKF_TAG=$T
SHUNIT_COLOR=none

declare -a HOSTS=()
declare -A ANSWERS_READ=() ACTORS=()
spawned_count=0
zk_pid='' ZK_PORT='' spawned='' holder='' skip_reason='' asserts_before=0

# ---- time ------------------------------------------------------------------------------------------------------------

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# Every deadline of a test is a time in which a quiet machine is surely done; on a busy one it gets PATIENCE times that.
# Twice 2 s are still less than the 6 s of a session timeout: what is asserted is that nobody waited for one.
PATIENCE=${PATIENCE:-2}

# wait_until SECONDS CMD... - run CMD until it succeeds, every 10 ms, after half a second every 50; 1 after the deadline
wait_until() {
	local seconds=$1
	shift
	look_for $((seconds * PATIENCE)) "$@"
}

# never SECONDS CMD... - 0 when CMD did not succeed for so long
never() { ! look_for "$@"; }

look_for() {
	local deadline=$((${EPOCHREALTIME/./} + $1 * 1000000)) nothing nap_fd result=0 tries=0
	shift
	"$@" && return 0
	exec {nap_fd}<>"$T/nap" # a fifo that nobody writes to: a sleep without a process
	until "$@"; do
		[ ${EPOCHREALTIME/./} -lt $deadline ] || { result=1 && break; }
		read -r -t 0.0$((++tries > 40 ? 5 : 1)) -u "$nap_fd" nothing
	done
	exec {nap_fd}>&-
	return $result
}

# gone PID - has the process ended, reaped or not?
gone() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
	[[ ${stat##*) } == [ZX]* ]]
}

# contains FILE TEXT - has FILE a line that is TEXT?
contains() {
	local line
	while IFS= read -r line; do
		[ "$line" = "$2" ] && return 0
	done 2>/dev/null <"$1"
	return 1
}

# signal SIGNAL PID - to a process of this test, if it is still that: a pid that was reaped may be another's by now
signal() {
	{ grep -qzxF "ZKF_TAG=$T" "/proc/$2/environ" || grep -qx "PPid:.$$" "/proc/$2/status"; } 2>/dev/null &&
		kill "-$1" "$2" 2>/dev/null
}

# end PID... - SIGTERM, SIGKILL after 5 s, reap
end() {
	local pid
	for pid; do signal TERM "$pid"; done
	for pid; do
		wait_until 5 gone "$pid" || signal KILL "$pid"
		wait "$pid" 2>/dev/null
	done
	return 0
}

# ---- the server ------------------------------------------------------------------------------------------------------

# zk_start [LINE...] - a standalone server on a free port of ZK_ADDRESS, 127.0.0.1 unless set (the same port after zk_stop);
# LINEs go into its configuration
zk_start() {
	local try
	[ "$MODE" = native ] && return 0
	mkdir -p "$T/zk/data"
	for try in 1 2 3 4 5; do
		ZK_PORT=${ZK_PORT:-$((RANDOM % 9000 + 21000))}
		printf '%s\n' tickTime=500 maxSessionTimeout=60000 "dataDir=$T/zk/data" "clientPort=$ZK_PORT" \
			"clientPortAddress=${ZK_ADDRESS:-127.0.0.1}" admin.enableServer=false maxClientCnxns=0 '4lw.commands.whitelist=*' \
			"$@" >"$T/zk/zoo.cfg"
		env -u ZKF_TAG java -Xmx256m -Xshare:auto -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
			-Dznode.container.checkIntervalMs=1000 -Dzookeeper.preAllocSize=512 \
			-Dzookeeper.root.logger=WARN,CONSOLE \
			-cp /etc/zookeeper/conf:/usr/share/java/zookeeper.jar \
			org.apache.zookeeper.server.ZooKeeperServerMain "$T/zk/zoo.cfg" </dev/null >>"$T/zk/log" 2>&1 &
		zk_pid=$!
		wait_until 40 zk_up_or_dead
		zk_up && return 0
		zk_stop
		[ "$try" = 1 ] || ZK_PORT=
	done
	fail 'no ZooKeeper server could be started'
	cat "$T/zk/log"
	return 1
}

# zk_command WORD - the answer to a four-letter command
zk_command() {
	{ exec {zk_fd}<>"/dev/tcp/${ZK_ADDRESS:-127.0.0.1}/$ZK_PORT"; } 2>/dev/null || return 1
	printf '%s' "$1" >&"$zk_fd"
	timeout 5 cat <&"$zk_fd"
	exec {zk_fd}>&-
}

zk_up() { [ "$zk_pid" ] && ! gone "$zk_pid" && zk_command srvr | grep -q '^Mode: '; }
zk_up_or_dead() { zk_up || gone "$zk_pid"; }

# zk_mntr KEY - one number of the server's own monitoring, as zk_ephemerals_count
zk_mntr() { zk_command mntr | awk -v key="$1" '$1 == key { print $2 }'; }

# zk_counts - sets WRITES and READS, requests that the server has answered, sessions and pings apart, and WOKEN, the watches
# that have fired
zk_counts() {
	read -r WRITES READS WOKEN < <(zk_command mntr | awk '
		$1 == "zk_cnt_updatelatency" { w = $2 } $1 == "zk_cnt_readlatency" { r = $2 }
		$1 ~ /^zk_sum_node_.*_watch_count$/ { n += $2 } END { print w + 0, r + 0, n + 0 }')
}

# zk_stop [SIGNAL] - end the server (KILL: as a power failure does); its data stay for the next zk_start
zk_stop() {
	[ "$zk_pid" ] || return 0
	kill "-${1:-TERM}" "$zk_pid" 2>/dev/null
	wait_until 10 gone "$zk_pid" || kill -KILL "$zk_pid" 2>/dev/null
	wait "$zk_pid" 2>/dev/null
	zk_pid=
}

# zkcat VERB PATH... - see tests/probes/zkcat.c
zkcat() { timeout 20 "$PROBES/zkcat" "${ENSEMBLE:-${ZK_ADDRESS:-127.0.0.1}:$ZK_PORT}" "$@"; }

# claims KIND FILE - number of claims in the queue of a file below s; KIND is locks (flock) or records (fcntl)
claims() { zkcat count "/zkflock/$1/s%2F$2"; }

claims_are() { [ "$(claims "$1" "$2")" = "$3" ]; }

# ---- hosts -----------------------------------------------------------------------------------------------------------

# host NAME [LINE...] - make a host; LINEs go into its configuration; SESSION_TIMEOUT is 6s unless set, TICK_TIME 500ms,
# ENSEMBLE the server of zk_start, ZK_ROOT /zkflock
host() {
	local name=$1
	shift
	HOSTS+=("$name")
	mkdir -p "$T/$name/run"
	chmod 700 "$T/$name/run"
	if [ "$MODE" = native ]; then
		mkdir -p "$T/s"
		ln -sfn ../s "$T/$name/s"
		return
	fi
	mkdir -p "$T/$name/s"
	printf '%s\n' "ensemble ${ENSEMBLE:-${ZK_ADDRESS:-127.0.0.1}:$ZK_PORT}" "root ${ZK_ROOT:-/zkflock}" \
		"session_timeout ${SESSION_TIMEOUT:-6s}" "tick_time ${TICK_TIME:-500ms}" \
		"map $T/$name/s s/%r" "$@" >"$T/$name/zkflock.conf"
	[ -z "$REFUSE" ] || keeper_start "$name"
}

# keeper_start HOST - start its keeper, if it has none, by a program whose kernel locks
keeper_start() { REFUSE='' try "$1" keeper.start >/dev/null; }

# REFUSE=ERRNO: the kernel of the programs on all hosts, not that of the keepers, refuses to lock files: tests/probes/refuse.c.
# With it, most test files must pass as they do without.

# host_env HOST - sets HOST_ENV: the words before a command that make it run on HOST
host_env() {
	HOST_ENV=(env '--default-signal=INT,QUIT' -C "$T/$1/s")
	[ "$MODE" = native ] || HOST_ENV+=("LD_PRELOAD=$BUILD/libzkflock.so" "ZKFLOCK_CONF=$T/$1/zkflock.conf"
		"ZKFLOCK_RUNTIME_DIR=$T/$1/run" "ZKFLOCK_LOG=${ZKFLOCK_TEST_LOG:-error}")
	[ "$MODE" = native ] || [ -z "$REFUSE" ] || HOST_ENV+=("$PROBES/refuse" "$REFUSE")
}

# within SECONDS HOST CMD... - run a command on a host; status 124 when it has not ended in time
within() {
	local seconds=$(($1 * PATIENCE)) HOST_ENV
	host_env "$2"
	shift 2
	timeout -k 1 "$seconds" "${HOST_ENV[@]}" "$@"
}

on() { within 30 "$@"; }

# spawn HOST CMD... - start a command on a host in the background: $spawned is its pid, $spawned_out its output
spawn() {
	local HOST_ENV
	host_env "$1"
	shift
	spawned_out=$T/out.$BASHPID.$((++spawned_count))
	"${HOST_ENV[@]}" "$@" </dev/null >"$spawned_out" 2>"$spawned_out.err" &
	spawned=$!
}

# gate NAME - make $T/NAME, at which a job can wait by `read _ <NAME`; open_gate NAME lets one such job go on
gate() { rm -f "$T/$1" && mkfifo "$T/$1"; }
open_gate() { timeout 10 sh -c 'echo >"$1"' sh "$T/$1"; }

# script HOST FILE - write a script from standard input, mode 0555, into s
script() {
	rm -f "$T/$1/s/$2"
	cat >"$T/$1/s/$2"
	chmod 0555 "$T/$1/s/$2"
}

# keeper_pid HOST - pid of a host's keeper, nothing when it has none.  A keeper that was killed leaves its pid behind, which
# may be another process's by now.
keeper_pid() {
	local pid
	pid=$(cat "$T/$1/run/pid" 2>/dev/null) && [ "$pid" ] && ! gone "$pid" &&
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = zkflockd ] &&
		grep -qzxF "ZKFLOCK_RUNTIME_DIR=$T/$1/run" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
}

# keeper_stop HOST [SIGNAL] - end the host's keeper; 1 when it had none or would not go
keeper_stop() {
	local pid
	pid=$(keeper_pid "$1") || return 1
	kill "-${2:-TERM}" "$pid"
	wait_until 5 gone "$pid" && return 0
	echo "the keeper of $1 (pid $pid) did not end"
	kill -KILL "$pid"
	return 1
}

# ---- one lock --------------------------------------------------------------------------------------------------------

# hold HOST FILE [lock options] - take a lock and keep it: $holder is the pid; 1 when it was not granted within 20 s
hold() {
	local host=$1 file=$2
	shift 2
	spawn "$host" "$PROBES/lock" -w -h "$@" "$file"
	holder=$spawned
	wait_until 20 contains "$spawned_out" granted && return 0
	echo "hold $host $file $*: '$(cat "$spawned_out" "$spawned_out.err")'"
	return 1
}

# try HOST FILE [lock options] - one non-blocking try: prints granted, busy, an errno's name, or timeout
try() {
	local host=$1 file=$2
	shift 2
	within 10 "$host" "$PROBES/lock" "$@" "$file"
	[ $? -ne 124 ] || echo timeout
}

# wait_for HOST FILE SECONDS [lock options] - a blocking request: prints granted, an errno's name, or timeout
wait_for() {
	local host=$1 file=$2 seconds=$3
	shift 3
	within "$seconds" "$host" "$PROBES/lock" -w "$@" "$file"
	[ $? -ne 124 ] || echo timeout
}

# counter_of STATEFILE - what the processes of tests/probes/contend.c have counted together
counter_of() { od -An -td8 -N8 "$1" | tr -d ' '; }

# becomes ANSWER SECONDS HOST FILE [lock options] - does a try give ANSWER within SECONDS?
becomes() {
	local answer=$1 seconds=$2
	shift 2
	wait_until "$seconds" tried_is "$answer" "$@"
}
tried_is() {
	local answer=$1
	shift
	[ "$(try "$@")" = "$answer" ]
}

# ---- a conversation with a program: tests/probes/actor.c -------------------------------------------------------------

# new_channel NAME - an empty fifo and answer file
new_channel() {
	[ ! -e "$T/actors/$1.in" ] || rm -f "$T/actors/$1".*
	mkfifo "$T/actors/$1.in"
	: >"$T/actors/$1.out"
	ANSWERS_READ[$1]=0
}

# actor NAME HOST [PROBE] - start one
actor() {
	new_channel "$1"
	spawn "$2" "$PROBES/${3:-actor}" "$T/actors/$1.in" "$T/actors/$1.out"
	actor_pid=$spawned
	ACTORS[$1]=$spawned
	expect_answer "$1" ready 10 "start of $1"
}

# actor_of NAME - its pid
actor_of() { echo "${ACTORS[$1]}"; }

# forked NAME PARENT - the actor PARENT forks, the child becomes NAME
forked() {
	new_channel "$1"
	expect "$2" "fork $T/actors/$1.in $T/actors/$1.out" ok
	expect_answer "$1" ready 10 "start of $1"
}

# tell NAME COMMAND - without waiting for the answer
tell() { printf '%s\n' "$2" 1<>"$T/actors/$1.in"; }

# answer NAME SECONDS - the next answer goes to $ANSWER; 1 when there is none in time
answer() {
	local line=$((ANSWERS_READ[$1] + 1))
	wait_until "$2" has_line "$1" "$line" || {
		ANSWER='no answer'
		return 1
	}
	ANSWER=${ANSWER_LINES[line - 1]}
	ANSWERS_READ[$1]=$line
}
has_line() {
	mapfile -t ANSWER_LINES <"$T/actors/$1.out"
	[ ${#ANSWER_LINES[@]} -ge "$2" ]
}

# expect NAME COMMAND ANSWER [SECONDS] - tell, and assert what it answers
expect() {
	tell "$1" "$2"
	expect_answer "$1" "$3" "${4:-10}" "$1: $2"
}

# expect_answer NAME ANSWER [SECONDS] [MESSAGE]
expect_answer() {
	answer "$1" "${3:-10}"
	assertEquals "${4:-$1}" "$2" "$ANSWER"
}

# pending NAME - assert that its last command still waits.  Time itself is the subject: it gets 0.3 s to be wrong.
pending() {
	sleep 0.3
	has_line "$1" $((ANSWERS_READ[$1] + 1))
	assertNotEquals "$1 should still wait" 0 $?
}

# ---- shunit2 ---------------------------------------------------------------------------------------------------------

cluster() { [ "$MODE" = cluster ]; }

# skip REASON - the rest of this test does not count; use as: skip 'no such tool' && return
skip() {
	skip_reason=$1
	startSkipping
}

oneTimeSetUp() {
	if cluster && ! { [ -e "$BUILD/libzkflock.so" ] && [ -x "$BUILD/zkflockd" ]; }; then
		echo "nothing to test: no libzkflock.so or zkflockd in $BUILD; run make"
		return 1
	fi
	zk_start || return 1
	host alpha
	host beta
}

setUp() {
	skip_reason=
	test_failed_before=$__shunit_assertsFailed
	asserts_before=$__shunit_assertsTotal
}

# tagged [-keepers] - pids of what this file's tests have started and what those have started.  A keeper that a program
# has started has a new environment; it is known by its runtime directory.
tagged() {
	local file pid comm
	for file in $(grep -lzE "^(ZKF_TAG=$T\$|ZKFLOCK_RUNTIME_DIR=$T/)" /proc/[0-9]*/environ 2>/dev/null); do
		pid=${file#/proc/}
		pid=${pid%/environ}
		{ read -r comm <"/proc/$pid/comm"; } 2>/dev/null || continue
		[ "$1" = -keepers ] && [ "$comm" = zkflockd ] && continue
		[ "$pid" = "$zk_pid" ] || echo "$pid"
	done
}

tearDown() {
	local pids verdict=pass
	pids=$(tagged -keepers)
	if [ "$pids" ]; then
		# shellcheck disable=SC2086 # a list
		kill -KILL $pids 2>/dev/null
		# A stopped process dies of KILL too.
		for pid in $pids; do
			wait_until 5 gone "$pid"
			wait "$pid" 2>/dev/null
		done
	fi
	rm -f "$T"/out.* "$T"/actors/*
	[ "$_shunit_test_" ] && [ "$ZKF_RESULTS" ] || return 0
	if [ "$__shunit_testSuccess" != 0 ]; then
		verdict=fail
	elif [ "$skip_reason" ]; then
		verdict=skip
	elif [ "$__shunit_assertsTotal" = "$asserts_before" ]; then
		verdict=fail
		skip_reason='it has asserted nothing'
	fi
	printf '%s\t%s\t%s\n' "$verdict" "$_shunit_test_" "$skip_reason" >>"$ZKF_RESULTS"
	if [ $verdict = fail ] && cluster; then
		for name in "${HOSTS[@]}"; do
			[ -s "$T/$name/run/log" ] && echo "-- end of $name's keeper log" && tail -n 15 "$T/$name/run/log"
		done
	fi
	_shunit_test_= # tearDown runs once more at exit
	return 0
}

nothing_tagged() { [ -z "$(tagged)" ]; }

# shellcheck disable=SC2120
oneTimeTearDown() {
	local name pids left=
	for name in "${HOSTS[@]}"; do
		[ -e "$T/$name/run/pid" ] && keeper_stop "$name"
	done
	wait_until 3 nothing_tagged
	pids=$(tagged)
	if [ "$pids" ]; then
		# shellcheck disable=SC2086 # a list
		left=$(ps -o pid=,args= -p "$(tr '\n' , <<<"$pids" | sed 's/,$//')")
		# shellcheck disable=SC2086
		kill -KILL $pids 2>/dev/null
	fi
	zk_stop
	if [ "$left" ]; then
		echo "left running: $left"
		[ "$ZKF_RESULTS" ] && printf 'fail\tnothing_is_left_running\t%s\n' "${left//$'\n'/; }" >>"$ZKF_RESULTS"
	fi
	if [ "$KEEP" ]; then echo "kept: $T"; else rm -rf "$T"; fi
	HOSTS=()
	return 0
}

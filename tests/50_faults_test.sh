#!/bin/bash
# tests/50_faults_test.sh - what is not there, what is broken, and who means ill: a documented answer, never a silent success
# modes: cluster
# limit: 300
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

oneTimeSetUp() {
	zk_start || return 1
	host alpha 'connect_timeout 1s'
	host beta 'connect_timeout 1s'
}

# refused MESSAGE PATTERN HOST CMD... - assert that a probe prints ENOLCK, and one line that says why
refused() {
	local message=$1 pattern=$2 out
	shift 2
	out=$(within 10 "$@" 2>"$T/out.err")
	assertEquals "$message: answer" ENOLCK "$out"
	assertEquals "$message: one line: $(cat "$T/out.err")" 1 "$(wc -l <"$T/out.err")"
	assertTrue "$message: says $pattern: $(cat "$T/out.err")" "grep -qE '^zkflock: error .*$pattern' '$T/out.err'"
}

# keepers_in HOST - pids of all keepers that use the host's runtime directory; a guard, which is a keeper's parent, is none
keepers_in() {
	local file pid pids=() parents=' '
	for file in $(grep -lzxF "ZKFLOCK_RUNTIME_DIR=$T/$1/run" /proc/[0-9]*/environ 2>/dev/null); do
		file=${file%/environ}
		[ "$(cat "$file/comm" 2>/dev/null)" = zkflockd ] || continue
		pids+=("${file#/proc/}")
		parents+="$(ps -o ppid= -p "${file#/proc/}") "
	done
	for pid in "${pids[@]}"; do
		case $parents in *" $pid "*) ;; *) echo "$pid" ;; esac
	done
}

# ---- the keeper ------------------------------------------------------------------------------------------------------

test_a_keeper_is_started_on_demand() {
	local pid
	host demand
	assertEquals 'none before' '' "$(keeper_pid demand)"
	assertEquals granted "$(try demand job.lock 2>"$T/out.err")"
	assertEquals 'nothing printed' '' "$(cat "$T/out.err")"
	pid=$(keeper_pid demand)
	assertNotNull 'one after' "$pid"
	assertEquals zkflockd "$(cat "/proc/$pid/comm")"
	assertEquals 'it is not preloaded' '' "$(tr '\0' '\n' <"/proc/$pid/environ" | grep LD_PRELOAD)"
	assertNotEquals 'not in our session' "$(ps -o sid= -p $$ | tr -d ' ')" "$(ps -o sid= -p "$pid" | tr -d ' ')"
	assertEquals granted "$(try demand job.lock)"
	assertEquals 'the same keeper' "$pid" "$(keeper_pid demand)"
}

# The program that starts the keeper has no child to wait for, no SIGCHLD, and no descriptor that it did not open.
test_the_starter_notices_nothing() {
	host unnoticed
	assertEquals 'no child, 0 signals, 4' "$(on unnoticed "$PYTHON" -c '
import fcntl, os, signal
count = 0
def on_child(*unused):
    global count
    count += 1
signal.signal(signal.SIGCHLD, on_child)
f = open("job.lock", "w"); fcntl.flock(f, fcntl.LOCK_EX)
try:
    os.wait(); child = "a child"
except ChildProcessError:
    child = "no child"
g = os.open("job.lock", os.O_RDONLY)
print(f"{child}, {count} signals, {g}")')"
	assertNotNull "$(keeper_pid unnoticed)"
}

# Programs that all want the first lock of a host at once: two starters must not make two keepers, which would fight for
# one runtime directory.
test_many_starters_make_one_keeper() {
	local i outs=()
	host race
	for i in $(seq 12); do
		spawn race "$PROBES/lock" -w race.lock
		outs+=("$spawned_out")
	done
	for i in "${outs[@]}"; do
		assertTrue "granted: $(cat "$i.err")" "wait_until 20 contains '$i' granted"
	done
	wait_until 5 one_keeper_in race
	assertEquals 'keepers' "$(keeper_pid race)" "$(keepers_in race)"
}
one_keeper_in() { [ "$(keepers_in "$1" | wc -l)" = 1 ]; }

test_a_keeper_in_the_foreground() {
	local pid
	host front
	: >"$T/front.ready"
	env "ZKFLOCK_CONF=$T/front/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/front/run" "$BUILD/zkflockd" --ready-fd=9 \
		9>"$T/front.ready" 2>"$T/out.front" </dev/null &
	pid=$!
	assertTrue "ready: $(cat "$T/out.front")" 'wait_until 15 [ -s "$T/front.ready" ]'
	assertEquals 'a newline' '' "$(cat "$T/front.ready")"
	assertTrue 'its pid, or its child, which it guards' \
		"[ $pid = $(keeper_pid front) -o $pid = $(ps -o ppid= -p "$(keeper_pid front)") ]"
	assertEquals 'it serves' granted "$(try front job.lock)"
	assertEquals 'the only one' "$(keeper_pid front)" "$(keepers_in front)"
	kill -TERM "$pid"
	assertTrue 'SIGTERM' "wait_until 5 gone $pid"
	wait "$pid"
	assertEquals 'status' 0 $?
	assertEquals 'the next lock starts another' granted "$(try front job.lock)"
	assertNotEquals "$pid" "$(keeper_pid front)"
}

test_two_keepers_in_one_directory() {
	local first
	host twice
	assertEquals granted "$(try twice job.lock)"
	first=$(keeper_pid twice)
	timeout 10 env "ZKFLOCK_CONF=$T/twice/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/twice/run" "$BUILD/zkflockd" 2>"$T/out.err" </dev/null
	assertTrue "the second ends by itself, status $?" "[ $? -ne 0 -a $? -ne 124 ]"
	assertTrue 'and says why' "[ -s '$T/out.err' ]"
	assertEquals 'the first stays' "$first" "$(keeper_pid twice)"
	assertEquals granted "$(try twice job.lock)"
}

# The keeper dies under a waiter.  The waiter asks the next one, and is granted in the end.
#
#     alpha  holds .................................. releases
#     beta   waits   keeper killed   asks anew           granted, once the dead keeper's session is over
test_a_waiter_lives_through_its_keepers_death() {
	local pid
	host mortal 'connect_timeout 1s'
	hold alpha death.lock || { fail 'alpha got no lock'; return; }
	spawn mortal "$PROBES/lock" -w -h death.lock
	wait_until 10 claims_are locks death.lock 2
	pid=$(keeper_pid mortal)
	kill -KILL "$pid"
	wait_until 5 gone "$pid"
	assertTrue 'it still waits' "never 2 contains '$spawned_out' granted"
	end "$holder"
	assertTrue "granted: $(cat "$spawned_out" "$spawned_out.err")" "wait_until 20 contains '$spawned_out' granted"
	assertEquals 'and held' busy "$(try alpha death.lock)"
}

# ---- ZooKeeper -------------------------------------------------------------------------------------------------------

# case C15: with the server gone, non-blocking calls are answered within the bound, all at once; blocking ones wait and can
# be ended; files that are not mapped do not notice
test_without_a_server() {
	local before took waiter i pids=() outs=()
	assertEquals 'alpha knows the server' granted "$(try alpha before.lock)"
	zk_stop
	before=$(now_ms)
	for i in $(seq 30); do
		spawn alpha "$PROBES/lock" down.lock
		pids+=("$spawned") outs+=("$spawned_out")
	done
	for i in "${pids[@]}"; do wait_until 10 gone "$i"; done
	took=$(($(now_ms) - before))
	assertEquals '30 times' '30 ENOLCK' "$(cat "${outs[@]}" | sort | uniq -c | sed 's/^ *//')"
	assertTrue "30 answers after $took ms" "[ $took -lt $((6000 * PATIENCE)) ]"
	refused 'flock' ZooKeeper alpha "$PROBES/lock" down2.lock
	refused 'fcntl' ZooKeeper alpha "$PROBES/lock" -k posix down2.lock
	before=$(now_ms)
	on alpha flock -w 2 down.lock true
	assertEquals 'flock -w 2' 1 $?
	took=$(($(now_ms) - before))
	assertTrue "flock -w 2 took $took ms" "[ $took -ge 1900 -a $took -lt $((4000 * PATIENCE)) ]"
	spawn alpha flock down.lock true
	waiter=$spawned
	assertTrue 'a blocking call waits' "never 1 gone $waiter"
	kill -INT "$waiter"
	assertTrue 'Ctrl-C' "wait_until 1 gone $waiter"
	assertEquals 'not mapped' granted "$(within 2 alpha "$PROBES/lock" "$T/unmapped.lock")"
	spawn alpha "$PROBES/lock" -w -h down.lock
	assertTrue 'the waiter' "never 1 contains '$spawned_out' granted"
	zk_start || return
	assertTrue 'granted when the server is back' "wait_until 30 contains '$spawned_out' granted"
	assertEquals 'and held' busy "$(try beta down.lock)"
}

# A host whose keeper has never seen a server: what the rule says happens, and an error is on record.
test_unavailable_says_what_happens() {
	local port=$ZK_PORT before took
	ZK_PORT=1
	host nowhere 'connect_timeout 1s' "map $T/nowhere/s/fail fail/%r unavailable=fail" \
		"map $T/nowhere/s/local local/%r unavailable=local"
	ZK_PORT=$port
	mkdir "$T/nowhere/s/fail" "$T/nowhere/s/local"
	refused 'wait, non-blocking' 'ZooKeeper' nowhere "$PROBES/lock" w.lock
	assertEquals 'wait, blocking' timeout "$(wait_for nowhere w.lock 3 2>/dev/null)"
	before=$(now_ms)
	refused 'fail, blocking' 'ZooKeeper' nowhere "$PROBES/lock" -w fail/f.lock
	took=$(($(now_ms) - before))
	assertTrue "fail took $took ms" "[ $took -lt $((4000 * PATIENCE)) ]"
	refused 'fail, non-blocking' 'ZooKeeper' nowhere "$PROBES/lock" fail/f.lock
	hold nowhere local/l.lock || fail 'local: not granted'
	assertTrue "local: an error in a log" "grep -h error '$spawned_out.err' '$T/nowhere/run/log' | grep -q local"
	assertEquals 'local: excludes on this host' busy "$(try nowhere local/l.lock 2>/dev/null)"
}

# case C12: one connection for a host, however many programs it runs
test_one_connection_for_a_host() {
	local i pids=() most=0 now name
	for name in "${HOSTS[@]}"; do [ "$(keeper_pid "$name")" ] && keeper_stop "$name"; done
	zk_stop
	zk_start maxClientCnxns=5 || return
	host crowd
	for i in $(seq 0 99); do
		spawn crowd flock "n.$((i % 20)).lock" sleep 0.1
		pids+=("$spawned")
	done
	while ! gone "${pids[99]}"; do
		now=$(zk_mntr zk_num_alive_connections)
		[ "${now:-0}" -le "$most" ] || most=$now
		wait_until 1 gone "${pids[99]}"
	done
	for i in "${pids[@]}"; do
		wait_until 30 gone "$i"
		wait "$i" || fail "pid $i: status $?"
	done
	# The one that asks is counted too.
	assertTrue "connections: $most" "[ $most -ge 1 -a $most -le 3 ]"
	zk_stop
	zk_start
}

# case C25: a holder that says nothing for several session timeouts, on a host that is busy, keeps its lock
test_a_quiet_holder_keeps_its_lock() {
	local until i quiet
	SESSION_TIMEOUT=4s host quiet
	spawn quiet flock -F long.lock sleep 60
	quiet=$spawned
	assertTrue 'held' 'becomes busy 5 beta long.lock'
	for i in $(seq $(($(nproc) * 2))); do spawn quiet "$PYTHON" -c 'while True: pass'; done
	until=$((SECONDS + 8))
	i=0
	while [ $SECONDS -lt $until ]; do
		assertEquals "probe $((++i))" busy "$(try beta long.lock)"
		sleep 1 # the time between two probes is the subject
	done
	kill -KILL "$quiet"
	assertTrue 'free' 'becomes granted 2 beta long.lock'
}

# ---- configuration and runtime directory -----------------------------------------------------------------------------

test_a_broken_configuration() {
	local line
	host broken 'map relative/path x/%r'
	line=$(wc -l <"$T/broken/zkflock.conf")
	refused 'bad line' "zkflock.conf:$line: " broken "$PROBES/lock" job.lock
	refused 'bad line, blocking' "zkflock.conf:$line: " broken "$PROBES/lock" -w -k posix job.lock
	assertEquals 'a path that no line can mean' granted "$(within 5 broken "$PROBES/lock" "$T/unmapped.lock")"
	timeout 10 env "ZKFLOCK_CONF=$T/broken/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/broken/run" "$BUILD/zkflockd" \
		2>"$T/out.err" </dev/null
	assertTrue "the keeper does not start: $?" "[ $? -ne 0 -a $? -ne 124 ]"
	assertTrue "and says where: $(cat "$T/out.err")" "grep -q 'zkflock.conf:$line: ' '$T/out.err'"
	# Mended: the next lock works.
	sed -i '$d' "$T/broken/zkflock.conf"
	assertEquals 'mended' granted "$(try broken job.lock)"
}

test_a_missing_configuration() {
	refused 'missing' 'zkflock.conf: cannot be read' alpha env ZKFLOCK_CONF=/nonexistent/zkflock.conf "$PROBES/lock" job.lock
}

# A keeper that is told to read a broken file keeps its old rules and says so.
test_a_broken_reload() {
	local pid
	host reload
	assertEquals granted "$(try reload job.lock)"
	pid=$(keeper_pid reload)
	cp "$T/reload/zkflock.conf" "$T/reload.conf"
	echo 'no_such_setting 1' >>"$T/reload/zkflock.conf"
	kill -HUP "$pid"
	assertTrue 'log' 'wait_until 5 grep -q "zkflock.conf:[0-9]*: " "$T/reload/run/log"'
	assertEquals 'it lives' "$pid" "$(keeper_pid reload)"
	cp "$T/reload.conf" "$T/reload/zkflock.conf"
	kill -HUP "$pid"
	assertEquals granted "$(try reload job.lock)"
	assertEquals 'it lives' "$pid" "$(keeper_pid reload)"
}

test_a_runtime_directory_that_can_not_be_used() {
	: >"$T/in-the-way"
	mkdir -m 777 "$T/open-to-all"
	chmod 777 "$T/open-to-all"
	refused 'a file in the way' '' alpha env "ZKFLOCK_RUNTIME_DIR=$T/in-the-way" "$PROBES/lock" job.lock
	refused 'below a file' '' alpha env "ZKFLOCK_RUNTIME_DIR=$T/in-the-way/run" "$PROBES/lock" job.lock
	refused 'read-only' '' alpha env ZKFLOCK_RUNTIME_DIR=/proc/zkflock "$PROBES/lock" job.lock
	refused 'open to all' 'open-to-all' alpha env "ZKFLOCK_RUNTIME_DIR=$T/open-to-all" "$PROBES/lock" job.lock
	refused 'relative' 'ZKFLOCK_RUNTIME_DIR' alpha env ZKFLOCK_RUNTIME_DIR=run "$PROBES/lock" job.lock
	refused 'too long' 'ZKFLOCK_RUNTIME_DIR' alpha env "ZKFLOCK_RUNTIME_DIR=/$(printf 'x%.0s' $(seq 120))" "$PROBES/lock" job.lock
	refused 'blocking' '' alpha env ZKFLOCK_RUNTIME_DIR=/proc/zkflock "$PROBES/lock" -w -k posix job.lock
	assertEquals 'not mapped' granted \
		"$(within 5 alpha env ZKFLOCK_RUNTIME_DIR=/proc/zkflock "$PROBES/lock" "$T/unmapped.lock")"
}

# ---- bad clients -----------------------------------------------------------------------------------------------------

# hostile WHAT... - let tests/probes/hostile.c loose on alpha's keeper: it must live, serve, and leak no descriptor
hostile() {
	local pid before status
	assertEquals "before $1" granted "$(try alpha hostile-other.lock)"
	pid=$(keeper_pid alpha)
	before=$(descriptors_of "$pid")
	assertEquals "$1" 'done' "$(timeout 60 "$PROBES/hostile" "$T/alpha/run/socket" "$T/alpha/s/hostile.lock" "$@" 2>&1)"
	assertEquals "the keeper lives through $1" "$pid" "$(keeper_pid alpha)"
	assertEquals "after $1, alpha" granted "$(try alpha hostile.lock)"
	assertEquals "after $1, beta" granted "$(wait_for beta hostile.lock 5)"
	wait_until 5 few_descriptors "$pid" $((before + 5))
	status=$?
	assertEquals "descriptors: $before before, $(descriptors_of "$pid") after" 0 $status
}
descriptors_of() { find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l; }
few_descriptors() { [ "$(descriptors_of "$1")" -le "$2" ]; }

test_garbage_on_the_socket() { hostile garbage; }
test_short_messages() { hostile short; }
test_oversized_messages() { hostile oversized; }
test_odd_fields() { hostile fields; }
test_messages_out_of_order() { hostile order; }
test_wrong_descriptors() { hostile descriptors; }

test_thousands_of_silent_connections() {
	local pid
	assertEquals granted "$(try alpha silent.lock)"
	pid=$(keeper_pid alpha)
	timeout 60 "$PROBES/hostile" "$T/alpha/run/socket" "$T/alpha/s/silent.lock" silent 2500 >"$T/out.silent" 2>&1 &
	holder=$!
	wait_until 20 grep -q . "$T/out.silent"
	assertEquals 'connected 2500' "$(cat "$T/out.silent")"
	assertEquals 'a lock beside them' granted "$(try alpha silent2.lock)"
	assertEquals 'a waiter beside them' granted "$(wait_for beta silent2.lock 5)"
	assertEquals 'the keeper lives' "$pid" "$(keeper_pid alpha)"
	end "$holder"
	assertEquals 'after them' granted "$(try alpha silent.lock)"
}

. shunit2

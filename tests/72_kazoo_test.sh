#!/bin/bash
# tests/72_kazoo_test.sh - kazoo's Lock, ReadLock and WriteLock on the path of a flock lock, and an unmodified program on a host
# modes: cluster
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
SESSION_TIMEOUT=12s # nobody's session may end by itself on a busy machine
. "$(dirname "$0")/lib.sh"

# One Python for all tests, since it takes a second to start: a line of standard input is a command, a line of standard
# output its answer.  Each client NAME has a session of its own.
kazoo_clients() {
	cat >"$T/clients.py" <<-'END'
		import os, signal, sys
		from kazoo.client import KazooClient
		from kazoo.exceptions import LockTimeout
		servers, root = sys.argv[1:]
		clients, locks, threads = {}, {}, {}
		def client(name):
		    if name not in clients:
		        clients[name] = KazooClient(servers, timeout=10); clients[name].start(15)
		    return clients[name]
		def make(name, kind, file):
		    queue = file.rpartition("/")[0] or "locks"
		    return getattr(client(name), kind)(f"{root}/{queue}/s%2F{os.path.basename(file)}", name)
		def take(lock, **how):
		    try: return "granted" if lock.acquire(**how) else "busy"
		    except LockTimeout: return "timeout"
		for line in sys.stdin:
		    verb, name, *rest = line.split()
		    if verb == "try":       # NAME KIND [records/]FILE: without waiting
		        locks[name] = make(name, *rest); answer = take(locks[name], blocking=False)
		    elif verb == "wait":    # NAME KIND FILE: up to 20 s
		        locks[name] = make(name, *rest); answer = take(locks[name], timeout=20)
		    elif verb == "release":
		        locks[name].release(); answer = "released"
		    elif verb == "stop":    # ends its session, as a client does that ends
		        clients.pop(name).stop(); answer = "stopped"
		    print(answer, flush=True)
	END
	mkfifo "$T/kazoo.in"
	: >"$T/kazoo.out"
	# It is no test's, to be swept up with what that leaves: it ends with this shell, which alone has its input open.
	env -u ZKF_TAG "$PYTHON" "$T/clients.py" "127.0.0.1:$ZK_PORT" /zkflock <"$T/kazoo.in" >"$T/kazoo.out" 2>"$T/kazoo.log" &
	kazoo_pid=$!
	exec {kazoo_in}>"$T/kazoo.in"
	trap "" PIPE # a client that is gone does not answer, and that is a failure, not an end
}

# needs_kazoo - use as: needs_kazoo || return
needs_kazoo() {
	[ "$kazoo_pid" ] && return 0
	if "$PYTHON" -c 'import kazoo' 2>/dev/null; then
		kazoo_clients
		return 0
	fi
	skip 'no python3-kazoo'
	return 1
}

# kazoo VERB NAME [KIND FILE] - its answer, in $ANSWER
kazoo_told=0
kazoo_tell() {
	echo "$*" >&"$kazoo_in"
	((++kazoo_told))
}
kazoo_answered() { [ "$(wc -l <"$T/kazoo.out")" -ge "$kazoo_told" ]; }
kazoo_answer() {
	ANSWER='no answer'
	wait_until 20 kazoo_answered && ANSWER=$(tail -n 1 "$T/kazoo.out")
}
kazoo() {
	kazoo_tell "$@"
	kazoo_answer
}
kazoo_says() {
	local expected=$1
	shift
	kazoo "$@"
	assertEquals "kazoo $*" "$expected" "$ANSWER"
}

test_a_program_excludes_kazoo_and_kazoo_a_program() {
	local kind
	needs_kazoo || return
	for kind in Lock WriteLock; do
		hold alpha job.lock || return
		kazoo_says busy try "one-$kind" $kind job.lock
		kill -KILL "$holder"
		kazoo_says granted wait "one-$kind" $kind job.lock
		assertEquals "$kind: not for a program" busy "$(try alpha job.lock)"
		assertEquals "$kind: nor for a reader" busy "$(try beta job.lock -m sh)"
		kazoo_says released release "one-$kind"
		assertEquals "$kind: after its release" granted "$(wait_for alpha job.lock 10)"
	done
}

# A host keeps its permission after the last unlock; kazoo, that waits, gets it.  Its attempt without waiting can't be told
# from outside that nobody uses the lock: that is the one thing in which kazoo differs.
test_what_a_host_merely_keeps_kazoo_gets() {
	needs_kazoo || return
	assertEquals granted "$(try alpha kept.lock)"
	kazoo_says granted wait keeper Lock kept.lock
	kazoo_says released release keeper
}

test_who_waits_is_let_in() {
	needs_kazoo || return
	hold alpha queue.lock || return
	kazoo_tell wait queued WriteLock queue.lock
	wait_until 10 claims_are locks queue.lock 2
	assertTrue 'kazoo waits' "never 1 kazoo_answered"
	kill -KILL "$holder"
	kazoo_answer
	assertEquals 'kazoo is let in' granted "$ANSWER"
	spawn beta "$PROBES/lock" -w -h queue.lock
	wait_until 10 claims_are locks queue.lock 2
	assertEquals 'the program waits' '' "$(cat "$spawned_out")"
	kazoo_says released release queued
	assertTrue 'the program is let in' "wait_until 10 contains '$spawned_out' granted"
	kill -KILL "$spawned"
}

test_readers_share() {
	needs_kazoo || return
	hold alpha read.lock -m sh || return
	kazoo_says granted wait reader ReadLock read.lock
	assertEquals 'another reading program' granted "$(try beta read.lock -m sh)"
	assertEquals 'no writing program' busy "$(try beta read.lock)"
	kill -KILL "$holder"
	assertEquals 'no writer while kazoo reads' busy "$(try alpha read.lock)"
	kazoo_says busy try writer WriteLock read.lock
	kazoo_says released release reader
	assertEquals 'then it may' granted "$(wait_for alpha read.lock 10)"
}

# A client that ends without a release, and one that dies and is missed after its session's time.
test_a_client_that_ends_releases() {
	needs_kazoo || return
	kazoo_says granted wait mortal Lock mortal.lock
	assertEquals busy "$(try alpha mortal.lock)"
	kazoo_says stopped stop mortal
	assertEquals 'after its end' granted "$(wait_for alpha mortal.lock 10)"
}

test_records_of_the_whole_file() {
	local holder
	needs_kazoo || return
	hold alpha r.dat -k posix -r 5,1 || return
	kazoo_says busy try record WriteLock records/r.dat
	kill -KILL "$holder"
	kazoo_says granted wait record WriteLock records/r.dat
	assertEquals 'not a byte of it' busy "$(try alpha r.dat -k posix -r 100,1)"
	assertEquals 'nor to read' busy "$(try beta r.dat -k posix -m sh -r 7,1)"
	assertEquals 'flock is another lock' granted "$(try alpha r.dat)"
	kazoo_says released release record
	assertEquals 'after its release' granted "$(wait_for beta r.dat 10 -k posix -r 7,1)"
}

test_what_is_not_kept_kazoo_gets_at_once() {
	needs_kazoo || return
	assertEquals granted "$(try unkept free.lock)"
	wait_until 10 claims_are locks free.lock 0
	kazoo_says granted try at-once WriteLock free.lock
	assertEquals busy "$(try unkept free.lock)"
	kazoo_says released release at-once
}

# named HOST ARGUMENT... - zkflock lock there
named() {
	local host=$1
	shift
	ZKFLOCK_CONF=$T/$host/zkflock.conf ZKFLOCK_RUNTIME_DIR=$T/$host/run timeout 20 "$BUILD/zkflock" lock "$@"
}

# A script that has no file, and kazoo.
test_a_name_that_a_script_locks() {
	local kind
	needs_kazoo || return
	for kind in Lock ReadLock; do
		kazoo_says granted wait "script-$kind" $kind script.lock
		named alpha -n s/script.lock true
		assertEquals "$kind has it" 1 $?
		kazoo_says released release "script-$kind"
		named beta -w 10 s/script.lock true
		assertEquals "$kind: after its release" 0 $?
	done
	gate script
	named alpha -s s/script.lock sh -c 'echo in; read _ <"$0"' "$T/script" >"$T/script.out" &
	wait_until 10 contains "$T/script.out" in
	kazoo_says busy try script-writer WriteLock script.lock
	kazoo_says granted wait script-reader ReadLock script.lock
	open_gate script
	wait $!
	assertEquals 0 $?
	kazoo_says released release script-reader
}

# Last: it ends the Python.
test_z_a_client_that_is_killed_releases() {
	needs_kazoo || return
	kazoo_says granted wait killed Lock killed.lock
	assertEquals busy "$(try alpha killed.lock)"
	kill -KILL "$kazoo_pid"
	wait "$kazoo_pid" 2>/dev/null
	assertEquals 'after its session' granted "$(wait_for alpha killed.lock 15)"
	kazoo_pid=
}

oneTimeSetUp() {
	zk_start || return 1
	host alpha
	host beta
	host unkept 'keep 0'
}

. shunit2

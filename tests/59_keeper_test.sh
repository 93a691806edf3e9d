#!/bin/bash
# tests/59_keeper_test.sh - keepers that stand still, machines whose clocks jump, and what keepers say of long waits
# modes: cluster
# limit: 180
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
ZKFLOCK_TEST_LOG=info
SESSION_TIMEOUT=12s # nobody's session may end by itself on a busy machine
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_loss.sh"

# A keeper that is stopped can't stop anybody when the lease runs out: the guard puts another one into its place.
test_a_stopped_keeper_is_replaced() {
	local pid
	ticker alpha replaced.lock "$T/ticks"
	pid=$(keeper_pid alpha)
	kill -STOP "$pid"
	assertTrue 'another keeper' "wait_until 10 keeper_is_not alpha $pid"
	assertEquals 'held' busy "$(try beta replaced.lock)"
	assertTrue 'the job goes on' "started '$T/ticks'"
	assertEquals 'one keeper' "$(keeper_pid alpha)" "$(pgrep -P "$(ps -o ppid= -p "$(keeper_pid alpha)" | tr -d ' ')")"
	end "$(pgrep -P "$ticker")"
	assertEquals 'free for beta' granted "$(wait_for beta replaced.lock 5)"
}

# A keeper dies, and the next one before it has a lease of its own: the third one knows how long the first one's holds, and
# stops nobody before.
test_a_lease_is_handed_on() {
	local i pid
	SESSION_TIMEOUT=30s host heirs
	hold heirs heirs.lock || return
	kill -STOP "$zk_pid"
	for i in 2 3 4; do
		pid=$(keeper_pid heirs)
		kill -KILL "$pid"
		assertTrue "keeper $i" "wait_until 5 lines '$T/heirs/run/log' 'keeper started' $i"
	done
	assertFalse 'the holder was left alone' 'logged heirs action=SIGSTOP'
	kill -CONT "$zk_pid"
	assertTrue 'resumed' 'wait_until 20 logged heirs "session resumed"'
	assertEquals 'held' busy "$(try beta heirs.lock)"
	assertFalse 'nobody was stopped' 'logged heirs action=SIGSTOP'
	kill -KILL "$holder"
	assertEquals 'free for beta' granted "$(wait_for beta heirs.lock 5)"
}

# One that is stopped and goes on before the guard has lost patience stays.
test_a_keeper_that_is_stopped_for_a_moment_stays() {
	local pid
	assertEquals granted "$(try alpha moment.lock)"
	pid=$(keeper_pid alpha)
	kill -STOP "$pid"
	wait_until 5 is_stopped "$pid"
	kill -CONT "$pid"
	assertTrue 'it stays' "never 1 keeper_is_not alpha $pid"
	assertEquals granted "$(try alpha moment.lock)"
}
is_stopped() { [ "$(state_of "$1")" = T ]; }

# Keeper and guard are stopped together.  Nobody is left to stop the holder; but nothing trusts the lease any more: the
# lock that the host kept, and would grant without asking, is not granted.  When they go on they find out.
test_keeper_and_guard_stopped() {
	local pid guard
	SESSION_TIMEOUT=5s host still 'connect_timeout 1s'
	ticker still still.lock "$T/ticks"
	assertEquals 'kept' granted "$(try still kept.lock)"
	assertEquals 'without asking' 'granted' "$(try still kept.lock)"
	pid=$(keeper_pid still)
	guard=$(ps -o ppid= -p "$pid" | tr -d ' ')
	kill -STOP "$guard" "$pid"
	assertEquals 'beta, when the session has ended' granted "$(wait_for beta still.lock 20)"
	assertEquals 'not without asking' ENOLCK "$(try still kept.lock 2>/dev/null)"
	assertEquals 'beta has it' granted "$(wait_for beta kept.lock 5)"
	kill -CONT "$pid" "$guard"
	assertTrue 'the holder is dealt with' "wait_until 10 gone $ticker"
	assertTrue 'and its child' "standing '$T/ticks'"
	assertEquals 'a fresh session' granted "$(wait_for still kept.lock 10)"
	keeper_stop still
}

# Keeper and guard die, and what they have left is damaged: the session can't be found again.  Its holders are dealt with all the same.
test_keeper_and_guard_killed_and_the_session_forgotten() {
	local pid
	SESSION_TIMEOUT=5s host amnesic
	ticker amnesic forgotten.lock "$T/ticks"
	pid=$(keeper_pid amnesic)
	kill -KILL "$(ps -o ppid= -p "$pid" | tr -d ' ')" "$pid"
	wait_until 5 gone "$pid"
	: >"$T/amnesic/run/session"
	assertEquals 'another lock' granted "$(wait_for amnesic other.lock 20)"
	assertTrue 'the old holder is dead' "wait_until 5 gone $ticker"
	assertTrue 'and its child writes no more' "standing '$T/ticks'"
	assertEquals 'beta, when the session has ended' granted "$(wait_for beta forgotten.lock 20)"
}

# A keeper hangs, as in a system call on a dead file server, and so does every other one.  When the lease is over the guard
# stops the holder; the keeper that can work again lets it go on, or kills it, if the session has ended.
test_keepers_that_hang() {
	local files
	SESSION_TIMEOUT=5s host hung
	mkdir "$T/gates"
	env "ZKFLOCK_CONF=$T/hung/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/hung/run" "LD_PRELOAD=$PROBES/libgate.so" \
		"ZKF_GATES=$T/gates" "$BUILD/zkflockd" --on-demand </dev/null >/dev/null 2>&1 &
	wait_until 10 keeper_pid hung >/dev/null
	hold hung hung.lock || return
	assertEquals 'kept' granted "$(try hung dead.lock)"
	touch "$T/gates/hang"
	spawn beta "$PROBES/lock" -w dead.lock
	assertTrue 'the holder is stopped' "wait_until 15 is_stopped $holder"
	assertTrue 'by the guard' 'logged hung "guard lease-over"'
	files=$(grep -c 'guard keeper .*action=SIGKILL why="it hangs' "$T/hung/run/log")
	assertTrue "$files keepers were replaced" "[ $files -ge 1 ]"
	rm "$T/gates/hang"
	assertTrue 'it goes on, or is killed' "wait_until 15 not_stopped $holder"
	kill -KILL "$holder"
	assertEquals 'a lock' granted "$(wait_for hung other.lock 10)"
	keeper_stop hung
}
not_stopped() { ! is_stopped "$1"; }

# A keeper that is told to end while a lock is in use: if no other one follows, the holder is stopped in time.
test_the_end_of_a_keeper_with_a_lock_in_use() {
	local guard
	SESSION_TIMEOUT=5s host ended
	hold ended ended.lock || return
	guard=$(ps -o ppid= -p "$(keeper_pid ended)" | tr -d ' ')
	kill -TERM "$guard"
	assertTrue 'it ends' "wait_until 5 gone $guard"
	assertTrue 'the holder is stopped' "wait_until 10 is_stopped $holder"
	assertEquals 'beta, when the session has ended' granted "$(wait_for beta ended.lock 20)"
	assertEquals 'the next keeper' granted "$(wait_for ended other.lock 10)"
	assertTrue 'kills it' "wait_until 10 gone $holder"
	keeper_stop ended
}

# ... and if one follows, it is as if nothing had been.
test_the_end_of_a_keeper_and_another_one() {
	local guard
	SESSION_TIMEOUT=8s host restarted
	hold restarted restarted.lock || return
	guard=$(ps -o ppid= -p "$(keeper_pid restarted)" | tr -d ' ')
	kill -TERM "$guard"
	assertTrue 'it ends' "wait_until 5 gone $guard"
	assertEquals 'the next keeper' granted "$(wait_for restarted other.lock 10)"
	assertTrue 'the holder runs on' "never 8 is_stopped $holder"
	assertEquals 'held' busy "$(try beta restarted.lock)"
	assertFalse 'nobody stays' 'logged restarted "guard lease-over"'
	end "$holder"
	keeper_stop restarted
}

# keeper_begin HOST - one that nobody's lock call has started
keeper_begin() {
	ZKFLOCK_CONF=$T/$1/zkflock.conf ZKFLOCK_RUNTIME_DIR=$T/$1/run "$BUILD/zkflockd" --on-demand </dev/null >/dev/null 2>&1 &
	wait_until 10 keeper_pid "$1" >/dev/null
}
guard_of() { ps -o ppid= -p "$(keeper_pid "$1")" | tr -d ' '; }
guard_end() {
	local guard
	guard=$(guard_of "$1")
	kill -TERM "$guard"
	assertTrue 'it ends' "wait_until 5 gone $guard"
}

# ... and if the one that follows ends as well, before it has a lease of its own: the first one's still counts, no more, no less.
test_the_ends_of_two_keepers_while_no_server_answers() {
	SESSION_TIMEOUT=10s host brief
	hold brief brief.lock || return
	kill -STOP "$zk_pid"
	guard_end brief
	keeper_begin brief
	guard_end brief
	keeper_begin brief
	assertTrue 'a third one stops nobody before the time' "never 2 is_stopped $holder"
	guard_end brief
	assertTrue 'the holder is stopped' "wait_until 10 is_stopped $holder"
	kill -CONT "$zk_pid"
	kill -KILL "$holder"
	assertEquals 'the next keeper' granted "$(wait_for brief other.lock 20)"
	keeper_stop brief
}

# A keeper dies, and none can take its place.  Nobody is left who could tell the servers' word, but the lease has an end.  So
# it is where the kernel refuses to lock, and only what the keeper has noted tells who holds.
test_a_keeper_that_can_not_be_replaced() {
	cannot_be_replaced barred ''
	cannot_be_replaced barred-refused ENOLCK
}
cannot_be_replaced() {
	SESSION_TIMEOUT=5s host "$1"
	keeper_begin "$1"
	REFUSE=$2 hold "$1" barred.lock || return
	rm "$T/$1/run/socket"
	mkdir -p "$T/$1/run/socket/in-the-way"
	kill -KILL "$(keeper_pid "$1")"
	assertTrue "$1: the holder is stopped" "wait_until 10 is_stopped $holder"
	assertEquals "$1: beta, when the session has ended" granted "$(wait_for beta barred.lock 20)"
	rm -r "$T/$1/run/socket"
	assertEquals "$1: the next keeper" granted "$(wait_for "$1" other.lock 10)"
	assertTrue "$1: kills it" "wait_until 10 gone $holder"
	keeper_stop "$1"
}

# ---- clocks ----------------------------------------------------------------------------------------------------------

# clocked HOST - its keeper runs by clocks that the test sets: clocks REALTIME BOOTTIME, seconds away from the true ones
clocked() {
	clocks 0 0
	env "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" "LD_PRELOAD=$PROBES/libclock.so" \
		"ZKF_CLOCKS=$T/clocks" "$BUILD/zkflockd" --on-demand </dev/null >/dev/null 2>&1 &
	wait_until 10 keeper_pid "$1" >/dev/null
}
sanitized() { grep -qE '__[at]san_init' "$BUILD/zkflockd"; }
clocks() {
	"$PYTHON" -c 'import os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(fd, struct.pack("qq", *(int(x) * 10**9 for x in sys.argv[2:])), 0)' "$T/clocks" "$1" "$2"
}

# The wall clock is set by a day, both ways: nobody notices.
test_the_wall_clock_jumps() {
	local jump
	sanitized && skip "a sanitizer's clock is its own" && return
	host wall
	clocked wall
	ticker wall wall.lock "$T/ticks"
	for jump in 86400 -86400 0; do
		clocks $jump 0
		assertEquals "$jump s: held" busy "$(try beta wall.lock)"
		assertEquals "$jump s: a new lock" granted "$(try wall "wall$jump.lock")"
		assertEquals "$jump s: and again" granted "$(try wall "wall$jump.lock")"
		kill -HUP "$(keeper_pid wall)" # it says something
		assertTrue "$jump s: the keeper's clock has jumped" \
			"wait_until 5 day_is_logged $jump"
		assertTrue "$jump s: the job goes on" "started '$T/ticks'"
	done
	assertFalse 'no lease was over' 'logged wall lease-over'
	end "$(pgrep -P "$ticker")"
	keeper_stop wall
}

day_is_logged() { tail -n 1 "$T/wall/run/log" | grep -q "^$(date -u -d "$1 seconds" +%Y-%m-%d)"; }

# The machine sleeps for longer than the lease: CLOCK_BOOTTIME has jumped when it wakes up.  The job stands still until the
# servers have said that the session is alive (here they did not sleep with it, and it is).
test_a_machine_that_has_slept() {
	sanitized && skip "a sanitizer's clock is its own" && return
	host sleepy
	clocked sleepy
	ticker sleepy sleepy.lock "$T/ticks"
	kill -STOP "$zk_pid" # or the answer may come before anybody has looked at the clock
	clocks 0 60
	assertTrue 'noticed' 'wait_until 3 logged sleepy lease-over'
	assertTrue 'it is stopped' 'wait_until 3 logged sleepy action=SIGSTOP'
	kill -CONT "$zk_pid"
	assertTrue 'and continued' 'wait_until 10 logged sleepy action=SIGCONT'
	assertTrue 'it goes on' "started '$T/ticks'"
	assertEquals 'held all the time' busy "$(try beta sleepy.lock)"
	end "$(pgrep -P "$ticker")"
	keeper_stop sleepy
}


# ---- long waits ------------------------------------------------------------------------------------------------------

# talkative HOST - a host whose keeper tells of waits of 0.3 s, 0.6 s, and so on
talkative() {
	host "$1"
	env "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" ZKFLOCK_TEST_WAIT_MS=300 \
		"$BUILD/zkflockd" --on-demand </dev/null >/dev/null 2>&1 &
	wait_until 10 keeper_pid "$1" >/dev/null
}
lines() { [ "$(grep -cE "$2" "$1")" -ge "$3" ]; }

# Who waits for another host is told for whom, at growing intervals, if it wants to know; the log has it in any case.
test_a_long_wait_is_told() {
	local out by
	talkative waiting
	hold beta wait.lock || return
	by="for s%2Fwait.lock held by $(hostname) pid $holder lock since 20[0-9TZ:-]+"
	ZKFLOCK_TEST_LOG=error spawn waiting "$PROBES/lock" -w -h wait.lock
	out=$spawned_out
	assertTrue 'log' "wait_until 10 lines '$T/waiting/run/log' ' info lock waiting [0-9]+ s $by; asked by pid $spawned' 2"
	assertEquals 'not wanted' '' "$(cat "$out.err")"
	spawn waiting "$PROBES/lock" -w -h wait.lock
	out=$spawned_out
	assertTrue 'told' "wait_until 10 lines '$out.err' '^zkflock: info lock fd=[0-9]+ waiting [0-9]+ s $by\$' 3"
	assertEquals 'it still waits' '' "$(cat "$out")"
	end "$holder"
	assertTrue 'and is granted' "wait_until 10 grep -q granted '$T'/out.*"
	keeper_stop waiting
}

# Another host waits as well; held is the lock by the own host's process.  Who waits for that one in the kernel is not
# told, but the log has it.
test_a_long_wait_for_the_own_host() {
	talkative queue
	hold queue own.lock || return
	spawn beta "$PROBES/lock" -w own.lock
	wait_until 10 claims_are locks own.lock 2
	spawn queue "$PROBES/lock" -w own.lock
	assertTrue 'log' "wait_until 10 lines '$T/queue/run/log' ' waiting [0-9]+ s for s%2Fown.lock held by this host pid $holder lock' 2"
	keeper_stop queue
}

# What a keeper asks another one of deadlocks lies in that one's mailbox until it is read.  Who has ended reads nothing.
test_a_letter_to_a_keeper_that_has_ended() {
	local reader keeper guard
	SESSION_TIMEOUT=2s host writer
	host deaf
	hold deaf letter.dat -k posix || return
	reader=$(zkcat ls /zkflock/records/s%2Fletter.dat | cut -d- -f1)
	keeper=$(keeper_pid deaf) guard=$(guard_of deaf)
	kill -STOP "$guard" "$keeper"
	spawn writer "$PROBES/lock" -w -k posix letter.dat
	assertTrue 'it is written' "wait_until 5 letters_for $reader"
	kill -KILL "$guard" "$keeper" "$holder"
	assertTrue 'the lock is had' "wait_until 15 contains '$spawned_out' granted"
	assertTrue 'what nobody reads is deleted' "wait_until 10 no_letters_for $reader"
	keeper_stop writer
}
letters_for() { [ "$(zkcat ls "/zkflock/probes/$1" 2>/dev/null)" ]; }
no_letters_for() { ! letters_for "$1"; }

. shunit2

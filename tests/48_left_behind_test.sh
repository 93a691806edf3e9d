#!/bin/bash
# tests/48_left_behind_test.sh - what a call, a thread, a keeper or an old rule leaves behind must not be taken for a lock
# modes: cluster
# limit: 120
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_actors.sh"

oneTimeSetUp() {
	local group
	zk_start || return 1
	for group in alpha beta; do
		host $group "map $T/$group/s/ga group-a" "map $T/$group/s/gb group-b" "map $T/$group/s/gc group-c" \
			"map $T/$group/s/gd group-d" "map $T/$group/s/n %b"
		mkdir -p "$T/$group"/s/{ga,gb,gc,gd,n/x,n/y}
	done
}

# group NAME - files 1, 2, 3 of it are open in slots 1, 2, 3 of the actors a and b on alpha
group() {
	local file actor
	actor a alpha
	actor b alpha
	for actor in a b; do
		for file in 1 2 3; do expect $actor "open $file rw g$1/$file" ok; done
	done
}

# A thread waits for the keeper; another one forks; the child has a copy of the conversation, which must not outlive the call.
test_a_child_that_was_forked_during_a_wait() {
	group a
	expect b 'flock 2 ex' ok
	tell a 't1 flock 1 ex'
	pending a
	new_channel k
	tell a "fork $T/actors/k.in $T/actors/k.out"
	expect_answer a ok
	expect_answer k ready
	expect b 'flock 2 un' ok
	expect_answer a ok
	expect a 't1 flock 1 un' ok
	tell b 'flock 3 ex'
	expect_answer b ok 3
	expect b 'flock 3 un' ok
	assertEquals 'beta' granted "$(wait_for beta ga/3 3)"
}

test_a_child_of_a_program_that_is_killed_while_it_waits() {
	group b
	expect b 'flock 2 ex' ok
	tell a 't1 flock 1 ex'
	pending a
	new_channel k
	tell a "fork $T/actors/k.in $T/actors/k.out"
	expect_answer a ok
	expect_answer k ready
	signal KILL "$(actor_of a)"
	wait_until 5 gone "$(actor_of a)"
	expect b 'flock 2 un' ok
	tell b 'flock 3 ex'
	expect_answer b ok 3
	expect b 'flock 3 un' ok
	assertEquals 'beta' granted "$(wait_for beta gb/3 3)"
}

new_keeper() {
	local pid
	pid=$(keeper_pid "$1") && [ "$pid" != "$2" ]
}

test_what_a_thread_had_before_the_keeper_died() {
	local old
	group c
	expect a 'open 4 rw gc/1' ok
	expect a 't1 setlk 1 wr 0 0' ok
	expect a 't1 setlk 1 un 0 0' ok
	expect a 't2 setlk 4 wr 0 0' ok
	expect a 't1 flock 2 ex nb' EAGAIN
	old=$(keeper_pid alpha)
	kill -KILL "$old"
	assertTrue 'a new one' "wait_until 10 new_keeper alpha $old"
	expect b 'flock 2 ex nb' EAGAIN
	expect a 't1 flock 2 ex nb' EAGAIN
	expect a 't2 setlk 4 un 0 0' ok
	expect a 't1 flock 2 ex nb' ok
}

# n/x/job and n/y/job are one lock, until n/x gets a name of its own: the former keeps the old one while it is in use, ...
test_a_file_with_another_name_beside_one_with_the_old() {
	local host status
	actor a alpha
	actor c beta
	expect a 'open 0 rw n/x/job' ok
	expect a 'open 1 rw n/y/job' ok
	expect c 'open 0 rw n/x/job' ok
	expect a 'flock 0 ex' ok
	expect c 'flock 0 ex nb' EAGAIN
	for host in alpha beta; do
		echo "map $T/$host/s/n/x moved/%b" >>"$T/$host/zkflock.conf"
		on $host env -u LD_PRELOAD "$BUILD/zkflock" reload >"$T/out.reload"
		status=$?
		assertEquals "$host: $(cat "$T/out.reload")" 0 $status
	done
	# ... and no longer, though the latter was used meanwhile.
	expect a 'flock 1 ex' ok
	expect a 'flock 1 un' ok
	assertTrue 'alone again' "wait_until 10 files_of_alpha 1"
	expect a 'flock 0 un' ok
	expect a 'flock 0 ex' ok
	expect c 'flock 0 ex nb' EAGAIN
	assertEquals 'by its new name' 1 "$(zkcat count /zkflock/locks/moved%2Fjob)"
}
# files_of_alpha COUNT - so many files of n are open in the keeper
files_of_alpha() { [ "$(find "/proc/$(keeper_pid alpha)/fd" -lname "$T/alpha/s/n/*" | wc -l)" = "$1" ]; }

# gated HOST - its keeper stands still at the gates in $T/gates: tests/probes/libgate.c
gated() {
	mkdir -p "$T/gates"
	env "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" "LD_PRELOAD=$PROBES/libgate.so" \
		"ZKF_GATES=$T/gates" "$BUILD/zkflockd" --on-demand </dev/null >/dev/null 2>&1 &
	wait_until 10 keeper_pid "$1" >/dev/null
}

# A call that does not wait is let in, and its program loses the processor before it asks the kernel.  Another host asks
# meanwhile, so that the keeper tries the lock: that it is in the program's way for this moment is no answer.
test_a_trial_lock_is_nobody() {
	local tried out
	host gated
	gated gated
	assertEquals 'it works' granted "$(try gated other.lock)"
	actor a gated
	expect a 'open 0 rw trial.lock' ok
	touch "$T/gates/request"
	tell a 'flock 0 ex nb'
	assertTrue 'it has asked' "wait_until 4 asks $(actor_of a)"
	signal STOP "$(actor_of a)"
	touch "$T/gates/trial"
	rm "$T/gates/request"
	assertTrue 'it is let in' 'wait_until 5 claims_are locks trial.lock 1'
	spawn beta "$PROBES/lock" trial.lock
	tried=$spawned out=$spawned_out
	assertTrue 'the keeper tries' "wait_until 5 test -e '$T/gates/taken'"
	signal CONT "$(actor_of a)"
	pending a
	rm "$T/gates/trial"
	answer a 10
	# On a busy machine beta may have it for an instant just when a asks again.
	[ "$ANSWER" = EAGAIN ] && contains "$out" granted && wait_until 5 gone "$tried" && ANSWER= && tell a 'flock 0 ex nb' && answer a 10
	assertEquals ok "$ANSWER"
	end "$tried"
}
# asks PID - has it a conversation?
asks() { find "/proc/$1/fd" -lname 'socket:*' | grep -q .; }

# A runtime directory that is no tmpfs outlives the machine's end; neither the clock of the lease does, nor any process: who
# had what the kernel refuses to lock is on record there.
test_the_machine_has_started_again() {
	local keeper guard of_that_run
	host reborn
	hold reborn boot.lock && end "$holder"
	REFUSE=ENOLCK hold reborn refused.lock -k posix || return
	of_that_run=$holder
	keeper=$(keeper_pid reborn)
	guard=$(sed -n 's/^PPid:.//p' "/proc/$keeper/status")
	assertEquals 'a keeper and its guard' zkflockd "$(cat "/proc/$guard/comm")"
	kill -KILL "$guard" "$keeper"
	assertTrue 'the end' "wait_until 5 gone $keeper"
	"$PYTHON" - "$T/reborn/run/page" <<-'END'
		import struct, sys, time
		with open(sys.argv[1], "r+b") as page:
		    page.seek(16)
		    page.write(struct.pack("q", time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**12))
		    page.seek(40)
		    page.write(b"4bf29d6a-0000-4000-8000-000000000000\n")
	END
	hold beta boot.lock
	assertEquals 'who asks now' busy "$(try reborn boot.lock)"
	assertEquals 'no process of that run has anything' granted "$(try reborn refused.lock -k posix)"
	assertFalse 'nobody is taken for one of that run, and killed' "gone $of_that_run"
	end "$holder"
}

# A keeper that follows finds a file by what this one has written down: where that can't be done nobody gets the lock.
test_what_can_not_be_written_down_is_not_locked() {
	host full
	mkdir "$T/full/run/files"
	assertEquals 'a new file' ENOLCK "$(try full full.lock)"
	assertTrue 'the log says why' 'grep -q "file note path=.*full.lock error=" "$T/full/run/log"'
	rmdir "$T/full/run/files"
	assertEquals 'and later' granted "$(try full full.lock)"
}

. shunit2

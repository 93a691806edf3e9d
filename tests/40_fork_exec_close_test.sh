#!/bin/bash
# tests/40_fork_exec_close_test.sh - a lock lives as long as the kernel says: fork, exec, dup, close, exit, kill
# modes: native cluster
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

# two_actors FILE - a on alpha and b on beta, with FILE open in slot 0
two_actors() {
	actor a alpha
	actor b beta
	expect a "open 0 rw $1" ok
	expect b "open 0 rw $1" ok
}

# free NAME CALL - assert that NAME's CALL succeeds within 2 s, tried again and again; then undo it
free() {
	wait_until 2 succeeds "$1" "$2" # not within assertTrue, which is a subshell: answers are counted
	assertEquals "$1: $2 becomes free" 0 $?
	case $2 in
	flock*) expect "$1" "${2/ex nb/un}" ok ;;
	o*) expect "$1" 'osetlk 0 un 0 0' ok ;;
	*) expect "$1" 'setlk 0 un 0 0' ok ;;
	esac
}
succeeds() {
	tell "$1" "$2"
	answer "$1" 5 && [ "$ANSWER" = ok ]
}

# case A03: a script locks, starts something that stays, and ends.  The lock lives until the last copy of the open file
# is closed, though that process never called a lock function and the locker is gone.
test_background_child_keeps_the_lock() {
	gate a03
	spawn alpha sh -c 'exec 9>p.lock; flock -n 9; (read _ <"$1/a03") & exit 0' sh "$T"
	assertTrue 'the script ends' "wait_until 5 gone $spawned"
	assertEquals 'the child keeps it' busy "$(try beta p.lock)"
	open_gate a03
	assertTrue 'free after the child' 'becomes granted 2 beta p.lock'
	spawn alpha sh -c 'exec 9>p.lock; flock -n 9; (read _ <"$1/a03") 9>&- & exit 0' sh "$T"
	assertTrue 'the script ends' "wait_until 5 gone $spawned"
	assertTrue 'free, though the child goes on' 'becomes granted 2 beta p.lock'
	open_gate a03
}

# case A11: closing any descriptor of the file drops the process's record locks, on both hosts alike; others stay
test_closing_a_second_descriptor() {
	two_actors second.lock
	actor c alpha
	expect c 'open 0 rw second.lock' ok
	expect a 'setlk 0 wr 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect a 'open 1 r second.lock' ok
	expect a 'close 1' ok
	free b 'setlk 0 wr 0 0'
	free c 'setlk 0 wr 0 0'
	expect a 'osetlk 0 wr 0 0' ok
	expect a 'open 1 r second.lock' ok
	expect a 'close 1' ok
	expect b 'osetlk 0 wr 0 0' EAGAIN
	expect c 'osetlk 0 wr 0 0' EAGAIN
	expect a 'osetlk 0 un 0 0' ok
	expect a 'flock 0 ex' ok
	expect a 'open 1 r second.lock' ok
	expect a 'close 1' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect c 'flock 0 ex nb' EAGAIN
}

# case A25: a daemon locks its pid file, then forks twice.  Records stay behind with the parent, the others go along.
test_pid_file_and_double_fork() {
	local lock try
	actor b beta
	expect b 'open 0 rw d.pid' ok
	for lock in 'setlk 0 wr 0 0' 'flock 0 ex nb' 'osetlk 0 wr 0 0'; do
		try=$lock
		actor a alpha
		expect a 'open 0 rw d.pid' ok
		expect a "$lock" ok
		expect b "$try" EAGAIN
		forked child a
		tell a 'exit 0'
		forked grandchild child
		tell child 'exit 0'
		case $lock in
		setlk*) free b "$try" ;;
		*)
			wait_until 5 gone "$actor_pid"
			expect b "$try" EAGAIN
			tell grandchild 'exit 0'
			free b "$try"
			continue
			;;
		esac
		tell grandchild 'exit 0'
	done
}

# The child of a fork has its parent's flock, and gives it back for both; its close does not.
test_a_child_has_its_parents_flock() {
	two_actors child.lock
	expect a 'flock 0 ex' ok
	forked c a
	expect c 'flock 0 ex nb' ok
	expect c 'close 0' ok
	expect b 'flock 0 ex nb' EAGAIN
	forked c a
	expect c 'flock 0 un' ok
	free b 'flock 0 ex nb'
	expect a 'flock 0 ex nb' ok
	expect b 'flock 0 ex nb' EAGAIN
}

# A child can neither take nor drop its parent's records; its own go with it.
test_a_child_does_not_have_its_parents_records() {
	two_actors child.lock
	expect a 'setlk 0 wr 0 0' ok
	forked c a
	expect c 'setlk 0 wr 0 0' EAGAIN
	expect c 'setlk 0 un 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect c 'close 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect a 'setlk 0 un 0 0' ok
	expect a 'child setlkw 0 wr 0 0' ok
	free b 'setlk 0 wr 0 0'
}

# All kinds live through an exec, unless the descriptor is closed by it.
test_exec_keeps_locks_without_cloexec() {
	local lock
	two_actors exec.lock
	for lock in 'flock 0 ex nb' 'setlk 0 wr 0 0' 'osetlk 0 wr 0 0'; do
		expect a "$lock" ok
		expect a exec ok
		expect b "$lock" EAGAIN
		expect a "$lock" ok
		case $lock in
		flock*) expect a 'flock 0 un' ok ;;
		o*) expect a 'osetlk 0 un 0 0' ok ;;
		*) expect a 'setlk 0 un 0 0' ok ;;
		esac
		free b "$lock"
	done
}

test_exec_with_cloexec_frees_the_lock() {
	local lock
	for lock in 'flock 0 ex nb' 'setlk 0 wr 0 0' 'osetlk 0 wr 0 0'; do
		two_actors cloexec.lock
		expect a 'cloexec 0' ok
		expect a "$lock" ok
		expect b "$lock" EAGAIN
		expect a exec ok
		free b "$lock"
	done
}

test_dup_and_the_last_close() {
	two_actors dup.lock
	expect a 'dup 0 1' ok
	expect a 'flock 0 ex' ok
	expect a 'close 0' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect a 'flock 1 ex nb' ok
	expect a 'close 1' ok
	free b 'flock 0 ex nb'
	expect a 'open 0 rw dup.lock' ok
	expect a 'dup 0 1' ok
	expect a 'setlk 0 wr 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect a 'close 1' ok
	free b 'setlk 0 wr 0 0'
	# Another open of the same file is another owner of a flock.
	expect a 'reopen 0 2' ok
	expect a 'flock 0 ex' ok
	expect a 'flock 2 ex nb' EAGAIN
	expect a 'close 2' ok
	expect b 'flock 0 ex nb' EAGAIN
}

test_exit_and_kill_free_every_kind() {
	local lock how
	actor b beta
	expect b 'open 0 rw exit.lock' ok
	for lock in 'flock 0 ex nb' 'setlk 0 wr 0 0' 'osetlk 0 wr 0 0'; do
		for how in 'exit 0' KILL; do
			actor a alpha
			expect a 'open 0 rw exit.lock' ok
			expect a "$lock" ok
			expect b "$lock" EAGAIN
			if [ "$how" = KILL ]; then kill -KILL "$actor_pid"; else tell a "$how"; fi
			free b "$lock"
		done
	done
}

# case C13: the holder is killed; also as a whole process group, and with children of which the last one matters
test_killed_holders() {
	gate c13
	spawn alpha flock -F k9.lock sleep 60
	assertTrue 'alpha holds' 'becomes busy 5 beta k9.lock'
	kill -KILL "$spawned"
	assertEquals '-F' granted "$(wait_for beta k9.lock 2)"

	spawn alpha setsid sh -c 'echo $$; flock k9.lock sleep 60; :'
	assertTrue 'alpha holds' 'becomes busy 5 beta k9.lock'
	kill -KILL -- "-$(<"$spawned_out")"
	assertEquals 'process group' granted "$(wait_for beta k9.lock 2)"

	spawn alpha sh -c 'exec 9>k9.lock; flock 9; for i in 1 2 3; do sleep 60 & echo $!; done; wait'
	wait_until 10 has_lines "$spawned_out" 3
	local children
	mapfile -t children <"$spawned_out"
	kill -KILL "$spawned" "${children[0]}" "${children[1]}"
	wait_until 5 gone "${children[1]}"
	assertEquals 'one child left' busy "$(try beta k9.lock)"
	kill -KILL "${children[2]}"
	assertEquals 'the last child' granted "$(wait_for beta k9.lock 2)"
}
has_lines() { [ "$(wc -l <"$1")" -ge "$2" ]; }

# case B02: fclose closes by a private symbol; a descriptor number that is used again starts clean
test_fclose_frees_the_lock() {
	two_actors stream.lock
	expect b 'open 1 rw stream2.lock' ok
	expect a 'close 0' ok
	expect a 'fopen 0 stream.lock' ok
	tell a 'number 0'
	answer a 5
	local number=$ANSWER
	expect a 'flock 0 ex' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect a 'fclose 0' ok
	free b 'flock 0 ex nb'
	expect a 'open 1 rw stream2.lock' ok
	expect a 'number 1' "$number"
	expect a 'flock 1 ex' ok
	expect b 'flock 1 ex nb' EAGAIN
	expect b 'flock 0 ex nb' ok
	expect a 'flock 1 un' ok
	free b 'flock 1 ex nb'
}

# case B05 between hosts: after a mass close the locks of the closed files are free, and the next lock works
test_closing_all_descriptors() {
	local how
	actor b beta
	expect b 'open 0 rw all-a.lock' ok
	expect b 'open 1 rw all-b.lock' ok
	for how in 'closefrom 3' 'closerange 3' 'closeloop 3'; do
		actor a alpha
		expect a 'open 0 rw all-a.lock' ok
		expect a 'flock 0 ex' ok
		expect b 'flock 0 ex nb' EAGAIN
		expect a "$how" ok
		free b 'flock 0 ex nb'
		expect a 'open 1 rw all-b.lock' ok
		expect a 'number 1' 3
		expect a 'flock 1 ex' ok
		expect b 'flock 1 ex nb' EAGAIN
		assertEquals "$how: no message" '' "$(cat "$spawned_out.err")"
		tell a 'exit 0'
		wait_until 5 gone "$actor_pid"
	done
}

# A daemon that has closed 0 to 2 locks a file that becomes descriptor 0, and waits for another host by it.
test_low_descriptors() {
	two_actors low.lock
	actor c alpha
	for number in 0 1 2; do expect c "close #$number" ok; done
	expect c 'open 0 rw low.lock' ok
	expect c 'number 0' 0
	expect b 'flock 0 ex' ok
	expect c 'flock 0 ex nb' EAGAIN
	tell c 'flock 0 ex'
	pending c
	expect b 'flock 0 un' ok
	expect_answer c ok 2
	expect b 'flock 0 ex nb' EAGAIN
	expect c 'open 1 rw low2.lock' ok
	expect c 'number 1' 1
}

# case B27: descriptors that no open(2) of the program's own has made
test_descriptors_from_elsewhere() {
	local prelude='import fcntl, os, socket, sys, tempfile, time
def lock(fd):
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); print("granted", flush=True); time.sleep(60)
'
	# name: how the descriptor comes about
	local ways=(
		'inherited:lock(0)'
		'received:
left, right = socket.socketpair()
fd = os.open("received.lock", os.O_RDWR | os.O_CREAT)
if os.fork() == 0:
    socket.send_fds(left, [b"x"], [fd]); os._exit(0)
os.close(fd); os.wait()
lock(socket.recv_fds(right, 1, 1)[1][0])'
		'mkstemp:
fd, name = tempfile.mkstemp(dir="."); os.rename(name, "mkstemp.lock"); lock(fd)'
		'devfd:
fd = os.open("devfd.lock", os.O_RDWR | os.O_CREAT); other = os.open(f"/dev/fd/{fd}", os.O_RDWR); os.close(fd); lock(other)'
		'chdir:
fd = os.open("chdir.lock", os.O_RDWR | os.O_CREAT); os.chdir("/"); lock(fd)'
		'renamed:
os.mkdir("old"); fd = os.open("old/x", os.O_RDWR | os.O_CREAT); os.rename("old", "new"); os.rename("new/x", "renamed.lock"); lock(fd)'
		'deleted:
fd = os.open("deleted.lock", os.O_RDWR | os.O_CREAT); lock(fd)'
	)
	local way name
	for way in "${ways[@]}"; do
		name=${way%%:*}
		spawn alpha sh -c 'exec "$0" -c "$1" <"$2"' "$PYTHON" "$prelude${way#*:}" \
			"$(: >>"$T/alpha/s/inherited.lock" && echo inherited.lock)"
		assertTrue "$name: granted on alpha; $(cat "$spawned_out.err")" "wait_until 10 contains '$spawned_out' granted"
		assertEquals "$name: held for beta" busy "$(try beta "$name.lock")"
		kill -KILL "$spawned"
		assertTrue "$name: free" "becomes granted 2 beta $name.lock"
	done
}

# A descriptor that is in flight in a socket keeps its lock.
test_a_descriptor_in_flight() {
	gate flight
	spawn alpha "$PYTHON" -c 'import fcntl, os, socket, sys
left, right = socket.socketpair()
fd = os.open("flight.lock", os.O_RDWR | os.O_CREAT); fcntl.flock(fd, fcntl.LOCK_EX)
socket.send_fds(left, [b"x"], [fd]); os.close(fd); print("sent", flush=True)
open(sys.argv[1]).read(); right.close(); print("dropped", flush=True); open(sys.argv[1]).read()' "$T/flight"
	assertTrue 'sent' "wait_until 10 contains '$spawned_out' sent"
	assertEquals 'in flight' busy "$(try beta flight.lock)"
	open_gate flight
	assertTrue 'dropped' "wait_until 10 contains '$spawned_out' dropped"
	assertTrue 'free' 'becomes granted 2 beta flight.lock'
	open_gate flight
}

# A waiter that was forked, while its parent holds another file; a vfork child that waits stops only its parent thread.
test_fork_while_waiting() {
	two_actors wait.lock
	actor c alpha
	expect b 'flock 0 ex' ok
	expect c 'open 0 rw wait.lock' ok
	tell a 'vfork flock 0 ex'
	tell c 'child flock 0 ex'
	pending a
	pending c
	expect b 'flock 0 un' ok
	# The children's flock is their parents': the one stays held until its holder lets it go.
	wait_until 2 either_answered a c
	assertEquals 'one is granted' 0 $?
	if has_line a $((ANSWERS_READ[a] + 1)); then
		expect_answer a ok && expect a 'flock 0 un' ok && expect_answer c ok 2
	else
		expect_answer c ok && expect c 'flock 0 un' ok && expect_answer a ok 2
	fi
}
either_answered() { has_line "$1" $((ANSWERS_READ[$1] + 1)) || has_line "$2" $((ANSWERS_READ[$2] + 1)); }

# case B23 between hosts: locks taken by destructors are free after the program's end
test_destructors() {
	local lib=$BUILD/libzkflock.so ctor=$PROBES/libctor.so preload
	for preload in "$lib:$ctor" "$ctor:$lib"; do
		cluster || preload=$ctor
		within 10 alpha env "LD_PRELOAD=$preload" CTOR_EXIT=dtor.lock sh -c 'exit 0'
		assertEquals "$preload" 0 $?
		assertTrue 'flock' 'becomes granted 1 beta dtor.lock'
		assertTrue 'fcntl' 'becomes granted 1 beta dtor.lock -k posix'
		spawn alpha env "LD_PRELOAD=$preload" CTOR_FILE=ctor.lock "$PROBES/lock" -h other.lock
		wait_until 10 contains "$spawned_out" granted
		assertEquals "$preload constructor, flock" busy "$(try beta ctor.lock)"
		assertEquals "$preload constructor, fcntl" busy "$(try beta ctor.lock -k posix)"
		end "$spawned"
	done
}

# case B04 between hosts: beta wants the same files as the threads and children of a forking program
test_fork_in_a_program_with_threads() {
	local forker status
	on alpha mkdir -p forker
	on beta mkdir -p forker
	spawn alpha "$PROBES/forker" forker 60
	forker=$spawned
	while ! gone "$forker"; do
		within 20 beta "$PROBES/lock" -w forker/child.lock >"$T/out.beta"
		assertEquals 'beta has its turn' granted "$(cat "$T/out.beta")"
	done
	wait "$forker"
	status=$?
	assertEquals "forker: $(cat "$spawned_out")" 0 $status
}

. shunit2

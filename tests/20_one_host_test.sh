#!/bin/bash
# tests/20_one_host_test.sh - on one host the kernel's rules hold to the letter, and files that are not mapped are left alone
# modes: native cluster
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
. "$(dirname "$0")/lib.sh"

# two_actors FILE - a and b, two processes of alpha, with FILE open in slot 0
two_actors() {
	actor a alpha
	actor b alpha
	expect a "open 0 rw $1" ok
	expect b "open 0 rw $1" ok
}

test_flock_excludes_and_shares() {
	two_actors flock.lock
	expect a 'flock 0 ex' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect b 'flock 0 sh nb' EAGAIN
	expect a 'flock 0 sh' ok
	expect b 'flock 0 sh nb' ok
	expect b 'flock 0 ex nb' EAGAIN
	# A failed conversion has dropped the shared lock: flock(2), "not guaranteed to be atomic".
	expect a 'flock 0 ex nb' ok
	expect a 'flock 0 un' ok
	expect a 'flock 0 un' ok
}

test_flock_waits_and_a_release_wakes_the_waiter() {
	two_actors wait.lock
	expect a 'flock 0 ex' ok
	tell b 'flock 0 ex'
	pending b
	expect a 'flock 0 un' ok
	expect_answer b ok 2
}

# A new shared lock is granted while a local writer waits, as the kernel does it.
test_a_local_reader_passes_a_waiting_local_writer() {
	two_actors pass.lock
	actor c alpha
	expect c 'open 0 rw pass.lock' ok
	expect a 'flock 0 sh' ok
	tell b 'flock 0 ex'
	pending b
	expect c 'flock 0 sh nb' ok
	expect c 'flock 0 un' ok
	expect a 'flock 0 un' ok
	expect_answer b ok 2
}

test_flock_refuses_what_the_kernel_refuses() {
	actor a alpha
	expect a 'open 0 rw refuse.lock' ok
	expect a 'flock 0 0' EINVAL
	expect a 'flock 0 3' EINVAL
	expect a 'flock 0 64' EINVAL
	expect a 'flock #999 ex' EBADF
	expect a 'flock 0 un' ok
}

# case A04: NFS wants a writable descriptor for flock; we must not
test_flock_takes_any_open_mode_but_path() {
	actor a alpha
	expect a 'open 0 rw mode.lock' ok
	expect a 'open 1 r mode.lock' ok
	expect a 'open 2 path mode.lock' ok
	expect a 'open 3 w mode.lock' ok
	expect a 'flock 1 ex nb' ok
	expect a 'flock 0 ex nb' EAGAIN
	expect a 'flock 1 un' ok
	expect a 'flock 3 sh nb' ok
	expect a 'flock 2 ex nb' EBADF
	expect a 'setlk 1 wr 0 0' EBADF
	expect a 'osetlk 1 wr 0 0' EBADF
	expect a 'setlk 3 rd 0 0' EBADF
	expect a 'setlk 2 rd 0 0' EBADF
	expect a 'lockf 1 tlock 0' EBADF
}

# case A27
test_directories_lock_like_files() {
	on alpha mkdir -p dir
	actor a alpha
	actor b alpha
	expect a 'open 0 dir dir' ok
	expect b 'open 0 dir dir' ok
	expect b 'open 1 rw dir/f' ok
	expect a 'flock 0 ex nb' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect b 'flock 0 sh nb' EAGAIN
	expect b 'flock 1 ex nb' ok
	expect b 'setlk 0 wr 0 0' EBADF
}

test_records_to_the_byte() {
	two_actors record.lock
	expect a 'setlk 0 wr 10 5' ok
	expect b 'setlk 0 wr 14 1' EAGAIN
	expect b 'setlk 0 rd 10 1' EAGAIN
	expect b 'setlk 0 wr 15 1' ok
	expect b 'setlk 0 wr 9 1' ok
	expect b 'getlk 0 wr 0 0' "wr 10 5 $(actor_of a)"
	expect a 'getlk 0 wr 0 0' "wr 9 1 $(actor_of b)"
	expect a 'setlk 0 un 0 0' ok
	expect b 'getlk 0 wr 10 5' free
	expect b 'setlk 0 wr 10 5' ok
}

# case A15, on one host: neighbours, one byte of overlap, a split by unlocking, a part turned into a read lock
test_record_ranges_split_and_convert() {
	two_actors ranges.lock
	expect a 'setlkw 0 wr 7600 2560' ok
	expect b 'setlk 0 wr 10160 2560' ok
	expect b 'setlk 0 wr 10159 1' EAGAIN
	expect a 'setlk 0 un 8000 100' ok
	expect b 'setlk 0 wr 8000 100' ok
	expect b 'setlk 0 wr 7999 1' EAGAIN
	expect b 'setlk 0 wr 8100 1' EAGAIN
	expect a 'setlk 0 rd 8100 10' ok
	expect b 'setlk 0 rd 8100 10' ok
	expect b 'setlk 0 wr 8100 10' EAGAIN
}

test_records_refuse_what_the_kernel_refuses() {
	actor a alpha
	expect a 'open 0 rw refuse.lock' ok
	expect a 'setlk 0 wr 3 -5' EINVAL
	expect a 'setlk 0 wr 9223372036854775807 1' ok
	expect a 'setlk 0 wr 9223372036854775807 2' EOVERFLOW
	expect a 'setlk #999 wr 0 0' EBADF
	expect a 'setlk 0 wr 10 -5' ok
	actor b alpha
	expect b 'open 0 rw refuse.lock' ok
	expect b 'setlk 0 wr 4 1' ok
	expect b 'setlk 0 wr 5 1' EAGAIN
	expect b 'setlk 0 wr 9 1' EAGAIN
	expect b 'setlk 0 wr 10 1' ok
}

test_lockf_answers() {
	two_actors lockf.lock
	expect a 'lockf 0 tlock 10' ok
	expect b 'lockf 0 tlock 10' EAGAIN
	expect b 'lockf 0 test 10' EACCES
	expect b 'seek 0 10' ok
	expect b 'lockf 0 tlock 10' ok
	expect b 'seek 0 0' ok
	tell b 'lockf 0 lock 10'
	pending b
	expect a 'lockf 0 ulock 10' ok
	expect_answer b ok 2
	expect b 'lockf 0 test 10' ok
}

# case A11: closing any descriptor of a file drops the process's record locks; OFD and flock locks stay
test_closing_a_second_descriptor() {
	two_actors second.lock
	expect a 'setlk 0 wr 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect a 'open 1 r second.lock' ok
	expect a 'close 1' ok
	expect b 'setlk 0 wr 0 0' ok
	expect b 'setlk 0 un 0 0' ok
	expect a 'osetlk 0 wr 0 0' ok
	expect a 'open 1 r second.lock' ok
	expect a 'close 1' ok
	expect b 'osetlk 0 wr 0 0' EAGAIN
	expect a 'osetlk 0 un 0 0' ok
	expect a 'flock 0 ex' ok
	expect a 'open 1 r second.lock' ok
	expect a 'close 1' ok
	expect b 'flock 0 ex nb' EAGAIN
}

# case A32: the kinds do not see each other; flock conflicts between two opens of one process, POSIX does not
test_kinds_are_separate() {
	two_actors kinds.lock
	for slot in 1 2 3; do expect a "open $slot rw kinds.lock" ok; done
	expect a 'flock 0 ex nb' ok
	expect a 'setlk 1 wr 0 0' ok
	expect a 'flock 2 ex nb' EAGAIN
	expect a 'setlk 3 wr 0 0' ok
	# OFD and POSIX do see each other, even within a process.
	expect a 'osetlk 3 wr 0 0' EAGAIN
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect b 'flock 0 ex nb' EAGAIN
	expect a 'setlk 1 un 0 0' ok
	expect b 'setlk 0 wr 0 0' ok
	expect b 'flock 0 ex nb' EAGAIN
}

# case C28
test_threads_of_one_process() {
	actor a alpha
	actor b alpha
	expect b 'open 0 rw threads.lock' ok
	for slot in 0 1 2 3; do expect a "open $slot rw threads.lock" ok; done
	expect a 'thread flock 0 ex nb' ok
	for slot in 1 2 3; do expect a "thread flock $slot ex nb" EAGAIN; done
	for slot in 0 0 0; do expect a "thread flock $slot ex nb" ok; done
	expect b 'flock 0 ex nb' EAGAIN
	expect a 'flock 0 un' ok
	for slot in 0 1 2 3; do expect a "thread setlk $slot wr 0 0" ok; done
	expect b 'setlk 0 wr 0 0' EAGAIN
	# Locked twice, unlocked once: free.
	expect a 'again 10000 flock 0 ex nb' ok 60
	expect a 'flock 0 un' ok
	expect b 'flock 0 ex nb' ok
	expect a 'again 10000 setlk 0 wr 0 0' ok 60
}

# One small snippet in every frame that a program may make it from.
test_every_frame() {
	two_actors frame.lock
	for frame in signal vfork child thread; do
		expect a "$frame flock 0 ex" ok
		expect b 'flock 0 ex nb' EAGAIN
		expect a "$frame flock 0 un" ok
		expect b 'flock 0 ex nb' ok
		expect a "$frame flock 0 ex nb" EAGAIN
		expect b 'flock 0 un' ok
		expect a "$frame osetlkw 0 wr 3 4" ok
		expect b 'osetlk 0 wr 0 4' EAGAIN
		expect a "$frame osetlk 0 un 0 0" ok
		expect b 'osetlk 0 wr 0 4' ok
		expect b 'osetlk 0 un 0 0' ok
	done
	# A child's POSIX lock is the child's, and goes with it.
	for frame in signal thread; do
		expect a "$frame setlkw 0 wr 0 0" ok
		expect b 'setlk 0 wr 0 0' EAGAIN
		expect a "$frame setlk 0 un 0 0" ok
	done
	expect a 'child setlkw 0 wr 0 0' ok
	expect b 'setlk 0 wr 0 0' ok
	expect a 'child setlk 0 wr 0 0' EAGAIN
}

# case B01: a program with 64-bit names calls fcntl64 and lockf64, on x86_64 too
test_64_bit_names() {
	actor a alpha actor64
	actor b alpha
	expect a 'open 0 rw big.lock' ok
	expect b 'open 0 rw big.lock' ok
	expect a 'setlk 0 wr 5000000000 10' ok
	expect b 'setlk 0 wr 5000000009 1' EAGAIN
	expect b 'setlk 0 wr 5000000010 1' ok
	expect a 'setlk 0 un 0 0' ok
	expect a 'osetlkw 0 wr 0 10' ok
	expect b 'osetlk 0 wr 0 10' EAGAIN
	expect a 'osetlk 0 un 0 0' ok
	expect a 'lockf 0 tlock 10' ok
	expect b 'lockf 0 tlock 10' EAGAIN
	expect b 'getlk 0 wr 0 1' "wr 0 10 $(actor_of a)"
}

# case A19, the signal's side: EINTR without SA_RESTART, the wait goes on with it
test_signals_end_a_wait_or_do_not() {
	two_actors signal.lock
	expect a 'flock 0 ex' ok
	expect a 'setlk 0 wr 0 0' ok
	for wait in 'flock 0 ex' 'setlkw 0 wr 0 0' 'osetlkw 0 wr 0 0'; do
		expect b 'alarm 200 norestart' ok
		expect b "$wait" EINTR 3
		expect b 'alarm 0 norestart' ok
	done
	expect b 'alarm 100 restart' ok
	tell b 'flock 0 ex'
	pending b
	expect a 'flock 0 un' ok
	expect_answer b ok 2
	expect b 'alarm 100 restart' ok
	tell b 'setlkw 0 wr 0 0'
	pending b
	expect a 'setlk 0 un 0 0' ok
	expect_answer b ok 2
}

# fcntl(F_SETLKW) is a cancellation point, POSIX says; flock is none in glibc, but a thread that waits in it and is
# cancelled dies when the wait ends, so only the first is tried.
test_cancellation_ends_a_record_wait() {
	two_actors cancel.lock
	expect a 'setlk 0 wr 0 0' ok
	expect b 'cancel setlkw 0 wr 0 0' canceled
	expect a 'setlk 0 un 0 0' ok
	expect a 'setlk 0 wr 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
}

# Two processes, two ranges, crosswise: the kernel refuses the one that closes the circle.
test_local_deadlock_is_told() {
	two_actors cycle.lock
	expect a 'setlkw 0 wr 0 1' ok
	expect b 'setlkw 0 wr 1 1' ok
	tell a 'setlkw 0 wr 1 1'
	pending a
	expect b 'setlkw 0 wr 0 1' EDEADLK
	expect b 'setlk 0 un 0 0' ok
	expect_answer a ok 2
}

# case B03: errno is 0 at the start, left alone by success, exact on failure; also when the library logs
test_errno() {
	local expected=()
	hold alpha errno-busy.lock || { fail 'not held'; return; }
	for call in 'flock ex' 'flock sh' 'flock un' setlk setlkw getlk 'setlk un' 'ofd setlk' 'ofd setlk un' lockf \
		'lockf un' getfd; do
		expected+=("$call: succeeds 7")
	done
	expected=('start: succeeds 0' "${expected[@]}" 'busy flock: fails 11' 'bad descriptor flock: fails 9'
		'bad descriptor setlk: fails 9' 'bad descriptor getfd: fails 9' 'bad descriptor lockf: fails 9'
		'bad operation: fails 22' 'close: succeeds 7')
	assertEquals "$(printf '%s\n' "${expected[@]}")" "$(on alpha "$PROBES/errno" errno.lock errno-busy.lock)"
	assertEquals 'while it logs' "$(printf '%s\n' "${expected[@]}")" \
		"$(ZKFLOCK_TEST_LOG=debug on alpha "$PROBES/errno" errno.lock errno-busy.lock 2>/dev/null)"
}

# Every call on a file that no rule names: same results, same errno, same system calls but for a look at the file's name.
test_unmapped_files_are_left_alone() {
	local preload=("LD_PRELOAD=$BUILD/libzkflock.so" "ZKFLOCK_CONF=$T/alpha/zkflock.conf"
		"ZKFLOCK_RUNTIME_DIR=$T/alpha/run" ZKFLOCK_LOG=error)
	cluster || { skip 'compares the library with its absence'; return; }
	strace -o "$T/trace" true 2>/dev/null || { skip 'strace may not trace here'; return; }
	strace -o "$T/trace.without" "$PROBES/calls" "$T/unmapped" >"$T/calls.without"
	strace -o "$T/trace.with" "${preload[@]/#/-E}" "$PROBES/calls" "$T/unmapped" >"$T/calls.with" 2>"$T/calls.err"
	assertEquals 'output' '' "$(diff "$T/calls.without" "$T/calls.with")"
	assertTrue 'something was tried' "[ $(wc -l <"$T/calls.with") -gt 1000 ]"
	assertEquals 'stderr' '' "$(cat "$T/calls.err")"
	assertEquals 'system calls' '' "$(diff <(between_markers "$T/trace.without") <(between_markers "$T/trace.with"))"
}

# between_markers TRACE - the system calls between the probe's two marks, without addresses and our look at the name
between_markers() {
	sed -n '/^write(-2/,/^write(-2/p' "$1" | grep -vE '^(fstat|newfstatat|readlink|readlinkat)\(' |
		sed 's/0x[0-9a-f]*/ADDRESS/g'
}

# case F02: what a cron job prints is mailed
test_nothing_is_printed() {
	assertEquals '' "$(on alpha flock quiet.lock true 2>&1)"
	assertEquals '' "$(ZKFLOCK_TEST_LOG='' on alpha flock quiet.lock true 2>&1)"
}

# The kernel stays the local lock manager: a program without the library takes part.
test_programs_without_the_library_take_part() {
	hold alpha plain.lock || { fail 'not held'; return; }
	assertEquals busy "$("$PROBES/lock" "$T/alpha/s/plain.lock")"
	end "$holder"
	"$PROBES/lock" -w -h "$T/alpha/s/plain.lock" >"$T/out.plain" &
	holder=$!
	assertTrue 'plain holder' 'wait_until 5 contains "$T/out.plain" granted'
	assertEquals busy "$(try alpha plain.lock)"
	end "$holder"
}

# case B07: an allocator that opens, locks and closes a file in its first call
test_an_allocator_that_uses_files() {
	local lib=$BUILD/libzkflock.so alloc=$PROBES/liballoc.so preload
	assertEquals 'program of its own' granted "$(within 5 alpha "$PROBES/allocator" alloc.lock)"
	for preload in "$lib:$alloc" "$alloc:$lib"; do
		cluster || preload=$alloc
		assertEquals "$preload" granted \
			"$(within 5 alpha env "LD_PRELOAD=$preload" "$PROBES/lock" alloc.lock)"
	done
}

# case B23, and a constructor that locks before ours has run: every entry point works from the first moment to the last
test_constructors_and_destructors() {
	local lib=$BUILD/libzkflock.so ctor=$PROBES/libctor.so preload status
	for preload in "$lib:$ctor" "$ctor:$lib"; do
		cluster || preload=$ctor
		spawn alpha env "LD_PRELOAD=$preload" CTOR_FILE=ctor.lock "$PROBES/lock" -h ctor-other.lock
		assertTrue "$preload starts" "wait_until 10 contains '$spawned_out' granted"
		assertEquals "$preload flock" busy "$(try alpha ctor.lock)"
		assertEquals "$preload fcntl" busy "$(try alpha ctor.lock -k posix)"
		end "$spawned"
		for how in 'exit 0' 'exit 3' 'kill -9 $$'; do
			within 10 alpha env "LD_PRELOAD=$preload" CTOR_EXIT=dtor.lock sh -c "$how" >/dev/null 2>&1
			status=$?
			case $how in
			*9*) assertEquals "$preload $how" 137 $status ;;
			*) assertEquals "$preload $how" "${how#exit }" $status ;;
			esac
		done
		assertEquals "$preload, free after its end" granted "$(try alpha dtor.lock)"
	done
}

# A daemon closes 0 to 2 and its lock file becomes descriptor 0.
test_low_descriptors() {
	two_actors low.lock
	actor c alpha
	for number in 0 1 2; do expect c "close #$number" ok; done
	expect c 'open 0 rw low.lock' ok
	expect c 'number 0' 0
	expect c 'flock 0 ex' ok
	expect a 'flock 0 ex nb' EAGAIN
	expect c 'open 1 rw low-other.lock' ok
	expect c 'number 1' 1
	expect c 'setlkw 1 wr 0 0' ok
	expect c 'flock 0 un' ok
	expect a 'flock 0 ex nb' ok
}

# case B05: daemons close every descriptor from 3 on; ours must not be among them, and 3 is free afterwards
test_closing_all_descriptors() {
	two_actors all.lock
	expect b 'open 1 rw all-b.lock' ok
	for how in 'closefrom 3' 'closerange 3' 'closeloop 3'; do
		actor c alpha
		expect c 'open 0 rw all.lock' ok
		expect c 'flock 0 ex' ok
		expect a 'flock 0 ex nb' EAGAIN
		expect c "$how" ok
		expect a 'flock 0 ex nb' ok
		expect a 'flock 0 un' ok
		expect c 'open 1 rw all-b.lock' ok
		expect c 'number 1' 3
		expect c 'flock 1 ex' ok
		expect b 'flock 1 ex nb' EAGAIN
		assertEquals 'no message' '' "$(cat "$spawned_out.err")"
		end "$actor_pid"
	done
	assertEquals '' "$(on alpha "$PYTHON" -c '
import fcntl, os
a = os.open("all.lock", os.O_RDWR); fcntl.flock(a, fcntl.LOCK_EX)
os.closerange(3, 1024)
b = os.open("all-b.lock", os.O_RDWR); fcntl.flock(b, fcntl.LOCK_EX)
if b != 3: print("number", b)' 2>&1)"
}

# case B04: a program with threads forks; its children lock at once and leave by _exit
# A lock that the host has already is taken again without a word to the keeper, a blocking call for records included; and
# the one that is in somebody's way asks.
test_locks_again_ask_nobody() {
	cluster || { skip 'there is nobody to ask'; return; }
	strace -o "$T/trace" true 2>/dev/null || { skip 'strace may not trace here'; return; }
	local call
	two_actors again.lock
	for call in 'flock 0 ex' 'setlk 0 wr 0 10' 'setlkw 0 wr 20 1' 'osetlk 0 rd 5 5' 'osetlkw 0 wr 30 0' 'lockf 0 tlock 7'; do
		expect a "$call" ok 10
		case $call in
		flock*) expect a 'flock 0 un' ok ;;
		lockf*) expect a 'lockf 0 ulock 7' ok ;;
		*) expect a "${call%% *} 0 un 0 0" ok ;;
		esac
	done
	strace -f -qq -e trace=connect -o "$T/trace.again" -p "$(actor_of a)" 2>"$T/trace.err" &
	local tracer=$!
	wait_until 10 traced "$(actor_of a)"
	for call in 'flock 0 ex' 'flock 0 un' 'setlk 0 wr 0 10' 'setlk 0 un 0 10' 'setlkw 0 wr 20 1' 'setlkw 0 un 20 1' \
		'osetlk 0 rd 5 5' 'osetlk 0 un 5 5' 'osetlkw 0 wr 30 0' 'osetlkw 0 un 30 0' 'lockf 0 tlock 7' 'lockf 0 ulock 7'; do
		expect a "$call" ok
	done
	assertEquals 'nobody is asked' 0 "$(wc -l <"$T/trace.again")"
	expect b 'setlk 0 wr 0 1' ok
	expect a 'setlk 0 wr 0 1' EAGAIN
	assertNotEquals 'somebody is in the way' 0 "$(wc -l <"$T/trace.again")"
	kill "$tracer"
	wait "$tracer" || :
}
traced() { grep -q '^TracerPid:.*[1-9]' "/proc/$1/status"; }

test_fork_in_a_program_with_threads() {
	on alpha mkdir -p forker
	assertEquals 'children 100 threads alive' "$(within 60 alpha "$PROBES/forker" forker 100)"
}

test_increments_of_four_processes() {
	local pids=() outs=() kind total=0
	for kind in flock posix ofd; do
		pids=() outs=()
		for _ in 1 2 3 4; do
			spawn alpha "$PROBES/contend" -k $kind count.lock "$T/counter.$kind" 500
			pids+=("$spawned") outs+=("$spawned_out")
		done
		for pid in "${pids[@]}"; do
			wait_until 60 gone "$pid"
			assertEquals "$kind: ended" 0 $?
		done
		total=$((total + 2000))
		assertEquals "$kind: $(cat "${outs[@]}")" 2000 "$(counter_of "$T/counter.$kind")"
		assertEquals "$kind: violations" 4 "$(cat "${outs[@]}" | grep -c 'violations 0 ')"
	done
}

. shunit2

#!/bin/bash
# tests/47_refused_test.sh - files whose kernel refuses to lock them: as if it did
# modes: native cluster
# limit: 240
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_actors.sh"

# With MODE=native the kernel locks; else that of every program refuses.
REFUSE=ENOLCK

# three FILE - a and b on alpha, c on beta, with FILE open in slot 0
three() { actors "$1" a=alpha b=alpha c=beta; }

# eventually NAME CALL - assert that NAME's CALL succeeds soon, tried again and again
eventually() {
	wait_until 5 succeeds "$1" "$2" # not within assertTrue, which is a subshell: answers are counted
	assertEquals "$1: $2 succeeds" 0 $?
}
succeeds() {
	tell "$1" "$2"
	answer "$1" 5 && [ "$ANSWER" = ok ]
}

# ends NAME - it exits
ends() {
	tell "$1" 'exit 0'
	wait_until 5 gone "$(actor_of "$1")"
}

# ---- flock -----------------------------------------------------------------------------------------------------------

test_flock_excludes_and_converts() {
	three f.lock
	expect a 'flock 0 ex' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect c 'flock 0 sh nb' EAGAIN
	expect a 'flock 0 sh' ok
	expect b 'flock 0 sh nb' ok
	expect c 'flock 0 sh nb' ok
	expect c 'flock 0 un' ok
	expect a 'flock 0 ex nb' EAGAIN # and has lost the shared one
	expect b 'flock 0 ex nb' ok
	expect c 'flock 0 sh nb' EAGAIN
	tell a 'flock 0 sh'
	tell c 'flock 0 sh'
	pending a
	pending c
	expect b 'flock 0 un' ok
	expect_answer a ok
	expect_answer c ok
	# Two readers of a host that both want more: one of them waits without his, so that the other one gets it.
	expect c 'flock 0 un' ok
	expect b 'flock 0 sh' ok
	tell a 'flock 0 ex'
	tell b 'flock 0 ex'
	wait_until 5 any_answered a b
	if has_line a $((ANSWERS_READ[a] + 1)); then
		expect_answer a ok
		expect a 'flock 0 un' ok
		expect_answer b ok
	else
		expect_answer b ok
		expect b 'flock 0 un' ok
		expect_answer a ok
	fi
}

test_a_signal_ends_a_wait_and_takes_nothing() {
	three signal.lock
	expect a 'flock 0 ex' ok
	expect b 'alarm 200 norestart' ok
	expect b 'flock 0 ex' EINTR
	expect b 'alarm 0 norestart' ok
	expect a 'flock 0 un' ok
	expect c 'flock 0 ex nb' ok
}

# The process that locks is gone at once; the lock lives on in the shell's descriptor.
test_the_taker_is_gone() {
	gate job
	spawn alpha bash -c '( flock -n 9 || exit 1; echo locked; read _ <>"$1/job" ) 9>job.lock; echo done; read _ <>"$1/job"' sh "$T"
	wait_until 10 contains "$spawned_out" locked
	assertEquals 'alpha, while the job runs' busy "$(try alpha job.lock)"
	assertEquals 'beta, while the job runs' busy "$(try beta job.lock)"
	open_gate job
	wait_until 10 contains "$spawned_out" 'done'
	assertEquals 'beta, afterwards' granted "$(wait_for beta job.lock 5)"
	assertEquals 'alpha, afterwards' granted "$(wait_for alpha job.lock 5)"
	open_gate job
}

test_dup_fork_and_exec() {
	three exec.lock
	expect a 'flock 0 ex' ok
	expect a 'dup 0 1' ok
	expect a 'close 0' ok
	expect b 'flock 0 ex nb' EAGAIN
	forked child a
	ends a
	expect c 'flock 0 sh nb' EAGAIN
	expect child 'flock 1 ex nb' ok
	expect child 'exec' ok
	expect b 'flock 0 sh nb' EAGAIN
	expect child 'flock 1 un' ok
	expect b 'flock 0 ex nb' ok
	expect b 'flock 0 un' ok
	expect child 'flock 1 sh' ok
	expect child 'cloexec 1' ok
	expect child 'exec' ok
	eventually c 'flock 0 ex nb'
}

test_a_descriptor_that_is_passed() {
	gate pass
	spawn alpha "$PYTHON" -c 'import fcntl, os, socket, sys, time
left, right = socket.socketpair()
fd = os.open("pass.lock", os.O_RDWR | os.O_CREAT); fcntl.flock(fd, fcntl.LOCK_EX)
socket.send_fds(left, [b"x"], [fd]); os.close(fd); print("sent", flush=True)
open(sys.argv[1]).read(); fd = socket.recv_fds(right, 1, 1)[1][0]; print("got", flush=True)
open(sys.argv[1]).read(); fcntl.flock(fd, fcntl.LOCK_UN); print("unlocked", flush=True)
open(sys.argv[1]).read()' "$T/pass"
	wait_until 10 contains "$spawned_out" sent
	assertEquals 'beta, while it is on its way' busy "$(try beta pass.lock)"
	open_gate pass
	wait_until 10 contains "$spawned_out" got
	assertEquals 'alpha, when it has arrived' busy "$(try alpha pass.lock)"
	open_gate pass
	wait_until 10 contains "$spawned_out" unlocked
	assertEquals 'beta, when it is unlocked' granted "$(wait_for beta pass.lock 5)"
	open_gate pass
}

test_killed_holders() {
	local kind
	for kind in flock posix ofd; do
		hold alpha killed.lock -k "$kind" || { fail "no $kind lock"; return; }
		assertEquals "$kind, alpha" busy "$(try alpha killed.lock -k "$kind")"
		assertEquals "$kind, beta" busy "$(try beta killed.lock -k "$kind")"
		kill -KILL "$holder"
		wait "$holder" 2>/dev/null
		assertEquals "$kind, beta, after SIGKILL" granted "$(wait_for beta killed.lock 5 -k "$kind")"
		assertEquals "$kind, alpha, after SIGKILL" granted "$(wait_for alpha killed.lock 5 -k "$kind")"
	done
}

# ---- records ---------------------------------------------------------------------------------------------------------

test_ranges_merge_and_split() {
	three range.lock
	expect a 'setlk 0 wr 0 10' ok
	expect a 'setlk 0 wr 10 10' ok
	expect b 'setlk 0 wr 20 10' ok
	expect c 'setlk 0 wr 30 0' ok
	expect b 'setlk 0 rd 19 1' EAGAIN
	expect c 'setlk 0 wr 5 1' EAGAIN
	expect a 'setlk 0 un 5 5' ok
	expect b 'setlk 0 wr 5 5' ok
	expect c 'setlk 0 wr 4 1' EAGAIN
	expect a 'setlk 0 rd 0 5' ok
	expect b 'setlk 0 rd 2 1' ok
	expect b 'setlk 0 wr 2 1' EAGAIN
	expect b "getlk 0 wr 12 100" "wr 10 10 $(actor_of a)"
	expect b "getlk 0 rd 0 2" free
	expect b "getlk 0 wr 0 2" "rd 0 5 $(actor_of a)"
	expect a "getlk 0 wr 25 1" "wr 20 10 $(actor_of b)"
	expect a 'osetlk 0 wr 15 1' EAGAIN
	expect a 'setlk 0 un 0 0' ok
	expect a 'osetlk 0 wr 15 1' ok
	expect b 'getlk 0 wr 12 8' 'wr 15 1 -1'
	expect b 'setlk 0 wr 15 1' EAGAIN
	expect c 'setlk 0 un 0 0' ok
	expect b 'setlk 0 wr 16 0' ok
	expect c 'setlk 0 rd 1000 1' EAGAIN
}

test_a_waiting_writer_and_a_deadlock() {
	three dead.lock
	expect a 'setlk 0 wr 0 1' ok
	expect b 'setlk 0 wr 1 1' ok
	expect c 'setlk 0 wr 2 1' ok
	tell a 'setlkw 0 wr 1 1'
	pending a
	expect b 'setlkw 0 wr 0 1' EDEADLK
	expect b 'setlk 0 un 0 0' ok
	expect_answer a ok
	tell c 'setlkw 0 wr 0 1'
	pending c
	expect a 'lockf 0 test 0' EACCES
	expect a 'lockf 0 test 2' ok
	expect a 'setlk 0 un 0 0' ok
	expect_answer c ok
}

# The close rule, for descriptors through which the process has locked, and others that it had when it locked.
test_closing_a_descriptor_drops_the_records() {
	three close.lock
	expect a 'open 1 rw close.lock' ok
	expect a 'setlk 0 wr 0 5' ok
	expect a 'setlk 1 wr 5 5' ok
	expect b 'setlk 0 wr 0 1' EAGAIN
	expect a 'close 1' ok
	eventually b 'setlk 0 wr 0 0'
	expect b 'setlk 0 un 0 0' ok
	expect a 'setlk 0 wr 0 5' ok
	expect a 'close 0' ok
	expect a 'open 0 rw close.lock' ok # the number is used again
	expect a 'setlk 0 wr 8 1' ok
	eventually c 'setlk 0 wr 0 5'
	expect c 'setlk 0 un 0 0' ok
	# Of a description they stay.
	expect a 'osetlk 0 wr 20 1' ok
	expect a 'open 1 r close.lock' ok
	expect a 'close 1' ok
	expect b 'osetlk 0 wr 20 1' EAGAIN
}

test_children_have_no_records() {
	three child.lock
	expect a 'setlk 0 wr 0 1' ok
	forked heir a
	expect heir 'setlk 0 wr 0 1' EAGAIN
	expect heir 'close 0' ok
	expect c 'setlk 0 wr 0 1' EAGAIN
	expect a exec ok
	expect b 'setlk 0 wr 0 1' EAGAIN
	expect a 'close 0' ok
	eventually c 'setlk 0 wr 0 1'
}

# ---- every errno, every call -----------------------------------------------------------------------------------------

test_every_errno() {
	local errno kind REFUSE
	while read -r errno kind; do
		REFUSE=$errno
		hold alpha "$errno.lock" -k "$kind" || { fail "$errno $kind"; return; }
		assertEquals "$errno $kind, alpha" busy "$(try alpha "$errno.lock" -k "$kind")"
		assertEquals "$errno $kind, beta" busy "$(try beta "$errno.lock" -k "$kind")"
		end "$holder"
	done <<-END
		ENOSYS flock
		EOPNOTSUPP lockf
		524 ofd
	END
}

test_a_file_that_is_not_mapped() {
	cluster || { skip 'the kernel locks natively' && return; }
	local errno kind REFUSE
	for errno in ENOLCK EOPNOTSUPP; do
		REFUSE=$errno
		for kind in flock posix; do
			assertEquals "$errno $kind" "$errno" "$(try alpha "$T/unmapped" -k "$kind")"
		done
	done
	actor a alpha
	expect a "open 0 rw $T/unmapped" ok
	expect a 'flock 0 un' EOPNOTSUPP
	expect a 'setlk 0 un 0 0' EOPNOTSUPP
	expect a 'getlk 0 wr 0 0' EOPNOTSUPP
}

# An operator deletes the claim: on_loss, for a holder whom only the keeper knows.
test_a_claim_that_is_taken_away() {
	cluster || { skip 'no claims natively' && return; }
	local path=/zkflock/locks/s%2Fbroken.lock
	hold alpha broken.lock || return
	zkcat delete "$path/$(zkcat ls "$path" | head -n 1)" >/dev/null
	assertTrue 'the holder is killed' "wait_until 5 gone $holder"
	assertEquals 'free for beta' granted "$(wait_for beta broken.lock 5)"
}

# ---- both --------------------------------------------------------------------------------------------------------------

# The kernel refuses one program and serves another; then it is the other way round.
test_the_kernel_refuses_some() {
	actors some.lock a=alpha c=beta
	REFUSE='' actors some.lock b=alpha d=beta
	expect a 'flock 0 ex' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect d 'flock 0 ex nb' EAGAIN
	expect a 'flock 0 un' ok
	expect b 'flock 0 ex nb' ok
	expect a 'flock 0 sh nb' EAGAIN
	expect c 'flock 0 sh nb' EAGAIN
	tell a 'flock 0 ex'
	pending a
	expect b 'flock 0 un' ok
	expect_answer a ok
	tell b 'flock 0 sh'
	pending b
	ends a
	expect_answer b ok
	expect b 'flock 0 un' ok
	expect c 'setlk 0 wr 0 5' ok
	expect d 'setlk 0 wr 4 1' EAGAIN
	expect d 'setlk 0 wr 5 1' ok
	expect c 'setlk 0 wr 5 1' EAGAIN
}

# ---- keepers that die --------------------------------------------------------------------------------------------------

test_a_killed_keeper_knows_the_holders_again() {
	local pid
	gate again
	actors again.lock a=alpha c=beta d=alpha
	REFUSE='' actors again.lock b=alpha # what it starts when it finds no keeper must be able to lock
	spawn alpha bash -c '( flock -n 9 || exit 1; echo locked; read _ <>"$1/again" ) 9>again2.lock; echo done; read _ <>"$1/again"' \
		sh "$T"
	wait_until 10 contains "$spawned_out" locked
	expect a 'flock 0 ex' ok
	expect a 'setlk 0 wr 10 5' ok
	expect a 'setlk 0 un 12 1' ok
	expect a 'osetlk 0 wr 20 1' ok
	tell b 'flock 0 sh'
	pending b
	if cluster; then
		pid=$(keeper_pid alpha)
		kill -KILL "$pid"
		wait_until 10 another_keeper "$pid"
		keeper_start alpha
	fi
	expect d 'setlk 0 wr 11 1' EAGAIN
	expect d 'setlk 0 wr 12 1' ok
	expect c 'setlk 0 wr 14 1' EAGAIN
	expect c 'osetlk 0 wr 20 1' EAGAIN
	expect c 'flock 0 sh nb' EAGAIN
	assertEquals 'the job whose taker is gone' busy "$(try alpha again2.lock)"
	assertEquals 'the same for beta' busy "$(try beta again2.lock)"
	expect a 'osetlk 0 wr 20 1' ok
	expect a 'osetlk 0 un 20 1' ok
	expect c 'osetlk 0 wr 20 1' ok
	expect a 'flock 0 un' ok
	expect_answer b ok
	open_gate again
	wait_until 10 contains "$spawned_out" 'done'
	assertEquals 'the job has ended' granted "$(wait_for beta again2.lock 5)"
	open_gate again
	expect a 'close 0' ok
	eventually c 'setlk 0 wr 10 1'
}
another_keeper() { [ "$(keeper_pid alpha)" ] && [ "$(keeper_pid alpha)" != "$1" ]; }

# ---- a file system ---------------------------------------------------------------------------------------------------------

# fuse HOST - a host whose s refuses to lock, the keeper's kernel too; 1: there is no FUSE here
fuse() {
	host "$1"
	spawned_out=$T/fuse.$1
	"$PROBES/refusefs" "$T/$1/s" >"$spawned_out" 2>&1 &
	fuse_pids+=($!)
	wait_until 10 fuse_settled $!
	contains "$spawned_out" ready
}
fuse_settled() { contains "$spawned_out" ready || gone "$1"; }
unfuse() {
	umount -l "$T/one/s" "$T/two/s" 2>/dev/null
	end "${fuse_pids[@]}"
}

test_a_file_system_that_refuses() {
	cluster || { skip 'the kernel locks natively' && return; }
	local REFUSE='' fuse_pids=() kind
	if ! fuse one || ! fuse two; then
		unfuse
		skip "no FUSE here: $(head -n 1 "$spawned_out")" && return
	fi
	actors fs.lock a=one b=one c=two
	expect a 'flock 0 ex' ok
	expect b 'flock 0 ex nb' EAGAIN
	expect c 'flock 0 sh nb' EAGAIN
	tell b 'flock 0 ex'
	expect a 'flock 0 un' ok
	expect_answer b ok
	expect a 'setlk 0 wr 0 10' ok
	expect a 'setlk 0 un 5 1' ok
	expect b 'setlk 0 wr 5 1' ok
	expect c 'setlk 0 wr 4 1' EAGAIN
	expect c "getlk 0 wr 0 3" "wr 0 5 -$(actor_of a)"
	expect a 'close 0' ok
	eventually c 'setlk 0 wr 4 1'
	signal KILL "$(actor_of b)"
	eventually c 'flock 0 ex nb'
	expect c 'flock 0 un' ok
	expect c 'setlk 0 un 0 0' ok
	for kind in flock posix; do
		hold one held.lock -k "$kind" || { fail "no $kind lock"; break; }
		kill -KILL "$(keeper_pid one)"
		assertEquals "$kind, beta, a killed keeper later" busy "$(try two held.lock -k "$kind")"
		assertEquals "$kind, alpha, a killed keeper later" busy "$(try one held.lock -k "$kind")"
		end "$holder"
		assertEquals "$kind, when it has ended" granted "$(wait_for two held.lock 5 -k "$kind")"
	done
	for kind in a b c; do signal KILL "$(actor_of "$kind")"; done
	keeper_stop one
	keeper_stop two
	unfuse
}

# ---- all together --------------------------------------------------------------------------------------------------------

test_counting() {
	local host i sum=0 lines pids=() outs=()
	for host in alpha beta; do
		for i in 1 2 3; do
			spawn "$host" "$PROBES/contend" -s 20 count.lock "$T/count.state" 25
			pids+=("$spawned") outs+=("$spawned_out")
		done
	done
	for i in "${pids[@]}"; do wait_until 30 gone "$i"; done
	lines=$(cat "${outs[@]}")
	assertEquals 'all six have ended' 6 "$(grep -c counted <<<"$lines")"
	assertEquals 'nobody met anybody' 6 "$(grep -c 'violations 0' <<<"$lines")"
	for i in $(awk '{ print $2 }' <<<"$lines"); do sum=$((sum + i)); done
	assertEquals 'nothing is lost' "$sum" "$(counter_of "$T/count.state")"
}

. /usr/bin/shunit2

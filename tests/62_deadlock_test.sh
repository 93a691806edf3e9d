#!/bin/bash
# tests/62_deadlock_test.sh - EDEADLK for true circles through hosts, just one victim, and none where there is no circle
# modes: native cluster
# limit: 240
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_actors.sh"

# one_victim NAME... - of these, which all wait in a circle, just one fails with EDEADLK within 2 s: $victim
one_victim() {
	local name
	victim=
	wait_until 2 any_answered "$@"
	assertEquals "a victim within 2 s among $*" 0 $? || return
	sleep 0.5 # a second one would follow at once
	for name; do
		has_line "$name" $((ANSWERS_READ[$name] + 1)) || continue
		if [ "$victim" ]; then
			fail "both $victim and $name are answered"
			return 1
		fi
		victim=$name
		expect_answer "$name" EDEADLK
	done
	[ "$victim" ]
}

# the_rest_goes_on SLOTS NAME... - the victim unlocks, and then one after the other of NAMEs (but the victim) is granted
# what it waits for, and unlocks
the_rest_goes_on() {
	local slots=$1 name
	shift
	for slot in $slots; do expect "$victim" "setlk $slot un 0 0" ok; done
	local left=" $* "
	left=${left/ $victim / }
	while [ "${left// /}" ]; do
		# shellcheck disable=SC2086 # a list
		if ! wait_until 3 any_answered $left; then
			fail "these still wait: $left"
			return 1
		fi
		for name in $left; do
			has_line "$name" $((ANSWERS_READ[$name] + 1)) || continue
			expect_answer "$name" ok 1 "$name goes on"
			for slot in $slots; do expect "$name" "setlk $slot un 0 0" ok; done
			left=${left/ $name / }
		done
	done
}

test_deadlock_of_two_hosts() {
	local order
	for order in 'a b' 'b a'; do
		actors "two.${order% *}.lock" a=alpha b=beta
		expect a 'setlkw 0 wr 0 1' ok
		expect b 'setlkw 0 wr 1 1' ok
		for name in $order; do
			if [ "$name" = a ]; then tell a 'setlkw 0 wr 1 1'; else tell b 'setlkw 0 wr 0 1'; fi
			[ "$name" != "${order% *}" ] || pending "$name"
		done
		one_victim a b && the_rest_goes_on 0 a b
	done
}

# Both begin at the same instant: still just one.
test_deadlock_at_one_instant() {
	local i
	actors instant.lock a=alpha b=beta
	for i in 1 2 3; do
		expect a 'setlkw 0 wr 0 1' ok
		expect b 'setlkw 0 wr 1 1' ok
		tell a 'setlkw 0 wr 1 1'
		tell b 'setlkw 0 wr 0 1'
		one_victim a b && the_rest_goes_on 0 a b
	done
}

test_deadlock_of_three_hosts() {
	actors three.lock a=alpha b=beta c=gamma
	expect a 'setlkw 0 wr 0 1' ok
	expect b 'setlkw 0 wr 1 1' ok
	expect c 'setlkw 0 wr 2 1' ok
	tell a 'setlkw 0 wr 1 1'
	tell b 'setlkw 0 rd 2 1'
	pending b
	nobody_answers 1 a b
	tell c 'setlkw 0 wr 0 1'
	one_victim a b c && the_rest_goes_on 0 a b c
}

# Two more wait for what is in the circle, and are not of it: they just get their turn.
test_deadlock_with_bystanders() {
	actors bystand.lock a=alpha b=beta c=gamma b2=beta
	expect a 'setlkw 0 wr 0 1' ok
	expect b 'setlkw 0 wr 1 1' ok
	tell c 'setlkw 0 wr 0 2'
	tell b2 'setlkw 0 rd 0 1'
	pending c
	tell a 'setlkw 0 wr 1 1'
	pending a
	tell b 'setlkw 0 wr 0 1'
	one_victim a b c b2 || return
	assertContains 'of the circle' 'a b' "$victim"
	the_rest_goes_on 0 a b c b2
}

test_deadlock_through_two_files() {
	actors file.1,file.2 a=alpha b=beta
	expect a 'setlkw 0 wr 0 0' ok
	expect b 'setlkw 1 wr 0 0' ok
	tell a 'setlkw 1 wr 0 0'
	pending a
	tell b 'setlkw 0 wr 0 0'
	one_victim a b && the_rest_goes_on '0 1' a b
}

# A part of the circle is a wait inside one host's kernel:
#
#     p1 of alpha waits for p2 of alpha, which waits for b of beta, which waits for p1; each of them is once the last
test_deadlock_through_a_kernel() {
	local last name
	for last in b p2 p1; do
		actors "kernel.$last" p1=alpha p2=alpha b=beta
		expect p1 'setlkw 0 wr 0 1' ok
		expect p2 'setlkw 0 wr 1 1' ok
		expect b 'setlkw 0 wr 2 1' ok
		for name in p1 p2 b; do [ $name = $last ] || wait_in_circle $name; done
		[ $last = p1 ] || pending p1
		wait_in_circle $last
		one_victim p1 p2 b && the_rest_goes_on 0 p1 p2 b
	done
}
wait_in_circle() {
	case $1 in
	p1) tell p1 'setlkw 0 wr 1 1' ;;
	p2) tell p2 'setlkw 0 wr 2 1' ;;
	b) tell b 'setlkw 0 wr 0 1' ;;
	esac
}

# Two readers that both want to write
test_deadlock_of_two_upgrades() {
	actors upgrade.lock a=alpha b=beta
	expect a 'setlk 0 rd 0 1' ok
	expect b 'setlk 0 rd 0 1' ok
	tell a 'setlkw 0 wr 0 1'
	pending a
	tell b 'setlkw 0 wr 0 1'
	one_victim a b && the_rest_goes_on 0 a b
}

# The victim keeps what it held; only the call has failed.
test_the_victim_keeps_its_locks() {
	actors keeps.lock a=alpha b=beta c=gamma
	expect a 'setlkw 0 wr 0 1' ok
	expect b 'setlkw 0 wr 1 1' ok
	tell a 'setlkw 0 wr 1 1'
	pending a
	tell b 'setlkw 0 wr 0 1'
	one_victim a b || return
	expect c 'setlk 0 wr 0 1' EAGAIN
	expect c 'setlk 0 wr 1 1' EAGAIN
	if [ "$victim" = a ]; then
		expect a 'setlk 0 wr 0 1' ok
		expect a 'setlk 0 wr 1 1' EAGAIN
	else
		expect b 'setlk 0 wr 1 1' ok
		expect b 'setlk 0 wr 0 1' EAGAIN
	fi
	the_rest_goes_on 0 a b
}

# interruptible NAME... - from now on SIGALRM ends their calls; interrupt NAME... - send it, they answer EINTR
interruptible() {
	local name
	for name; do expect "$name" 'alarm 600000 norestart' ok; done
}
interrupt() {
	local name
	for name; do
		kill -ALRM "${ACTORS[$name]}"
		expect_answer "$name" EINTR 3
	done
}

# OFD locks and flock are not looked at, says the kernel: they wait.  A signal ends them.
test_no_deadlock_is_told_of_ofd_locks_and_flock() {
	actors ofd.1,ofd.2 a=alpha b=beta c=alpha d=beta
	expect a 'osetlkw 0 wr 0 1' ok
	expect b 'osetlkw 0 wr 1 1' ok
	expect c 'flock 0 ex' ok
	expect d 'flock 1 ex' ok
	interruptible a b c d
	tell a 'osetlkw 0 wr 1 1'
	tell b 'osetlkw 0 wr 0 1'
	tell c 'flock 1 ex'
	tell d 'flock 0 ex'
	nobody_answers 2 a b c d
	interrupt a b c d
}

# A process waits for an OFD lock: its owner is no process, so that this is no circle for the kernel.
test_no_deadlock_through_an_ofd_lock() {
	actors mixed.lock a=alpha b=beta
	expect a 'osetlkw 0 wr 0 1' ok
	expect b 'setlkw 0 wr 1 1' ok
	interruptible a b
	tell a 'setlkw 0 wr 1 1'
	tell b 'setlkw 0 wr 0 1'
	nobody_answers 2 a b
	interrupt a b
}

# Chains are no circles: all that wait get their turn.
test_no_deadlock_without_a_circle() {
	actors chain.1,chain.2 a=alpha b=beta c=gamma a2=alpha
	expect a 'setlkw 0 wr 0 1' ok
	expect b 'setlkw 0 wr 1 1' ok
	expect c 'setlkw 1 wr 0 1' ok
	tell b 'setlkw 0 wr 0 1'  # for a
	tell a 'setlkw 1 wr 0 0'  # for c, who holds something unrelated
	tell a2 'setlkw 0 wr 0 2' # for a in the kernel, and for b
	nobody_answers 2 a b a2
	expect c 'setlk 1 un 0 0' ok
	expect_answer a ok 2
	expect c 'setlk 1 wr 10 1' EAGAIN
	expect a 'setlk 0 un 0 0' ok
	wait_until 3 any_answered b a2
	expect_answer b ok 2
	expect b 'setlk 0 un 0 0' ok
	expect_answer a2 ok 3
}

# A wait that has ended closes no circle.
test_no_deadlock_with_a_wait_that_has_ended() {
	actors ended.lock a=alpha b=beta
	expect a 'setlkw 0 wr 0 1' ok
	expect b 'setlkw 0 wr 1 1' ok
	interruptible a
	tell a 'setlkw 0 wr 1 1'
	nobody_answers 1 a
	interrupt a
	tell b 'setlkw 0 wr 0 1'
	nobody_answers 1 b
	expect a 'setlkw 0 wr 5 1' ok 2
	expect a 'setlk 0 un 0 0' ok
	expect_answer b ok 2
}

ORDERED='
import errno, fcntl, os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
end, rounds = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    for byte in sorted(random.sample(range(6), 3)):
        fcntl.lockf(fd, random.choice((fcntl.LOCK_EX, fcntl.LOCK_EX, fcntl.LOCK_SH)), 1, byte)
    time.sleep(random.random() * 0.1)
    fcntl.lockf(fd, fcntl.LOCK_UN, 0)
    rounds += 1
print("rounds", rounds)
'

# Everybody takes several bytes in ascending order: many and long waits, and never a circle.
test_no_deadlock_under_load() {
	local pids=() outs=() host i
	[ -d "$T/gamma" ] || host gamma
	for host in alpha beta gamma alpha beta gamma; do
		spawn $host "$PYTHON" -c "$ORDERED" ordered.lock 6
		pids+=("$spawned") outs+=("$spawned_out")
	done
	for i in "${!pids[@]}"; do
		wait_until 25 gone "${pids[i]}" || fail "process $i stands still"
		assertContains "process $i: $(tail -n 1 "${outs[i]}.err")" "$(cat "${outs[i]}")" rounds
	done
	echo "rounds: $(cat "${outs[@]}" | paste -sd' ')"
	if cluster; then assertNotEquals 'over the library' 0 "$(claims records ordered.lock)"; fi
}

WALK='
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
data = os.open(sys.argv[2], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)
end, i, steps, longest = time.monotonic() + float(sys.argv[3]), 0, 0, 0.0
while time.monotonic() < end:
    start = time.monotonic()
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, (i + 1) % 3)
    longest = max(longest, time.monotonic() - start)
    byte = (i + 1) % 3
    count = int.from_bytes(os.pread(data, 8, byte * 8), "little")
    os.pwrite(data, (count + 1).to_bytes(8, "little"), byte * 8)
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, i % 3)
    i, steps = i + 1, steps + 1
print(steps, longest < 3.0, longest)
'

# case A35: byte locks walking round, on each host one walker that takes the next byte before it gives the last one back
test_ping_pong_of_bytes() {
	local pids=() outs=() host sum
	head -c 24 /dev/zero >"$T/walk.data"
	for host in alpha beta; do
		spawn $host "$PYTHON" -c "$WALK" walk.lock "$T/walk.data" 5
		pids+=("$spawned") outs+=("$spawned_out")
	done
	for host in 0 1; do
		wait_until 20 gone "${pids[host]}" || fail "walker $host stands still"
		assertContains "walker $host: $(cat "${outs[host]}"*)" "$(cat "${outs[host]}")" ' True '
		echo "walker $host: $(cat "${outs[host]}")"
		assertTrue "walker $host moves" "[ $(cut -d' ' -f1 "${outs[host]}") -gt 20 ]"
	done
	sum=$(od -An -v -td8 "$T/walk.data" | awk '{ for (i = 1; i <= NF; i++) sum += $i } END { print sum }')
	assertEquals 'no step lost' "$(cat "${outs[@]}" | awk '{ sum += $1 } END { print sum }')" "$sum"
}

. shunit2

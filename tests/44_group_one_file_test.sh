#!/bin/bash
# tests/44_group_one_file_test.sh - a single file of a group behaves as any file does
# modes: native cluster
# limit: 120
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_actors.sh"

oneTimeSetUp() {
	local host
	zk_start || return 1
	for host in alpha beta; do
		host $host "map $T/$host/s/one one"
		mkdir -p "$T/$host/s/one"
	done
}

test_flock() {
	actors one/1 a=alpha b=alpha c=beta
	expect a 'flock 0 ex' ok
	expect a 'flock 0 ex nb' ok
	expect b 'flock 0 sh nb' EAGAIN
	expect c 'flock 0 ex nb' EAGAIN
	expect a 'flock 0 sh' ok
	expect b 'flock 0 sh nb' ok
	expect c 'flock 0 sh nb' ok
	expect b 'flock 0 ex nb' EAGAIN # and has lost the shared one
	expect c 'flock 0 un' ok
	expect a 'flock 0 ex nb' ok
	expect a 'flock 0 un' ok
	expect a 'flock 0 un' ok
}

test_conversions_that_wait() {
	actors one/2 a=alpha b=alpha c=beta
	for other in b c; do
		expect a 'flock 0 sh' ok
		expect $other 'flock 0 sh' ok
		tell a 'flock 0 ex'
		pending a
		expect $other 'flock 0 ex' ok # a has dropped its own
		pending a
		expect $other 'flock 0 un' ok
		expect_answer a ok
		expect a 'flock 0 un' ok
	done
}

test_records() {
	actors one/3 a=alpha b=alpha c=beta
	expect a 'setlk 0 wr 0 0' ok
	expect a 'setlk 0 rd 0 0' ok
	expect b 'setlk 0 rd 0 0' ok
	expect c 'setlk 0 rd 0 0' ok
	expect a 'setlk 0 wr 0 0' EAGAIN
	expect a 'dup 0 5' ok
	expect b 'setlk 0 un 0 0' ok
	expect c 'close 0' ok
	expect a 'setlk 0 wr 0 0' ok
	expect b 'osetlk 0 rd 0 0' EAGAIN
	expect b 'getlk 0 rd 3 1' "wr 0 0 $(actor_of a)"
	expect a 'close 5' ok # takes the process's records with it
	expect b 'osetlk 0 wr 0 0' ok
	expect b 'osetlk 0 un 0 0' ok
}

test_fork_exec_close_kill() {
	actors one/4 a=alpha b=alpha
	expect a 'flock 0 ex' ok
	forked child a
	expect a 'close 0' ok
	assertEquals 'the child has it' busy "$(try beta one/4)"
	expect child exec ok
	assertEquals 'exec' busy "$(try beta one/4)"
	kill -KILL "$(pgrep -P "$(actor_of a)")"
	assertTrue 'killed' 'becomes granted 3 beta one/4'
	expect b 'flock 0 ex' ok
	expect b 'cloexec 0' ok
	expect b exec ok
	assertTrue 'close-on-exec' 'becomes granted 3 beta one/4'
}

test_signals_and_waiters() {
	actors one/5 a=alpha b=alpha c=beta
	expect a 'flock 0 ex' ok
	expect b 'alarm 200 norestart' ok
	expect b 'flock 0 ex' EINTR
	expect c 'alarm 200 norestart' ok
	expect c 'flock 0 sh' EINTR
	expect b 'alarm 0 norestart' ok
	expect c 'alarm 0 norestart' ok
	tell b 'flock 0 sh'
	tell c 'flock 0 sh'
	pending b
	pending c
	kill -KILL "$(actor_of a)"
	expect_answer b ok
	expect_answer c ok
	# On one host alone, without a recall that would make it look: sooner than by anybody's patience.
	expect c 'flock 0 un' ok
	expect b 'flock 0 ex' ok
	actor d alpha
	expect d 'open 0 rw one/5' ok
	tell d 'flock 0 ex'
	pending d
	kill -KILL "$(actor_of b)"
	expect_answer d ok 2
}

. shunit2

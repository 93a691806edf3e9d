#!/bin/bash
# tests/45_groups_test.sh - a group: one lock of many files, owned by a thread
# modes: cluster
# limit: 240
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_actors.sh"

# Every test has a group of its own, so that none waits for the permission that another one left with a host.
# o/v is an ordinary lock, of the same name as the group gv.
grouped_host() {
	local group lines=("map $T/$1/s/o group-%b")
	for group in a b c d e f h i j k l m n o p q r s t u v w x y z; do lines+=("map $T/$1/s/g$group group-$group"); done
	host "$1" "${lines[@]}"
	mkdir "$T/$1/s/o"
	for group in a b c d e f h i j k l m n o p q r s t u v w x y z; do mkdir "$T/$1/s/g$group"; done
}

oneTimeSetUp() {
	zk_start || return 1
	grouped_host alpha
	grouped_host beta
}

# group NAME - files 1, 2, 3 of it are open in slots 1, 2, 3 of the actors a and b on alpha, c on beta
group() {
	local file actor
	actor a alpha
	actor b alpha
	actor c beta
	for actor in a b c; do
		for file in 1 2 3; do expect $actor "open $file rw g$1/$file" ok; done
	done
}

# free GROUP - another process, another host, a file that nobody has had: it is free for all of them
free() {
	assertEquals "free on alpha${2:+: $2}" granted "$(wait_for alpha "g$1/free" 3)"
	assertEquals "free on beta${2:+: $2}" granted "$(wait_for beta "g$1/free" 3)"
}

# taken GROUP - by a thread that is none of ours
taken() {
	assertEquals "taken, on alpha${2:+: $2}" busy "$(try alpha "g$1/taken")"
	assertEquals "taken, on beta${2:+: $2}" busy "$(try beta "g$1/taken")"
}

# all_wait NAME... - time itself is the subject: nobody is answered in it
all_wait() {
	sleep 0.3
	any_answered "$@"
	assertNotEquals "all wait: $*" 0 $?
}

# ---- who waits, who does not -----------------------------------------------------------------------------------------

test_another_file_of_the_group_waits_in_another_process_and_on_another_host() {
	group a
	expect a 'flock 1 ex' ok
	expect b 'flock 2 ex nb' EAGAIN
	expect c 'flock 2 ex nb' EAGAIN
	tell b 'flock 2 ex'
	tell c 'flock 3 ex'
	all_wait b c
	expect a 'flock 1 un' ok
	wait_until 5 any_answered b c
	assertTrue 'only one of them' '! { has_line b $((ANSWERS_READ[b] + 1)) && has_line c $((ANSWERS_READ[c] + 1)); }'
	if has_line b $((ANSWERS_READ[b] + 1)); then
		expect_answer b ok
		expect b 'flock 2 un' ok
		expect_answer c ok
	else
		expect_answer c ok
		expect c 'flock 3 un' ok
		expect_answer b ok
	fi
}

test_the_owner_takes_more_files_and_gives_them_back_in_any_order() {
	group b
	expect a 'flock 1 ex' ok
	expect a 'flock 2 ex' ok
	expect a 'flock 3 ex nb' ok
	expect a 'flock 1 un' ok
	taken b 'two are left'
	expect a 'flock 1 sh' ok
	expect a 'flock 3 un' ok
	expect a 'flock 2 un' ok
	assertEquals 'a reader is let in' granted "$(try alpha gb/r -m sh)"
	assertEquals 'no writer' busy "$(try alpha gb/r)"
	expect a 'flock 1 un' ok
	free b
}

test_all_kinds_are_one_lock() {
	group c
	expect a 'flock 1 ex' ok
	expect a 'setlk 2 wr 5 1' ok
	expect a 'osetlk 3 wr 0 0' ok
	expect b 'setlk 3 rd 100 1' EAGAIN
	expect a 'flock 1 un' ok
	expect b 'flock 1 ex nb' EAGAIN
	expect a 'setlk 2 un 0 0' ok
	expect b 'osetlk 1 rd 7 7' EAGAIN
	expect c 'setlk 1 wr 7 7' EAGAIN
	expect a 'osetlk 3 un 0 0' ok
	free c
}

test_bytes_do_not_matter() {
	group d
	expect a 'setlk 1 wr 0 1' ok
	expect a 'setlk 1 wr 10 1' ok
	expect b 'setlk 1 wr 100 1' EAGAIN
	expect c 'setlk 2 wr 100 1' EAGAIN
	expect a 'setlk 1 un 0 1' ok
	taken d 'one of its bytes is left'
	expect a 'setlk 1 un 10 1' ok
	free d
}

test_readers_share_and_keep_writers_out() {
	group e
	expect a 'flock 1 sh' ok
	expect b 'setlk 2 rd 0 0' ok
	expect c 'flock 3 sh nb' ok
	expect a 'setlk 3 rd 0 1' ok
	taken e
	expect a 'flock 1 un' ok
	expect a 'setlk 3 un 0 0' ok
	taken e 'b and c are left'
	expect b 'setlk 2 un 0 0' ok
	taken e 'c is left'
	expect c 'flock 3 un' ok
	free e
}

# As with one kernel: who waits for a reader of his own host keeps no reader of another host out.
test_a_writer_that_waits_locally_keeps_no_reader_out() {
	group w
	expect c 'flock 3 sh' ok
	expect a 'flock 1 sh' ok
	tell b 'flock 2 ex'
	pending b
	expect c 'flock 3 un' ok # now it is b's turn among the hosts
	pending b
	expect c 'flock 3 sh nb' ok 2
	pending b
	expect a 'flock 1 un' ok
	pending b
	expect c 'flock 3 un' ok
	expect_answer b ok
	taken w
	expect b 'flock 2 un' ok
	free w
}

test_threads_are_owners() {
	group f
	expect a 't1 flock 1 ex' ok
	expect a 't1 flock 2 ex' ok
	expect a 't2 flock 3 ex nb' EAGAIN
	expect a 't2 setlk 3 rd 0 0' EAGAIN
	tell a 't2 setlkw 3 wr 0 0'
	all_wait a
	expect b 'flock 1 un' ok
	tell a 't1 flock 1 un'
	expect_answer a ok
	all_wait a
	tell a 't1 flock 2 un'
	expect_answer a ok
	expect_answer a ok 5 'the other thread gets it'
	expect a 't1 flock 1 ex nb' EAGAIN
	expect a 't1 setlk 3 un 0 0' ok
	free f 'another thread than the taker has unlocked'
}

# One description, two threads: natively one owner, in a group two.
test_a_description_that_a_living_thread_holds_is_that_thread_s() {
	group h
	expect a 't1 flock 1 ex' ok
	expect a 't2 flock 1 ex nb' EAGAIN
	taken h 'the refusal has dropped nothing'
	tell a 't2 flock 1 ex'
	all_wait a
	tell a 't1 flock 1 un'
	expect_answer a ok
	expect_answer a ok
	expect a 't1 flock 2 sh nb' EAGAIN
	expect a 't2 flock 1 un' ok
	free h
}

test_a_thread_that_ends_leaves_its_hold_to_the_process() {
	group i
	expect a 't1 flock 1 ex' ok
	expect a 't2 flock 2 ex nb' EAGAIN
	expect a 'endthread 1' ok
	taken i
	expect a 't2 flock 2 ex nb' ok
	expect a 't2 flock 1 un' ok
	taken i
	expect a 't2 flock 2 un' ok
	free i
}

# The program's own numbers of its threads are not the keeper's.
test_threads_in_a_pid_namespace_of_their_own() {
	unshare -pf true 2>/dev/null || { skip 'unshare -p is not allowed' && return; }
	assertEquals 'the keeper is outside' granted "$(try alpha gz/1)"
	new_channel inner
	spawn alpha unshare -pf "$PROBES/actor" "$T/actors/inner.in" "$T/actors/inner.out"
	expect_answer inner ready
	expect inner 'open 1 rw gz/1' ok
	expect inner 'open 2 rw gz/2' ok
	expect inner 't1 flock 1 ex' ok
	expect inner 't1 flock 2 ex nb' ok
	expect inner 't2 setlk 2 wr 0 0' EAGAIN
	expect inner 't1 flock 1 un' ok
	taken z
	expect inner 't1 flock 2 un' ok
	expect inner 't2 setlk 2 wr 0 0' ok
	expect inner 'flock 1 ex nb' EAGAIN
	expect inner 't2 flock 1 ex nb' ok
	tell inner 'exit 0'
	free z
}

# A keeper that can't tell who is who: nobody is an owner, and two are never in.
test_a_keeper_that_can_not_trust_proc() {
	unshare -pf true 2>/dev/null || { skip 'unshare -p is not allowed' && return; }
	host delta "map $T/delta/s/gd group-delta"
	mkdir "$T/delta/s/gd"
	new_channel first
	spawn delta unshare -pf "$PROBES/actor" "$T/actors/first.in" "$T/actors/first.out"
	expect_answer first ready
	expect first 'open 1 rw gd/1' ok
	expect first 'open 2 rw gd/2' ok
	expect first 'flock 1 sh' ok
	expect first 'flock 2 sh nb' ok
	expect first 'flock 2 ex nb' EAGAIN
	expect first 't1 flock 2 ex nb' EAGAIN
	expect first 'flock 1 un' ok
	expect first 'flock 1 ex nb' ok
	expect first 'flock 2 sh nb' EAGAIN
	expect first 'flock 1 un' ok
	expect first 't1 flock 2 ex nb' ok
	tell first 'exit 0'
}

# Another host waits for what the owner has: he would wait for himself if he were to queue behind it.
test_the_owner_is_served_while_another_host_waits() {
	gate recalled
	group k
	expect a 'flock 1 ex' ok
	tell c 'flock 3 ex'
	all_wait c
	expect a 'flock 2 ex nb' ok 2
	expect a 'setlkw 3 wr 0 0' ok 2
	expect a 'flock 1 un' ok
	expect a 'flock 1 sh' ok 2
	expect a 'close 3' ok
	expect a 'flock 2 un' ok
	expect a 'flock 3 sh nb' EBADF
	all_wait c # a reads still
	expect a 'flock 2 sh' ok 2
	expect a 'setlkw 2 rd 5 1' ok 2
	expect a 'flock 1 un' ok
	expect a 'close 2' ok
	expect_answer c ok 3
	expect c 'flock 3 un' ok
	spawn alpha sh -c '( flock -s 9; read _ <>"$1/recalled"; flock -s 8; flock -sn 7 && echo in; read _ <>"$1/recalled" ) 9>gk/a 8>gk/b 7>gk/c' sh "$T"
	assertTrue 'the subshell reads' 'wait_until 5 reads k'
	tell c 'flock 3 ex'
	all_wait c
	open_gate recalled
	assertTrue 'the subshell reads more' 'wait_until 2 contains "$spawned_out" in'
	all_wait c
	open_gate recalled
	expect_answer c ok 3
}
reads() { [ "$(try beta "g$1/x")$(try beta "g$1/x" -m sh)" = busygranted ]; }

# ---- how holds end ---------------------------------------------------------------------------------------------------

test_close_exit_kill_and_exec_end_holds() {
	group j
	expect a 'flock 1 ex' ok
	expect a 'setlk 2 wr 0 0' ok
	expect a 'close 1' ok
	taken j
	expect a 'close 2' ok
	free j close
	expect a 'open 1 rw gj/1' ok
	expect a 'flock 1 ex' ok
	expect a 'cloexec 1' ok
	expect a exec ok
	free j exec
	expect a 'flock 3 ex' ok
	expect a exec ok
	taken j 'no close-on-exec'
	expect a 'flock 3 ex' ok
	tell a 'exit 0'
	free j exit
	expect b 'flock 1 ex' ok
	expect b 'osetlk 2 wr 0 0' ok
	expect b 'setlk 3 wr 0 0' ok
	kill -KILL "$(actor_of b)"
	free j SIGKILL
}

test_a_waiter_gets_it_from_a_killed_owner_of_three_files() {
	group k
	expect a 'flock 1 ex' ok
	expect a 'flock 2 ex' ok
	expect a 'setlk 3 wr 0 0' ok
	tell b 'flock 3 ex'
	tell c 'setlkw 1 wr 0 0'
	all_wait b c
	kill -KILL "$(actor_of a)"
	wait_until 3 any_answered b c
	assertEquals 'one of them has it' 0 $?
	has_line b $((ANSWERS_READ[b] + 1)) && expect b 'flock 3 un' ok
	expect_answer c ok
}

test_a_child_keeps_the_hold() {
	group l
	expect a 'flock 1 ex' ok
	forked child a
	kill -KILL "$(actor_of a)"
	taken l 'the child has the descriptor'
	expect child 'flock 2 ex nb' ok
	expect child 'flock 1 un' ok
	taken l
	expect child 'flock 2 un' ok
	free l
}

test_a_child_of_a_living_owner_waits() {
	group m
	expect a 'flock 1 ex' ok
	forked child a
	expect child 'flock 2 ex nb' EAGAIN
	expect child 'flock 1 un' ok
	expect child 'flock 2 ex nb' ok
	expect a 'flock 3 sh nb' EAGAIN
	expect child 'flock 2 un' ok
	free m 'the child has ended its parent'\''s hold'
}

# The taker of 9 is gone when the taker of 8 asks; the description is the shell's.
test_the_subshell_idiom_nests() {
	gate nested
	spawn alpha sh -c '( flock 9; flock 8; flock -s 7; echo in; read _ <>"$1/nested"; flock -u 8; echo out; read _ <>"$1/nested" ) \
		9>gn/a 8>gn/b 7>gn/c' sh "$T"
	assertTrue 'it does not wait for itself' 'wait_until 10 contains "$spawned_out" in'
	taken n
	open_gate nested
	assertTrue 'one goes' 'wait_until 5 contains "$spawned_out" out'
	taken n 'two are left'
	open_gate nested
	free n
}

test_two_subshells_exclude_each_other() {
	local i
	echo 0 >"$T/count"
	for i in 1 2 3 4; do
		spawn alpha sh -c '( flock 9; flock 8; read n <"$1/count"; sleep 0.05; n=$((n + 1)); echo $n >"$1/count" ) 9>go/a'$i' 8>go/b' sh "$T"
		spawn beta sh -c '( flock 9; flock 8; read n <"$1/count"; sleep 0.05; n=$((n + 1)); echo $n >"$1/count" ) 9>go/a 8>go/b'$i sh "$T"
	done
	assertTrue 'all have been in' 'wait_until 20 contains "$T/count" 8'
}

# ---- shared holders one by one, conversion ---------------------------------------------------------------------------

test_a_sole_reader_upgrades() {
	group p
	expect a 'flock 1 sh' ok
	expect a 'setlk 2 rd 0 0' ok
	expect a 'flock 1 ex nb' ok
	taken p
	expect a 'flock 1 sh' ok
	expect b 'flock 1 sh nb' ok
	expect b 'flock 2 sh nb' ok
	expect a 'flock 2 ex nb' EAGAIN
	expect b 'flock 1 un' ok
	expect a 'flock 3 ex nb' EAGAIN
	expect b 'close 2' ok
	expect a 'flock 3 ex nb' ok
	expect a 'flock 3 un' ok
	expect c 'flock 3 sh' ok
	expect a 'flock 3 ex nb' EAGAIN
	tell a 'flock 3 ex'
	all_wait a
	expect c 'flock 3 un' ok
	expect_answer a ok
}

# Two that both ask for more through the description that they read with: each drops what it has, and waits.
test_two_readers_that_upgrade() {
	local pair first second
	group q
	for pair in 'a b' 'a c'; do
		first=${pair% *} second=${pair#* }
		expect "$first" 'flock 1 sh' ok
		expect "$second" 'flock 2 sh' ok
		tell "$first" 'flock 1 ex'
		all_wait "$first"
		tell "$second" 'flock 2 ex'
		wait_until 10 any_answered "$first" "$second"
		assertEquals "$pair: one has it" 0 $?
		if has_line "$first" $((ANSWERS_READ[$first] + 1)); then
			expect_answer "$first" ok
			expect "$first" 'flock 1 un' ok
			expect_answer "$second" ok
			expect "$second" 'flock 2 un' ok
		else
			expect_answer "$second" ok
			expect "$second" 'flock 2 un' ok
			expect_answer "$first" ok
			expect "$first" 'flock 1 un' ok
		fi
	done
	free q
}

# Readers of one and the same file, of which some have passed their descriptor on.
test_shared_holders_end_one_by_one() {
	group r
	expect a 'flock 1 sh' ok
	expect b 'flock 1 sh' ok
	expect b 'open 4 rw gr/1' ok
	expect b 't1 flock 4 sh' ok
	forked child b
	kill -KILL "$(actor_of b)"
	expect a 'flock 2 ex nb' EAGAIN
	expect child 'close 1' ok
	expect a 'flock 2 ex nb' EAGAIN
	expect child 'flock 4 un' ok
	expect a 'flock 2 ex nb' ok
	expect a 'flock 2 un' ok
	expect a 'flock 1 un' ok
	free r
}

test_readers_of_one_process() {
	group s
	expect a 'open 4 rw gs/1' ok
	expect a 't1 flock 1 sh' ok
	expect a 't2 flock 4 sh' ok
	expect a 't1 flock 2 ex nb' EAGAIN
	expect a 't2 flock 4 un' ok
	expect a 't1 flock 2 ex nb' ok
	expect a 't1 flock 2 un' ok
	expect a 't2 flock 4 sh' ok
	expect a 't1 flock 1 un' ok
	expect a 't2 flock 2 ex nb' ok
}

# ---- signals, questions ----------------------------------------------------------------------------------------------

test_a_signal_ends_a_wait() {
	group t
	expect a 'flock 1 ex' ok
	expect b 'alarm 300 norestart' ok
	expect b 'flock 2 ex' EINTR
	expect b 'setlkw 2 wr 0 0' EINTR
	expect b 'alarm 0 norestart' ok
	expect a 'flock 1 un' ok
	free t
}

test_getlk_tells_of_other_owners() {
	local pid
	group u
	pid=$(actor_of a)
	expect a 'flock 1 ex' ok
	expect a 'getlk 2 wr 5 1' free
	expect b 'getlk 2 rd 5 1' "wr 0 0 $pid"
	tell c 'getlk 2 wr 5 1'
	answer c 5
	assertEquals 'on another host' 'wr 0 0' "${ANSWER% *}"
	expect a 't1 getlk 2 wr 0 0' "wr 0 0 $pid"
	expect a 'flock 1 sh' ok
	expect b 'getlk 2 rd 5 1' free
	expect b 'getlk 3 wr 5 1' "rd 0 0 $pid"
	expect a 'flock 1 un' ok
	expect b 'getlk 3 wr 5 1' free
}

test_two_readers_that_both_want_to_write_by_records() {
	group v
	expect a 'setlk 1 rd 0 0' ok
	expect b 'setlk 2 rd 0 0' ok
	tell a 'setlkw 1 wr 0 0'
	all_wait a
	expect b 'setlkw 2 wr 0 0' EDEADLK
	all_wait a
	expect b 'setlk 2 un 0 0' ok
	expect_answer a ok
	expect a 'setlk 1 un 0 0' ok
	expect a 't1 setlk 1 rd 0 0' ok
	expect a 't2 osetlk 2 rd 0 0' ok
	tell a 't2 osetlkw 3 wr 0 0'
	all_wait a
	expect a 't1 setlkw 3 wr 0 0' EDEADLK
	expect a 't1 flock 3 sh' ok
	expect a 't1 flock 3 un' ok
	tell a 't1 setlk 1 un 0 0'
	expect_answer a ok
	expect_answer a ok
}

# Neither a false deadlock, nor an answer that an ordinary record lock of the same name gives: d waits for b, who waits for a,
# in whose way nobody is.  What d has of the same name, and b does not wait for, makes no circle of it.  Nor are b and e in
# each other's way, who both wait and have nothing.
test_no_deadlock_is_reported() {
	local actor
	group v
	for actor in d e; do
		actor $actor alpha
		expect $actor 'open 1 rw gv/1' ok
	done
	expect b 'open 5 rw o/w' ok
	expect d 'open 4 rw o/v' ok
	expect d 'open 5 rw o/w' ok
	expect b 'setlk 5 wr 0 0' ok
	expect d 'setlk 4 wr 0 0' ok
	expect a 'setlk 1 wr 0 0' ok
	tell d 'setlkw 5 wr 0 0'
	pending d
	tell b 'setlkw 2 wr 0 0'
	pending b
	tell e 'setlkw 1 wr 0 0'
	tell c 'setlkw 3 wr 0 0'
	nobody_answers 1 b c d e
	expect a 'setlkw 2 wr 0 0' ok
	expect a 'setlkw 3 wr 0 0' ok
	kill -KILL "$(actor_of a)"
	wait_until 5 any_answered b c e
	assertEquals 'one has it' 0 $?
}

# ---- an ordinary lock that is several files -------------------------------------------------------------------------

# replaced KIND... - a holds the file s/FILE in slot 1, which is then another one, open in slot 2; b has the new one in 2
replaced() {
	actor a alpha
	actor b alpha
	expect a "open 1 rw $1" ok
	expect b "open 1 rw $1" ok
	expect a "$2" ok
	expect a "$3" ok
	expect a "open 2 rw $1" ok
	expect b "open 2 rw $1" ok
	expect a "inode 1 $1" other
}

test_a_lock_file_that_its_holder_replaces() {
	replaced replaced 'flock 1 ex' 'unlink replaced'
	expect b 'flock 2 ex nb' EAGAIN
	expect a 'flock 2 ex nb' ok
	expect a 'flock 1 un' ok
	expect b 'flock 2 sh nb' EAGAIN
	assertEquals beta busy "$(try beta replaced)"
	expect a 'flock 2 sh' ok
	expect b 'flock 2 sh nb' ok
	expect a 'flock 2 un' ok
	expect b 'flock 2 ex nb' ok
	expect b 'flock 1 ex' ok
}

# b waits in the kernel for the old file while a takes the new one, and must not believe in the old one when it gets that.
test_a_waiter_for_the_old_file() {
	actor a alpha
	actor b alpha
	expect a 'open 1 rw waited' ok
	expect b 'open 1 rw waited' ok
	expect a 'flock 1 ex' ok
	tell b 'flock 1 ex'
	all_wait b
	expect a 'unlink waited' ok
	expect a 'open 2 rw waited' ok
	expect a 'flock 2 ex' ok
	expect a 'flock 1 un' ok
	all_wait b
	assertEquals beta busy "$(try beta waited)"
	expect a 'flock 2 un' ok
	expect_answer b ok
}

# The same with somebody who asked the keeper before he waited in the kernel: another host had the lock then.
test_a_waiter_for_the_old_file_that_had_asked() {
	local first=a second=b
	actor a alpha
	actor b alpha
	actor c beta
	expect a 'open 1 rw asked' ok
	expect b 'open 1 rw asked' ok
	expect c 'open 1 rw asked' ok
	expect c 'flock 1 ex' ok
	tell a 'flock 1 ex'
	tell b 'flock 1 ex'
	all_wait a b
	expect c 'flock 1 un' ok
	wait_until 5 any_answered a b
	has_line a $((ANSWERS_READ[a] + 1)) || { first=b second=a; }
	expect_answer $first ok
	expect $first 'unlink asked' ok
	expect $first 'open 2 rw asked' ok
	expect $first 'flock 2 ex' ok
	expect $first 'flock 1 un' ok
	all_wait $second
	expect $first 'flock 2 un' ok
	expect_answer $second ok
}

test_records_of_a_file_that_is_replaced() {
	echo >"$T/alpha/s/fresh"
	replaced records 'setlk 1 wr 0 10' 'rename fresh records'
	expect a 'osetlk 1 wr 20 10' ok
	expect b 'setlk 2 wr 5 1' EAGAIN
	expect b 'setlk 2 wr 25 1' EAGAIN
	expect b 'setlk 2 wr 15 1' ok
	expect a 'setlk 2 wr 15 1' EAGAIN
	expect a 'setlk 2 wr 0 10' ok
	expect a 'osetlk 2 wr 20 10' ok
	forked child a
	expect b 'setlk 2 un 0 0' ok
	expect a 'setlk 1 un 0 0' ok
	expect a 'osetlk 1 wr 40 1' ok
	expect a 'osetlk 2 wr 40 1' ok
	expect b 'setlk 2 rd 40 1' EAGAIN
	# What is shared may be several owners': a child has the description as well, b has another range, then the same one.
	expect a 'osetlk 1 rd 50 1' ok
	expect b 'setlk 1 wr 60 1' ok
	expect a 'osetlk 2 wr 50 1' ok
	expect b 'setlk 1 rd 70 1' ok
	expect a 'osetlk 1 rd 70 1' ok
	expect a 'osetlk 2 wr 70 1' EAGAIN
}

# ---- what it costs, what people see, what a keeper's death does ------------------------------------------------------

test_reentrant_calls_cost_no_zookeeper_operation() {
	local before packets
	group w
	expect a 'flock 1 ex' ok
	before=$(claims_of_group w)
	expect a 'flock 2 ex' ok
	expect a 'flock 2 un' ok
	packets=$(zk_mntr zk_packets_received)
	expect a 'again 2000 flock 2 ex' ok
	expect a 'again 2000 setlk 3 wr 0 0' ok
	# A heartbeat every 600 ms, of each of two hosts, and our own questions.
	assertTrue "packets: $packets, then $(zk_mntr zk_packets_received)" "[ $(($(zk_mntr zk_packets_received) - packets)) -lt 100 ]"
	assertEquals 'claims' "$before" "$(claims_of_group w)"
}
# keep=0: given back with the last of its files, and not before
test_a_group_that_is_not_kept() {
	host epsilon "map $T/epsilon/s/ge group-e0 keep=0"
	mkdir "$T/epsilon/s/ge"
	actor a epsilon
	expect a 'open 1 rw ge/1' ok
	expect a 'open 2 rw ge/2' ok
	expect a 'flock 1 ex' ok
	expect a 'setlk 2 wr 0 0' ok
	expect a 'close 1' ok
	sleep 0.3 # time is the subject
	assertEquals 'one is left' 1 "$(claims_of_group e0)"
	expect a 'close 2' ok
	assertTrue 'given back' 'wait_until 3 no_claims_of_group e0'
}
no_claims_of_group() { [ "$(claims_of_group "$1")" = 0 ]; }

claims_of_group() { zkcat count "/zkflock/groups/group-$1"; }

test_list_shows_who_holds_what() {
	local list
	group x
	expect a 'flock 1 sh' ok
	expect a 'setlk 2 rd 0 1' ok
	expect b 'flock 3 sh' ok
	list=$(on alpha env -u LD_PRELOAD "$BUILD/zkflock" list | grep -w group-x)
	assertEquals "$list" 3 "$(grep -cE 'GROUP +READ' <<<"$list")"
	assertEquals "$list" 2 "$(grep -cw "$(actor_of a)" <<<"$list")"
	assertEquals "$list" 1 "$(grep -w "$(actor_of b)" <<<"$list" | grep -c 'held.*/gx/3$')"
	assertEquals "$list" 1 "$(grep -c 'held.*/gx/2$' <<<"$list")"
}

test_a_new_keeper_knows_the_threads_again() {
	local old
	group y
	expect a 't1 flock 1 ex' ok
	expect a 't1 setlk 2 wr 0 0' ok
	tell b 'flock 3 ex'
	all_wait b
	old=$(keeper_pid alpha)
	kill -KILL "$old"
	assertTrue 'a new one' "wait_until 10 new_keeper alpha $old"
	expect a 't2 flock 3 ex nb' EAGAIN
	expect a 't1 flock 3 ex' ok
	all_wait b
	assertEquals 'beta' busy "$(try beta gy/1)"
	expect a 't1 flock 1 un' ok
	expect a 't1 setlk 2 un 0 0' ok
	all_wait b
	tell a 't1 flock 3 un'
	expect_answer a ok
	expect_answer b ok
	expect b 'flock 3 un' ok
	free y
}
new_keeper() {
	local pid
	pid=$(keeper_pid "$1") && [ "$pid" != "$2" ]
}

. shunit2

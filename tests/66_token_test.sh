#!/bin/bash
# tests/66_token_test.sh - zkflock token: numbers that only grow from holder to holder, whoever overtook whom
# modes: cluster
# limit: 120
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_actors.sh"

oneTimeSetUp() {
	local name
	zk_start || return 1
	for name in alpha beta; do
		host $name "map $T/$name/s/g group" "map $T/$name/s/w w/%r on_loss=warn" "map $T/$name/s/no -" \
			'connect_timeout 1s'
		mkdir -p "$T/$name"/s/{g,w,no}
		assertEquals "$name has a keeper" granted "$(wait_for $name f 20)"
	done
}

# token HOST FILE - what `zkflock token` says
token() { within 10 "$1" env -u LD_PRELOAD "$BUILD/zkflock" token "$2"; }

# next_token HOST FILE - asserts that it is larger than the last one, $last
next_token() {
	local number
	number=$(token "$1" "$2" 2>&1)
	assertTrue "$1: $number after $last" "[ '$number' -gt $last ]"
	[ "$number" -gt "$last" ] && last=$number
}

# no_token HOST FILE - asserts that this host has nothing
no_token() {
	local said
	said=$(token "$1" "$2" 2>&1)
	assertEquals "$1 $2: $said" 1 $?
	assertContains "$said" "$said" 'this host has nothing of its lock'
}

test_tokens_grow_from_holder_to_holder() {
	local last=0 round name other=beta
	for round in first second; do
		for name in alpha beta; do
			hold $name f || fail "$round: $name" || return
			next_token $name f
			next_token $name f
			no_token $other f
			end "$holder"
			other=$name
		done
	done
}

# Beta's claim for the whole is older than alpha's for byte 2, which overtakes it: their holders come in the other order.
test_who_was_overtaken_gets_the_larger_one() {
	local last=0
	actors r a=alpha b=beta
	expect a 'setlk 0 wr 1 1' ok
	next_token alpha r
	tell b 'setlkw 0 wr 0 0'
	wait_until 5 claims_are records r 2
	pending b
	expect a 'setlk 0 wr 2 1' ok
	next_token alpha r
	no_token beta r
	expect a 'setlk 0 un 0 0' ok
	expect_answer b ok
	next_token beta r
}

test_readers_have_one_each_and_the_writer_the_largest() {
	local last=0
	actors f2 a=alpha b=beta
	expect a 'flock 0 sh' ok
	expect b 'flock 0 sh' ok
	next_token alpha f2
	next_token beta f2
	next_token alpha f2
	expect b 'flock 0 un' ok
	expect a 'flock 0 ex' ok
	next_token alpha f2
	no_token beta f2
}

# One lock: whichever of its files is named, whether it is locked or not, and by whichever call.
test_a_group_has_one() {
	local last=0
	actors g/1,g/2 a=alpha b=beta
	expect a 'flock 0 ex' ok
	next_token alpha g/1
	next_token alpha g/2
	no_token beta g/1
	expect a 'flock 0 un' ok
	expect b 'setlkw 1 wr 0 0' ok
	next_token beta g/1
}

test_a_new_keeper_goes_on() {
	local last=0
	hold alpha f3 || return
	next_token alpha f3
	kill -KILL "$(keeper_pid alpha)"
	wait_until 5 keeper_pid alpha >/dev/null
	next_token alpha f3
	end "$holder"
	hold beta f3 || return
	next_token beta f3
	end "$holder"
}

# An operator's hand, or a server that has lost it: whatever the host believes, nothing is confirmed.
test_a_claim_that_is_gone_gives_none() {
	local last=0 queue=/zkflock/locks/w%2Ff
	hold alpha w/f || return
	next_token alpha w/f
	zkcat delete "$queue/$(zkcat ls $queue)"
	no_token alpha w/f
	end "$holder"
}

test_what_has_none() {
	local said
	said=$(token alpha no/f 2>&1)
	assertEquals "no such file: $said" 2 $?
	on alpha touch no/f
	said=$(token alpha no/f 2>&1)
	assertEquals "not mapped: $said" 1 $?
	assertContains "$said" "$said" 'not a cluster lock'
	said=$(token alpha '' 2>&1)
	assertEquals "empty: $said" 2 $?
	said=$(ZKFLOCK_RUNTIME_DIR=$T/nowhere "$BUILD/zkflock" token "$T/alpha/s/no/f" 2>&1)
	assertEquals "no keeper: $said" 3 $?
	for words in '' 'a b' '--quick'; do
		# shellcheck disable=SC2086 # words
		said=$("$BUILD/zkflock" token $words 2>&1)
		assertEquals "'$words': $said" 64 $?
	done
}

test_without_servers_there_is_an_answer_in_time() {
	local said last=0
	hold alpha f4 || return
	zk_stop
	said=$(token alpha f4 2>&1)
	assertEquals "$said" 2 $?
	assertContains "$said" "$said" 'the keeper says: '
	signal KILL "$holder" # it may stand still
	zk_start
	hold alpha f4 || return
	next_token alpha f4
	end "$holder"
}

# shellcheck source=/dev/null
. shunit2

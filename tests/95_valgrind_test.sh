# tests/95_valgrind_test.sh - the library's way through a lock call under valgrind
#
# Every kind of call, covered by the page and asked for, granted and refused, waited for and in a program that forks.  The
# keeper runs already, as its start is not what is looked at.  An error of valgrind's is one of ours: the probes make none
# without the library, which is looked at as well.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
. "$(dirname "$0")/lib.sh"

command -v valgrind >/dev/null || no_valgrind='valgrind is not installed'

# looked_at HOST CMD... - run it under valgrind on a host; prints what CMD prints, and errors.  That valgrind does not know a
# `how` is no error: the library asks with one that nobody knows whether memory can be read (preload/real.c).
looked_at() {
	local host=$1
	shift
	within 60 "$host" valgrind -q --error-exitcode=99 --child-silent-after-fork=no --log-file="$T/valgrind" "$@"
	[ $? -ne 99 ] || echo 'errors'
	grep -v "sigprocmask: unknown 'how' field" "$T/valgrind"
	return 0
}

test_a_flock_and_a_record() {
	[ -z "$no_valgrind" ] || { skip "$no_valgrind" && assertTrue true && return; }
	hold beta held.lock || fail 'beta has no lock'
	assertEquals 'another host has it' busy "$(looked_at alpha "$PROBES/lock" held.lock)"
	assertEquals 'a part, asked for' granted "$(looked_at alpha "$PROBES/lock" -w -k posix -r 10,20 asked.lock)"
}

# ---- by `make check-sanitized` ---------------------------------------------------------------------------------------

long_every_kind_of_lock() {
	local kind
	for kind in flock posix ofd lockf; do
		assertEquals 'the keeper runs' granted "$(wait_for alpha "$kind.lock" 20 -k "$kind")"
		assertEquals "$kind, covered" granted "$(looked_at alpha "$PROBES/lock" -k "$kind" "$kind.lock")"
	done
}

long_asked_for_and_refused() {
	assertEquals 'the keeper runs' granted "$(wait_for alpha other.lock 20)"
	assertEquals 'a part' granted "$(looked_at alpha "$PROBES/lock" -w -k posix -r 10,20 asked.lock)"
	hold beta held.lock || fail 'beta has no lock'
	assertEquals 'another host has it' busy "$(looked_at alpha "$PROBES/lock" held.lock)"
	kill "$holder"
	assertEquals 'and has no more' granted "$(looked_at alpha "$PROBES/lock" -w held.lock)"
}

long_many_in_turn() {
	assertEquals 'the keeper runs' granted "$(wait_for alpha turn.lock 20)"
	spawn beta "$PROBES/contend" turn.lock "$T/turn" 40
	assertContains "$(looked_at alpha "$PROBES/contend" turn.lock "$T/turn" 40)" 'counted 40 violations 0'
	wait "$spawned"
	assertEquals 80 "$(counter_of "$T/turn")"
}

. shunit2

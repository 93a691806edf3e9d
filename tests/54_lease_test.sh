#!/bin/bash
# tests/54_lease_test.sh - the lease is over before the servers can give a lock away, whatever the settings
# modes: native
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
. "$(dirname "$0")/lib.sh"

# Every game of tests/probes/lease_play.c: a partition, or a keeper that is stopped, at any moment.
test_no_cut_at_any_moment_makes_two_holders() {
	local said
	said=$(timeout 60 "$PROBES/lease_play")
	assertEquals "$said" 0 $?
	assertTrue "$said" "[ ${said%% *} -gt 10000 ]"
}

# The table in the head of keeper/lease.h is this one.
test_the_story_in_the_header() {
	assertEquals 'deadline 7.000 s, given away 10.000 s' "$("$PROBES/lease_play" -v 10000 2000 | tail -n 1)"
	assertTrue 'and it tells so' "grep -q 'deadline = 0 + 10 - 1 - 2 = 7.0' '$TESTS/../keeper/lease.h'"
}

. shunit2

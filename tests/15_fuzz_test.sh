# tests/15_fuzz_test.sh - damaged configurations, claims and requests; `make fuzz` looks for more
#
# The targets of tests/fuzz/ run their seeds and mutations of them, by a number that is told; FUZZ_SEED repeats one.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
MODE=native . "$(dirname "$0")/lib.sh"
FUZZ_SEED=${FUZZ_SEED:-$RANDOM}

# fuzz TARGET COUNT
fuzz() {
	local said
	said=$(timeout 60 "$BUILD/fuzz/$1" "$2" "$FUZZ_SEED" "$TESTS/fuzz/$1" 2>&1)
	assertEquals "$1 $2 $FUZZ_SEED: $said" 0 $?
	assertTrue "$1: $said" "[ $((said)) -gt $2 ]"
}

test_configurations() { fuzz config 20000; }
test_claims() { fuzz claim 20000; }
test_requests() { fuzz server 1500; }

. shunit2

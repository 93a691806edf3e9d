#!/bin/bash
# tests/70_differential_test.sh - random sequences of lock calls: over hosts each reply is the one that the kernel gives
# modes: native cluster
# limit: 240
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2119
. "$(dirname "$0")/differential"

oneTimeSetUp() {
	zk_start || return 1
	differential_hosts
}

# Natively it is the control: the driver's model of the kernel against the kernel, twice.
# --avoid queue: a call that may wait, of a host that holds nothing of the lock, queues behind whoever waits already.
test_random_sequences() {
	local seconds=60
	cluster || seconds=10
	differential --avoid queue --seconds "$seconds" --shrink-seconds 60 >"$T/differential.log" 2>&1
	assertEquals 'all sequences agree' 0 $?
	cat "$T/differential.log"
	assertTrue 'sequences have run' "grep -qE '^[0-9]{2,} sequences' '$T/differential.log'"
}

# shellcheck source=/dev/null
. shunit2

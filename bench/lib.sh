# bench/lib.sh - what the benchmarks share: the tests' server and hosts, and the loop
#
# Only counts and ratios of one run are worth comparing; times are this machine's at this moment.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
BENCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset ZKF_RESULTS # these servers and hosts are ours, whoever calls
# shellcheck source=tests/lib.sh
. "$BENCH/../tests/lib.sh"

fail() { echo "$*" >&2; }

# least NUMBER... - what the machine does when nothing else disturbs
least() { printf '%s\n' "$@" | sort -n | head -n 1; }

# bench_start [NAME...] - build the loop, start a server and hosts; everything ends with the script
bench_start() {
	local name
	if ! { [ -e "$BUILD/libzkflock.so" ] && [ -x "$BUILD/zkflockd" ]; }; then
		echo "nothing in $BUILD; run make" >&2
		exit 2
	fi
	LOOP=$BUILD/bench/loop
	mkdir -p "$BUILD/bench"
	if [ ! -x "$LOOP" ] || [ "$BENCH/loop.c" -nt "$LOOP" ]; then
		"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -o "$LOOP.$$" "$BENCH/loop.c" && mv "$LOOP.$$" "$LOOP" || exit 2
	fi
	trap 'oneTimeTearDown' EXIT
	trap 'exit 130' INT TERM
	# shellcheck disable=SC2119
	zk_start || exit 2
	for name; do host "$name"; done
}

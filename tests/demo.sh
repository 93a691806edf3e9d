#!/bin/bash
# tests/demo.sh - lost updates without zkflock, none with it; then the table of locks
#
# A throwaway ZooKeeper server on loopback and two "hosts": a host has its own directory with its own lock file, as two
# machines have, and its own keeper.  The counter that both increment is one file, and not what is locked.
# Leaves nothing running and nothing behind.  Exit status 0 when nothing was lost with zkflock.
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fail() { echo "demo: $*" >&2; }

JOBS_PER_HOST=2
ROUNDS=75
expected=$((2 * JOBS_PER_HOST * ROUNDS))

# shellcheck disable=SC2317 # called by trap
finish() {
	tearDown
	oneTimeTearDown
}
trap finish EXIT
trap 'exit 130' INT TERM

# on_host HOST CMD... - in the host's directory, with its configuration
on_host() {
	local name=$1
	shift
	env -C "$T/$name/s" "ZKFLOCK_CONF=$T/$name/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$name/run" "$@"
}

# count [WORD...] - run the job on both hosts at once, with WORDs before its command line; sets $counted
count() {
	local name pids=()
	echo 0 >"$T/counter"
	for name in alpha beta; do
		for _ in $(seq $JOBS_PER_HOST); do
			on_host $name "$@" ./job "$T/counter" $ROUNDS </dev/null &
			pids+=($!)
		done
	done
	wait "${pids[@]}"
	counted=$(<"$T/counter")
}

# report TITLE - one line for a count
report() {
	local lost=$((expected - counted))
	printf '  %-16s expected %d, got %d: %s\n' "$1" $expected "$counted" \
		"$([ $lost = 0 ] && echo 'no update lost' || echo "$lost updates lost")"
}

echo 'Starting a ZooKeeper server on loopback ...'
zk_start || exit 1
for name in alpha beta; do
	host $name
	# The job is an ordinary script that knows nothing of zkflock.
	script $name job <<'END'
#!/bin/sh
# job COUNTER ROUNDS - increment the number in the file COUNTER, under a lock
i=0
while [ $((i += 1)) -le "$2" ]; do
	flock job.lock sh -c 'read n <"$0"; sleep 0.01; echo $((n + 1)) >"$0"' "$1"
done
END
done

echo
echo "Two hosts, alpha and beta, increment one counter $expected times with this job, both at once:"
echo
sed -n '3,$s/^/    /p' "$T/alpha/s/job"
echo
count
report 'without zkflock:'
count "$BUILD/zkflock" run
report 'with zkflock:'
verdict=$((counted != expected))

hold alpha job.lock || exit 1
spawn beta "$PROBES/lock" -w job.lock
wait_until 10 claims_are locks job.lock 2
sleep 1 # for the table: a wait of some age
echo
echo '"zkflock list" on beta, while a process on alpha holds the lock and one on beta waits for it:'
echo
on_host beta "$BUILD/zkflock" list | sed 's/^/    /'
echo
exit $verdict

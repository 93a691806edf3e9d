#!/bin/bash
# tests/57_proxy_test.sh - replies that are lost, servers that can't be used: an outcome that is not known is found out, and
# what is wrong is said
# modes: cluster
# limit: 240
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
ZKFLOCK_TEST_LOG=warn # the keeper's level, too
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_loss.sh"
. "$(dirname "$0")/lib_ensemble.sh"

oneTimeSetUp() {
	local try
	zk_start || return 1
	for try in 1 2 3; do
		PORTS=$((RANDOM % 9000 + 21000))
		proxy_start "c=zk:$(link_port 1):$ZK_PORT" "hung=$(link_port 2):$ZK_PORT" "refused=$(link_port 3):$ZK_PORT" && break
	done
	[ "$proxy_pid" ] || { fail "no proxy: $(cat "$T/proxy.log")" && return 1; }
	proxy freeze hung
	proxy cut refused
	# alpha's packets go through the link c.  Its session bears a few reconnects on a busy machine.
	SESSION_TIMEOUT=12s ENSEMBLE=127.0.0.1:$(link_port 1) host alpha
	host beta
	warm
}

# warm - alpha's keeper runs and is connected, so that what follows begins with the request that is meant
warm() { assertEquals 'alpha is connected' granted "$(try alpha warm.lock)"; }

dropped() { proxy dropped c && [ "$ANSWER" -gt "$1" ]; }

# drop VERB PART - rob alpha's next VERB on a path with PART of its reply; was_dropped asserts that it happened
drop() {
	proxy dropped c
	dropped_before=$ANSWER
	proxy drop c "$1" "$2"
}
was_dropped() {
	wait_until 10 dropped "$dropped_before"
	assertEquals "a reply was dropped: $1" 0 $?
}

# ---- replies that are lost -------------------------------------------------------------------------------------------

# The server has made the node, and its name is not known.  A second one would block the first.
test_a_create_without_a_reply() {
	local kind
	warm
	for kind in locks/flock records/posix; do
		# There is a directory already, or it would be its lack that is not heard of.
		assertEquals granted "$(try beta create.lock -k "${kind#*/}")"
		drop create "/${kind%/*}/s%2Fcreate.lock/"
		hold alpha create.lock -k "${kind#*/}" || { fail "$kind: not granted" && continue; }
		was_dropped "$kind"
		assertEquals "$kind: one claim" 1 "$(claims "${kind%/*}" create.lock)"
		assertEquals "$kind: it excludes" busy "$(try beta create.lock -k "${kind#*/}")"
		kill -KILL "$holder"
		assertEquals "$kind: free for beta" granted "$(wait_for beta create.lock 5 -k "${kind#*/}")"
	done
}

# The same, and who asked is killed before it is known.
test_a_create_without_a_reply_that_nobody_waits_for() {
	warm
	hold beta nobody.lock || return
	drop create '/locks/s%2Fnobody.lock/'
	spawn alpha "$PROBES/lock" -w -h nobody.lock
	was_dropped create
	kill -KILL "$spawned"
	assertTrue 'no orphan' 'wait_until 10 claims_are locks nobody.lock 1'
	kill -KILL "$holder"
	assertEquals 'free for beta' granted "$(wait_for beta nobody.lock 5)"
}

# beta asks without waiting; alpha writes into its claim that it is in use, and does not hear whether that was done.
test_a_set_without_a_reply() {
	warm
	hold alpha set.lock || return
	drop set '/locks/s%2Fset.lock/'
	assertEquals 'told' busy "$(try beta set.lock)"
	was_dropped set
	assertEquals 'told again' busy "$(try beta set.lock)"
	kill -KILL "$holder"
	assertEquals 'free for beta' granted "$(wait_for beta set.lock 5)"
}

# A heartbeat, too.
test_a_heartbeat_without_a_reply() {
	warm
	drop set /hosts/
	was_dropped heartbeat
	hold alpha beat.lock || return
	assertEquals 'it excludes' busy "$(try beta beat.lock)"
}

test_a_delete_without_a_reply() {
	warm
	hold alpha delete.lock || return
	spawn beta "$PROBES/lock" -w -h delete.lock
	wait_until 10 claims_are locks delete.lock 2
	drop delete '/locks/s%2Fdelete.lock/'
	kill -KILL "$holder"
	assertTrue 'beta is granted' "wait_until 10 contains '$spawned_out' granted"
	was_dropped delete
	assertEquals 'and excludes alpha' busy "$(try alpha delete.lock)"
	kill -KILL "$spawned"
	assertEquals 'free for alpha' granted "$(wait_for alpha delete.lock 5)"
	assertTrue 'no orphan' 'wait_until 10 claims_are locks delete.lock 1'
}

# A keeper that has taken over is cut off when it has proven the session alive, and does not know its claims yet: its lease
# runs out like any other, and the holders that it has inherited stand still.
test_a_new_keeper_is_cut_off_before_it_knows_its_claims() {
	SESSION_TIMEOUT=5s ENSEMBLE=127.0.0.1:$(link_port 1) host heir
	ticker heir heir.lock "$T/ticks"
	proxy dropped c
	dropped_before=$ANSWER
	proxy hold c list /locks/s%2Fheir.lock
	kill -KILL "$(keeper_pid heir)"
	was_dropped 'the list of its claims'
	assertTrue 'the holder stands still' 'wait_until 6 logged heir action=SIGSTOP'
	proxy heal c
	assertTrue 'known in the end, or given up' "wait_until 20 logged heir 'action=SIG\(CONT\|KILL\)'"
	signal KILL "$(pgrep -P "$ticker")"
	keeper_stop heir
}

# ---- many locks ------------------------------------------------------------------------------------------------------

# One host keeps many shared locks with long names, each of which has watches.  After a reconnect the client must tell the server of
# all of them in one packet of 1 MB at most, or it never gets anywhere: the host gives back before there are too many.
test_a_reconnect_with_many_watches() {
	local long root
	long=$(printf 'x%.0s' {1..90})
	root=/$(printf 'r%.0s' {1..190})
	SESSION_TIMEOUT=12s ENSEMBLE=127.0.0.1:$(link_port 1) ZK_ROOT=$root host many
	ZK_ROOT=$root host other
	assertEquals '1700 locks' 1700 "$(within 60 many "$PYTHON" -c "
import fcntl
for i in range(1700):
    with open('$long%d' % i, 'w') as f: fcntl.flock(f, fcntl.LOCK_SH)
print(i + 1)" 2>&1)"
	proxy cut c
	proxy heal c
	assertEquals 'it goes on' granted "$(wait_for many after.lock 8)"
	assertEquals 'and hears of others' granted "$(wait_for other after.lock 8)"
	keeper_stop many
	keeper_stop other
}

# ---- servers that can't be used --------------------------------------------------------------------------------------

# host_for NAME ENSEMBLE [ROOT] - a host with a directory for each value of `unavailable`
host_for() {
	ENSEMBLE=$2 ZK_ROOT=${3:-/zkflock} host "$1" 'connect_timeout 1s' \
		"map $T/$1/s/fail $1/fail/%r unavailable=fail" "map $T/$1/s/local $1/local/%r unavailable=local"
	mkdir "$T/$1/s/fail" "$T/$1/s/local"
}

# says HOST PATTERN FILE [lock options] - ENOLCK, and one line that says why
says() {
	local name=$1 pattern=$2 out
	shift 2
	out=$(within 10 "$name" "$PROBES/lock" "${@:2}" "$1" 2>"$T/err.$name")
	assertEquals "$name $*" ENOLCK "$out"
	assertTrue "$name $* says $pattern: $(cat "$T/err.$name")" \
		"[ $(wc -l <"$T/err.$name") = 1 ] && grep -qE '^zkflock: error .*$pattern' '$T/err.$name'"
}

# unusable HOST PATTERN - what the three rules do without ZooKeeper: wait fails what must not wait, and waits; fail fails;
# local locks.  The keeper's log has the reason, without anybody's asking.
unusable() {
	local name=$1 waiter
	spawn "$name" "$PROBES/lock" -w -h waits.lock
	waiter=$spawned
	says "$name" "$2" job.lock
	says "$name" "$2" fail/f.lock -w -k posix
	assertFalse "$name: a blocking call waits" "gone $waiter"
	hold "$name" local/l.lock 2>/dev/null || fail "$name: unavailable=local"
	assertEquals "$name: local excludes here" busy "$(try "$name" local/l.lock 2>/dev/null)"
	assertTrue "$name: local is logged" "grep -q 'error lock local-only' '$T/$name/run/log'"
	assertTrue "$name: the keeper's log says $2" "wait_until 10 grep -qE '(warn|error) session .*$2' '$T/$name/run/log'"
	end "$waiter" "$holder" # else it would start another keeper
	keeper_stop "$name"
}

# Accepted, and never a word.
test_a_server_that_hangs() {
	host_for hung "127.0.0.1:$(link_port 2)"
	unusable hung "127.0.0.1:$(link_port 2)"
}

test_nobody_listens() {
	host_for refused "127.0.0.1:$(link_port 3)"
	unusable refused "127.0.0.1:$(link_port 3): Connection re(fused|set)"
}

test_a_name_that_nobody_knows() {
	host_for unknown nosuch.invalid:2181
	unusable unknown nosuch.invalid
}

test_a_root_that_may_not_be_written() {
	zkcat create /denied || fail 'no /denied'
	zkcat protect /denied
	host_for denied "127.0.0.1:$ZK_PORT" /denied
	unusable denied '/denied/hosts.* ACL'
	assertEquals 'logged once' 1 "$(grep -c 'session refused' "$T/denied/run/log")"
}

# A person makes what the keeper may not: it goes on by itself.
test_a_root_that_an_administrator_makes() {
	zkcat create /mended || fail 'no /mended'
	zkcat protect /mended
	host_for mended "127.0.0.1:$ZK_PORT" /mended/zkflock
	says mended '/mended/zkflock.* ACL' job.lock
	spawn mended "$PROBES/lock" -w -h job.lock
	zkcat open /mended
	assertTrue 'granted' "wait_until 10 contains '$spawned_out' granted"
}

# Below a node that can't have children.
test_a_root_that_can_not_be() {
	local node
	timeout 60 "$PROBES/zkcat" "127.0.0.1:$ZK_PORT" ephemeral /passing >"$T/passing.out" &
	node=$!
	wait_until 10 test -s "$T/passing.out"
	host_for passing "127.0.0.1:$ZK_PORT" /passing/zkflock
	unusable passing '/passing/zkflock.*ephemeral'
	kill -KILL $node
}

# One of three servers, alone and with readonlymode: it refuses who would write.
test_a_read_only_server() {
	ZK_FLAGS=-Dreadonlymode.enabled=true server_start 1
	wait_until 30 server_serves 1
	assertEquals 'it is' read-only "$(server_mode 1)"
	host_for readonly "127.0.0.1:$(client_port 1)"
	unusable readonly read-only
	server_stop 1
}
server_serves() { [ "$(server_mode "$1")" ]; }

. shunit2

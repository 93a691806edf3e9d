#!/bin/bash
# tests/58_names_test.sh - the ensemble by name: a name service that hangs, forgets, or tells of another place
# modes: cluster
# limit: 180
#
# The keepers of these tests run in a mount namespace with hosts(5) and resolv.conf(5) of their own; the only name server
# is one that never answers.
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
ZKFLOCK_TEST_LOG=info
. "$(dirname "$0")/lib.sh"

eval "$(declare -f oneTimeSetUp | sed 's/^oneTimeSetUp/common_set_up/')"
oneTimeSetUp() {
	common_set_up || return 1
	namespaces || return 0
	ENSEMBLE=127.0.0.1:$ZK_PORT,127.0.0.2:$ZK_PORT host observer
	: >"$T/hosts"
	printf '%s\n' 'nameserver 127.9.9.9' 'options timeout:2 attempts:1' >"$T/resolv.conf"
}
namespaces() { unshare -m sh -c 'mount --bind /etc/hosts /etc/hosts && mount --bind /etc/hosts /etc/resolv.conf' 2>/dev/null; }

# silent_name_server - takes what is asked, for as long as the test lasts
silent_name_server() {
	"$PYTHON" -c 'import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.9.9.9", 53)); print("bound", flush=True)
while True: s.recv(9000)' >"$T/out.dns" 2>&1 &
	wait_until 10 test -s "$T/out.dns"
}

# keeper_with_names HOST - start its keeper with the files of this test
keeper_with_names() {
	env "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" unshare -m sh -c '
		mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/resolv.conf" /etc/resolv.conf &&
		exec "$2/zkflockd" --on-demand' sh "$T" "$BUILD" </dev/null >"$T/out.keeper" 2>&1 &
	wait_until 10 keeper_pid "$1" >/dev/null
}

keeper_log() { grep -q "$2" "$T/$1/run/log"; }
keeper_is_not() { [ "$(keeper_pid "$1")" ] && [ "$(keeper_pid "$1")" != "$2" ]; }

# The keeper answers its programs while a look-up takes its time, and goes on when it has an answer.
test_a_name_service_that_hangs() {
	namespaces || { skip 'no mount namespace: not root' && return; }
	silent_name_server
	ENSEMBLE=zk.hanging.test:$ZK_PORT host hanging 'connect_timeout 1s'
	keeper_with_names hanging
	assertEquals 'answered' ENOLCK "$(try hanging job.lock 2>"$T/out.err")"
	assertTrue "it says why: $(cat "$T/out.err")" "grep -q \"ZooKeeper's names are being looked up\" '$T/out.err'"
	assertEquals 'a file that is not mapped' granted "$(within 2 hanging "$PROBES/lock" "$T/unmapped.lock")"
	spawn hanging "$PROBES/lock" -w -h job.lock
	echo '127.0.0.1 zk.hanging.test' >"$T/hosts"
	assertTrue 'granted when it is known' "wait_until 20 contains '$spawned_out' granted"
	keeper_stop hanging
}

# The name is forgotten while the host holds.  Nothing needs it: neither the session, nor a server's restart, nor a keeper's.
test_an_outage_touches_no_session() {
	local pid
	namespaces || { skip 'no mount namespace: not root' && return; }
	silent_name_server
	echo '127.0.0.1 zk.outage.test' >"$T/hosts"
	ENSEMBLE=zk.outage.test:$ZK_PORT SESSION_TIMEOUT=8s host outage
	keeper_with_names outage
	hold outage held.lock || return
	: >"$T/hosts"
	zk_stop KILL
	# It looks the name up while there is no connection, and learns nothing.
	assertTrue 'looked up' 'wait_until 10 keeper_log outage "resolve name=zk.outage.test"'
	zk_start || return
	assertTrue 'held' 'becomes busy 10 observer held.lock'
	pid=$(keeper_pid outage)
	kill -KILL "$pid"
	assertTrue 'another keeper' "wait_until 10 keeper_is_not outage $pid"
	assertTrue 'resumed' 'wait_until 10 keeper_log outage "session resumed"'
	assertEquals 'held' busy "$(try observer held.lock)"
	assertFalse 'the holder lives' "gone $holder"
	assertFalse 'no session was lost' 'keeper_log outage expired'
	keeper_stop outage
}

# The server moves to another address while the host holds, as in a rolling replacement of machines.
test_a_server_that_moves() {
	namespaces || { skip 'no mount namespace: not root' && return; }
	silent_name_server
	echo '127.0.0.1 zk.moving.test' >"$T/hosts"
	ENSEMBLE=zk.moving.test:$ZK_PORT SESSION_TIMEOUT=12s host moving
	keeper_with_names moving
	hold moving held.lock || return
	zk_stop
	echo '127.0.0.2 zk.moving.test' >"$T/hosts"
	ZK_ADDRESS=127.0.0.2
	zk_start || return
	assertTrue 'noticed' 'wait_until 15 keeper_log moving "servers-moved from=127.0.0.1:.* to=127.0.0.2:"'
	assertTrue 'the session goes on' 'wait_until 15 keeper_log moving "session resumed"'
	assertEquals 'held' busy "$(try observer held.lock)"
	assertFalse 'the holder lives' "gone $holder"
	kill -KILL "$holder"
	assertEquals 'and is free then' granted "$(wait_for observer held.lock 5)"
	assertFalse 'no session was lost' 'keeper_log moving expired'
	keeper_stop moving
}

. shunit2

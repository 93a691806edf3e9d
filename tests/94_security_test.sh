#!/bin/bash
# tests/94_security_test.sh - who may do what: in ZooKeeper, at the keeper's socket, with the keeper's own powers
# modes: cluster
# limit: 120
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

oneTimeSetUp() {
	zk_start || return 1
	mkdir "$T/secrets"
	secret good 'cluster:s3cret word'
	host alpha 'connect_timeout 1s' "credentials $T/secrets/good"
	host beta 'connect_timeout 1s' "credentials $T/secrets/good"
}

# secret NAME LINE [MODE] - a file of credentials
secret() {
	printf '%s\n' "$2" >"$T/secrets/$1"
	chmod "${3:-600}" "$T/secrets/$1"
}

# keeper HOST - run its keeper in the foreground, which must end by itself; prints its last line
keeper() {
	timeout 10 env "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" "$BUILD/zkflockd" </dev/null 2>&1 | tail -n 1
	return "${PIPESTATUS[0]}"
}

# ---- ZooKeeper: credentials ------------------------------------------------------------------------------------------

# acl PATH - as the server tells those who may know
acl() { ZKCAT_AUTH='cluster:s3cret word' zkcat acl "$1"; }

test_every_node_belongs_to_the_credentials() {
	local id node queue=/zkflock/locks/s%2Fown.lock
	id=digest:cluster:$(printf 'cluster:s3cret word' | openssl dgst -sha1 -binary | base64):31
	hold alpha own.lock || { fail 'alpha got no lock'; return; }
	hold alpha own2.lock -k posix || { fail 'alpha got no record lock'; return; }
	for node in /zkflock /zkflock/hosts /zkflock/locks "$queue" "$queue/$(ZKCAT_AUTH='cluster:s3cret word' zkcat ls $queue)" \
		/zkflock/records/s%2Fown2.lock "/zkflock/hosts/$(ZKCAT_AUTH='cluster:s3cret word' zkcat ls /zkflock/hosts | head -n 1)"; do
		assertEquals "$node" "$id" "$(acl "$node")"
	done
	assertEquals 'excludes beta' busy "$(try beta own.lock)"
	assertContains 'a stranger may not look' "$(zkcat ls /zkflock/locks 2>&1)" 'not authenticated'
	assertContains 'a stranger may not take' "$(zkcat ephemeral $queue/__lock__0000000000 2>&1)" 'not authenticated'
	assertContains 'a stranger may not break' "$(zkcat delete $queue 2>&1)" 'not authenticated'
	assertContains 'the wrong password is a stranger' "$(ZKCAT_AUTH=cluster:other zkcat ls /zkflock/locks 2>&1)" 'not authenticated'
	assertEquals 'no secret in the logs' '' "$(grep -l 's3cret' "$T"/*/run/log)"
}

# A keeper that follows says again who it is, before anything else.
test_a_keeper_that_follows_has_the_credentials() {
	local pid
	hold alpha follow.lock || { fail 'alpha got no lock'; return; }
	pid=$(keeper_pid alpha)
	kill -KILL "$pid"
	wait_until 5 gone "$pid"
	assertEquals 'another file' granted "$(wait_for alpha follow2.lock 10)"
	assertEquals 'the same lock' busy "$(try beta follow.lock)"
	end "$holder"
	assertEquals 'free' granted "$(wait_for beta follow.lock 5)"
}

test_a_keeper_without_the_credentials_says_so() {
	local line='not authorised by the node'"'"'s ACL'
	secret other 'cluster:another'
	host none 'connect_timeout 1s'
	host wrong 'connect_timeout 1s' "credentials $T/secrets/other"
	assertEquals 'none' ENOLCK "$(try none strange.lock 2>"$T/out.none")"
	assertContains "$(cat "$T/out.none")" "$line, and no credentials are set"
	assertEquals 'wrong' ENOLCK "$(try wrong strange.lock 2>"$T/out.wrong")"
	assertContains "$(cat "$T/out.wrong")" "$line: it was made with other credentials than ours"
	assertTrue 'logged once' "[ $(grep -c 'session refused' "$T/none/run/log") = 1 ]"
}

# Nodes of the time before stay everybody's.  Between hosts that have credentials and hosts that have none yet nobody gets
# what he must not have: who can't read what is in his way has an error.
test_open_nodes_stay_open_and_nobody_shares_by_it() {
	local ZK_ROOT=/mixed
	host before 'connect_timeout 1s'
	host after 'connect_timeout 1s' "credentials $T/secrets/good"
	assertEquals 'before' granted "$(try before mixed.lock)"
	assertEquals world:anyone:31 "$(acl /mixed/locks)"
	hold after mixed.lock || { fail 'after got no lock'; return; }
	assertNotEquals 'held by one with credentials' granted "$(try before mixed.lock 2>"$T/out.mixed")"
	assertNotEquals 'blocking' granted "$(wait_for before mixed.lock 1 2>/dev/null)"
	end "$holder"
	assertEquals 'free' granted "$(wait_for before mixed.lock 10)"
	hold before mixed.lock || { fail 'before got no lock'; return; }
	assertEquals 'held by one without' busy "$(try after mixed.lock)"
}

test_credentials_that_others_can_have_are_refused() {
	local uid=65534
	host refused 'connect_timeout 1s' "credentials $T/secrets/x"
	rm -f "$T/secrets/x"
	assertContains 'missing' "$(keeper refused)" "credentials $T/secrets/x: No such file"
	secret x user:password 640
	assertContains 'mode' "$(keeper refused)" "credentials $T/secrets/x: others may use it; allowed is mode 0600"
	keeper refused >/dev/null
	assertEquals 'status' 3 $?
	assertEquals 'a lock meanwhile' ENOLCK "$(try refused job.lock 2>"$T/out.x")"
	assertContains 'and why' "$(cat "$T/out.x")" 'others may use it'
	rm "$T/secrets/x"
	mkfifo -m 600 "$T/secrets/x"
	assertContains 'a fifo' "$(keeper refused)" 'no regular file'
	rm "$T/secrets/x"
	for text in 'user' ':password' 'user:' $'user:a\nuser:b' ''; do
		secret x "$text"
		assertContains "'$text'" "$(keeper refused)" 'it must be one line'
	done
	secret x "user:$(printf 'x%.0s' {1..600})"
	assertContains 'long' "$(keeper refused)" 'too long'
	secret x user:password 400
	if [ "$(id -u)" = 0 ]; then
		chown $uid "$T/secrets/x"
		assertContains 'owner' "$(keeper refused)" 'must belong to root or'
	fi
}

# A reload says that it takes a restart.
test_a_change_of_credentials_needs_a_restart() {
	assertEquals granted "$(try alpha reload.lock)"
	sed -i "s:secrets/good:secrets/other:" "$T/alpha/zkflock.conf"
	assertContains 'told' "$(on alpha env LD_PRELOAD= "$BUILD/zkflock" reload 2>&1)" 'credentials is changed, and needs a restart'
	sed -i "s:secrets/other:secrets/good:" "$T/alpha/zkflock.conf"
	assertEquals 'as before' '' "$(on alpha env LD_PRELOAD= "$BUILD/zkflock" reload 2>&1 | grep restart)"
	assertEquals granted "$(try alpha reload2.lock)"
}

# Servers that take no digest, met when the connection is made anew: no session is ended by it, and it is said once in ten
# seconds, not in a loop.  The last test: it leaves such a server behind.
test_servers_that_take_no_credentials() {
	local pid
	hold alpha nodigest.lock || { fail 'alpha got no lock'; return; }
	pid=$(keeper_pid alpha)
	zk_stop
	JAVA_TOOL_OPTIONS=-Dzookeeper.DigestAuthenticationProvider.enabled=false zk_start || return
	assertTrue 'said' "wait_until 10 grep -q 'session refused error=\"ZooKeeper refuses the credentials' '$T/alpha/run/log'"
	assertEquals 'for who must not wait' ENOLCK "$(try alpha nodigest2.lock 2>"$T/out.nodigest")"
	assertContains "$(cat "$T/out.nodigest")" 'ZooKeeper refuses the credentials'
	assertEquals 'once' 1 "$(grep -c 'session refused' "$T/alpha/run/log")"
	assertEquals 'the session is not given up' 0 "$(grep -c 'session expired' "$T/alpha/run/log")"
	assertEquals 'the same keeper' "$pid" "$(keeper_pid alpha)"
	end "$holder"
}

. shunit2

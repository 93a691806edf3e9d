#!/bin/bash
# tests/56_ensemble_test.sh - three servers that die, hang and lose each other: locks are held through it, or given away
# only after their holder stands still
# modes: cluster
# limit: 300
#
# What happens is judged by the machine's one clock: a job under a lock writes the time of its every step, and the other
# host's program writes when it was let in.
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
ZKFLOCK_TEST_LOG=info
TICK_TIME=250ms
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_loss.sh"
. "$(dirname "$0")/lib_ensemble.sh"

oneTimeSetUp() {
	ensemble_start || return 1
	# These must never be paused for longer than they bear, however busy the machine: nobody of them may be killed.
	SESSION_TIMEOUT=12s
	host alpha
	host beta
	host gamma
}

# queue_up FILE - a job on alpha under the lock, beta and gamma waiting for it in this order, each to write its name
queue_up() {
	local waiter n=1
	rm -f "$T/order"
	ticker alpha "$1" "$T/ticks" || return
	for waiter in beta gamma; do
		spawn $waiter flock "$1" sh -c 'echo $1 >>$2' sh $waiter "$T/order"
		wait_until 10 claims_are locks "$1" $((++n))
		assertEquals "$waiter has queued up" 0 $?
	done
}

# quorum N WHEN - N servers serve.  Not in assertTrue's subshell: it sets LEADER.
quorum() {
	wait_until 30 quorum_of "$1"
	assertEquals "$2" 0 $?
}

# held_on FILE WHEN - the job goes on, and nobody else was let in
held_on() {
	assertTrue "$2: the job goes on" "started '$T/ticks'"
	assertFalse "$2: nobody else was let in" "[ -e '$T/order' ]"
}

# serve_queue - the job ends; the waiters get their turns in their order
serve_queue() {
	assertFalse 'nobody was killed' "gone $ticker"
	end "$(pgrep -P "$ticker")" # which has the lock as well
	wait_until 10 contains "$T/order" gamma
	assertEquals 'in their order' 'beta gamma' "$(tr '\n' ' ' <"$T/order" | sed 's/ $//')"
	assertFalse 'no session was lost' "grep -q 'session expired' '$T'/{alpha,beta,gamma}/run/log"
}

test_servers_restarted_one_by_one() {
	local i
	queue_up rolling.lock
	for i in 1 2 3; do
		server_stop $i TERM
		server_start $i
		quorum 3 "whole after $i"
		held_on rolling.lock "server $i restarted"
	done
	serve_queue
}

test_the_leader_is_killed_and_then_two() {
	local leader=$LEADER i
	queue_up killed.lock
	server_stop "$leader" KILL
	quorum 2 'two are a quorum'
	held_on killed.lock 'leader killed'
	server_start "$leader"
	quorum 3 'whole'
	for i in "$LEADER" "${FOLLOWERS[0]}"; do server_stop "$i" KILL; done
	for i in 1 2 3; do [ "${SERVERS[$i]}" ] || server_start $i; done
	quorum 3 'whole again'
	held_on killed.lock 'two killed'
	serve_queue
}

# A leader that hangs: the others elect another one.  Who was connected to it finds out by himself.
test_the_leader_hangs() {
	queue_up hung.lock
	server_signal "$LEADER" STOP
	quorum 2 'two are a quorum'
	held_on hung.lock 'leader stopped'
	ensemble_whole
	held_on hung.lock 'leader continued'
	serve_queue
}

# lost_to_the_other SERVER HOST - HOST knows only SERVER, which is then cut off from the other two.  SERVER goes on
# answering whatever it can answer alone.  The others give HOST's lock away; HOST's job stands still before that.
#
#     HOST    job runs ... last acknowledged write ... deadline: job is stopped                    killed
#     beta    waits ........................................................ let in, writes when
#     SERVER  cut off .................................................................. rejoins: "expired"
lost_to_the_other() {
	local server=$1 name=$2 last
	SESSION_TIMEOUT=5s ENSEMBLE=127.0.0.1:$(client_port "$server") host "$name"
	ticker "$name" cut.lock "$T/ticks"
	rm -f "$T/let-in"
	spawn beta flock cut.lock sh -c 'date +%s%3N >"$1.new"; mv "$1.new" "$1"' sh "$T/let-in"
	wait_until 10 claims_are locks cut.lock 2
	cut_off "$server"
	quorum 2 'the others go on'
	assertTrue 'beta is let in' "wait_until 20 test -s '$T/let-in'"
	last=$(tail -n 1 "$T/ticks")
	assertTrue "the last step, at $last, comes before $(cat "$T/let-in")" "[ $last -lt $(cat "$T/let-in") ]"
	assertTrue 'it was stopped in time' "logged $name action=SIGSTOP"
	rejoin "$server"
	assertTrue "killed when it is known" "wait_until 20 gone $ticker"
	assertTrue 'no step more' "[ $last = $(tail -n 1 "$T/ticks") ]"
	quorum 3 'whole'
	assertEquals 'a fresh session serves' granted "$(wait_for "$name" cut.lock 10)"
	keeper_stop "$name"
}

test_the_leader_is_cut_off_from_its_followers() { lost_to_the_other "$LEADER" onleader; }

# Its reads are answered for seconds after the leader has ended the session: no evidence of anything.
test_a_client_s_server_is_cut_off_from_the_leader() { lost_to_the_other "${FOLLOWERS[0]}" onfollower; }

# Of `make soak`.  The leader hangs, and is waited for (a large syncLimit): the follower goes on answering what it can answer
# alone.  When the leader goes on it ends the session, unless a heartbeat that has been waiting for it comes first; then it
# is tried again.
soak_a_leader_that_hangs_ends_the_session() {
	local i last name
	for i in 1 2 3; do server_stop $i; done
	for i in 1 2 3; do SYNC_LIMIT=80 server_start $i; done
	quorum 3 'whole'
	for i in 1 2 3 4 5 6 7 8; do
		name=patient$i
		SESSION_TIMEOUT=5s ENSEMBLE=127.0.0.1:$(client_port "${FOLLOWERS[0]}") host $name
		ticker $name wait$i.lock "$T/ticks"
		rm -f "$T/let-in"
		spawn beta flock wait$i.lock sh -c 'date +%s%3N >"$1.new"; mv "$1.new" "$1"' sh "$T/let-in"
		wait_until 10 claims_are locks wait$i.lock 2
		server_signal "$LEADER" STOP
		assertTrue 'it was stopped' "wait_until 10 logged $name action=SIGSTOP"
		last=$(tail -n 1 "$T/ticks")
		nap 4
		server_signal "$LEADER" CONT
		wait_until 10 logged $name 'session expired\|action=SIGCONT'
		assertEquals 'decided' 0 $?
		logged $name 'session expired' && break
		signal KILL "$(pgrep -P "$ticker")"
	done
	assertTrue 'it has expired' "logged $name 'session expired'"
	assertTrue 'beta is let in' "wait_until 10 test -s '$T/let-in'"
	assertTrue "the last step, at $last, comes before $(cat "$T/let-in")" "[ $last -lt $(cat "$T/let-in") ]"
	assertTrue 'no step more' "[ $last = $(tail -n 1 "$T/ticks") ]"
	assertTrue 'killed' "wait_until 10 gone $ticker"
}

. shunit2

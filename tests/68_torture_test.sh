#!/bin/bash
# tests/68_torture_test.sh - while programs, keepers, guards, servers and links fail, never two are inside, and nobody is forgotten
# modes: cluster
# early
# limit: 300
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2034
. "$(dirname "$0")/torture"

SECONDS_OF_TORTURE=${SECONDS_OF_TORTURE:-60} # of faults; make soak runs tests/torture itself, longer
PROGRAMS=3 THINK_MS=50 CALM_MS=4000 # it shall wait more than it works
TORTURE_SEED=${TORTURE_SEED:-$((RANDOM * 32768 + RANDOM))}

oneTimeSetUp() {
	ensemble_start || return 1
	torture_hosts
}

# ---- the judge is judged first -----------------------------------------------------------------------------------------

# accepted, refused WHY - the log on standard input, a line "EVENT HOST PID [N LOCK MODE FIRST LAST KIND]" each 100 ms, is one
# that the judge must accept, or say WHY of; it is asked about all of a test at once, by asked
cases=0
accepted() { { echo && cat; } >"$T/case.$((++cases))"; }
refused() { { echo "$1" && cat; } >"$T/case.$((++cases))"; }
asked() {
	local said
	said=$("$PYTHON" "$TESTS/torture.py" cases "$T"/case.*)
	assertEquals "$said" 0 $?
	assertContains "$said" "$said" "$cases cases, 0 judged wrongly"
	rm -f "$T"/case.*
	cases=0
}

# whole MODE FIRST LAST HOST PID EVENT... - events of a call on the lock x
whole() {
	local mode=$1 first=$2 last=$3 name=$4 pid=$5 event
	shift 5
	for event; do echo "$event $name $pid 1 x $mode $first $last flock-w"; done
}
ended() { printf '%s\n' calm end; }

test_the_judge_accepts_what_locks_allow() {
	accepted < <(whole exclusive 0 7 a 1 wait enter inside && whole exclusive 0 7 b 2 wait && whole exclusive 0 7 a 1 leave &&
		whole exclusive 0 7 b 2 enter inside leave && ended)
	accepted < <(whole shared 0 7 a 1 wait enter && whole shared 0 7 b 2 wait enter inside leave && whole shared 0 7 a 1 inside leave &&
		ended)
	accepted < <(whole exclusive 0 3 a 1 wait enter && whole exclusive 4 7 b 2 wait enter inside leave &&
		whole exclusive 0 3 a 1 inside leave && ended)
	accepted < <(whole exclusive 4 7 a 1 wait enter && whole exclusive 0 3 b 2 wait enter inside leave &&
		whole exclusive 4 7 a 1 inside leave && ended)
	asked
}

# Who is killed inside is succeeded, and so is who stands still, as long as he does.
test_the_judge_accepts_a_holder_that_was_stopped_in_time() {
	accepted < <(whole exclusive 0 7 a 1 wait enter inside && whole exclusive 0 7 b 2 wait enter inside leave && echo died a 1 137 &&
		ended)
	asked
}

test_the_judge_refuses_two_inside() {
	local event
	for event in inside leave; do
		refused 'two inside' < <(whole exclusive 0 7 a 1 wait enter && whole exclusive 0 7 b 2 wait enter && whole exclusive 0 7 a 1 "$event" &&
			printf 'died a 1 137\ndied b 2 137\n' && ended)
	done
	refused 'two inside' < <(whole shared 0 7 a 1 wait enter && whole exclusive 7 7 b 2 wait enter leave && whole shared 0 7 a 1 leave && ended)
	refused 'two inside' < <(whole exclusive 0 7 a 1 wait enter && whole shared 3 4 b 2 wait enter leave && whole exclusive 0 7 a 1 leave && ended)
	asked
}

test_the_judge_refuses_tokens_that_fall() {
	local wide narrow
	token() { echo "token $4 $5 1 x $1 $2 $3 flock-w $6"; }
	for narrow in 0 3 7; do
		wide=$(whole exclusive 0 7 a 1 wait enter && token exclusive 0 7 a 1 17 && whole exclusive 0 7 a 1 leave)
		refused 'token 16 of' < <(echo "$wide" && whole exclusive "$narrow" 7 b 2 wait enter && token exclusive "$narrow" 7 b 2 16 &&
			whole exclusive "$narrow" 7 b 2 leave && ended)
		refused 'token 17 of' < <(echo "$wide" && whole shared 0 "$narrow" b 2 wait enter && token shared 0 "$narrow" b 2 17 &&
			whole shared 0 "$narrow" b 2 leave && ended)
		accepted < <(echo "$wide" && whole exclusive "$narrow" 7 b 2 wait enter && token exclusive "$narrow" 7 b 2 18 &&
			whole exclusive "$narrow" 7 b 2 leave && ended)
	done
	accepted < <(whole shared 0 7 a 1 wait enter && whole shared 0 7 b 2 wait enter && token shared 0 7 a 1 17 &&
		token shared 0 7 b 2 16 && whole shared 0 7 a 1 leave && whole shared 0 7 b 2 leave && ended)
	accepted < <(whole exclusive 0 3 a 1 wait enter && token exclusive 0 3 a 1 17 && whole exclusive 4 7 b 2 wait enter &&
		token exclusive 4 7 b 2 16 && whole exclusive 0 3 a 1 leave && whole exclusive 4 7 b 2 leave && ended)
	refused 'no token' < <(whole shared 0 7 a 1 wait enter && token shared 0 7 a 1 0 && whole shared 0 7 a 1 leave && ended)
	asked
}

test_the_judge_refuses_who_is_forgotten() {
	refused 'lost: ' < <(whole exclusive 0 7 a 1 wait && ended)
	refused 'late: ' < <(whole exclusive 0 7 a 1 wait && echo calm && yes noted | head -n 12 && whole exclusive 0 7 a 1 enter leave &&
		echo end)
	accepted < <(whole exclusive 0 7 a 1 wait && yes noted | head -n 12 && whole exclusive 0 7 a 1 enter leave && ended)
	refused 'stuck: ' < <(whole exclusive 0 7 a 1 wait enter && ended)
	asked
}

test_the_judge_refuses_wrong_answers() {
	refused 'a blocking call' < <(whole exclusive 0 7 a 1 wait && echo refused a 1 1 x exclusive 0 7 flock-w ENOLCK && ended)
	refused EBADF < <(echo wait a 1 1 x exclusive 0 7 flock && echo refused a 1 1 x exclusive 0 7 flock EBADF && ended)
	accepted < <(echo wait a 1 1 x exclusive 0 7 flock && echo refused a 1 1 x exclusive 0 7 flock EAGAIN && ended)
	refused 'has ended with 139' < <(echo died a 1 139 && ended)
	asked
}

test_the_judge_refuses_what_is_no_log() {
	refused 'the log has no end' < <(whole exclusive 0 7 a 1 wait enter leave)
	refused 'without a call' < <(whole exclusive 0 7 a 1 enter leave && ended)
	refused 'without having entered' < <(whole exclusive 0 7 a 1 wait inside && ended)
	refused 'a dead program' < <(whole exclusive 0 7 a 1 wait && echo died a 1 137 && whole exclusive 0 7 a 1 enter && ended)
	refused 'not a record' < <(echo && ended)
	asked
}

# ---- the torture -------------------------------------------------------------------------------------------------------

test_a_schedule_comes_again_with_its_seed() {
	local once again other
	once=$("$PYTHON" "$TESTS/torture.py" schedule 7 60 3 4)
	again=$("$PYTHON" "$TESTS/torture.py" schedule 7 60 3 4)
	other=$("$PYTHON" "$TESTS/torture.py" schedule 8 60 3 4)
	assertEquals "$once" "$again"
	assertNotEquals "$once" "$other"
	assertTrue 'there are faults' "[ $(wc -l <<<"$once") -gt 50 ]"
}

# Without the library the hosts' programs know nothing of each other, and that is seen: the control.
test_without_the_library_two_are_inside() {
	local said
	said=$(CALM_MS=1000 THINK_MS=4 BARE=1 torture "$TORTURE_SEED" 0 2>&1)
	assertEquals 1 $?
	assertContains "$said" 'two inside'
}

# What is asked after a torture, with something left on purpose.
test_what_is_left_is_seen() {
	local said
	hold ash f0 || return
	# shellcheck disable=SC2030 # there only
	said=$(FREE_S=1 LINKED_HOSTS=(birch) && locks_are_free)
	assertEquals 'WRONG leaked: f0 is not to be had by birch: timeout' "$said"
	assertNotEquals 'a claim' 0 "$(ephemerals)"
	no_ephemerals
	assertEquals 'ephemerals' 1 $?
	nothing_tagged
	assertEquals 'a process' 1 $?
	end "$holder"
}

test_torture() {
	local status
	echo "# seed $TORTURE_SEED"
	REFUSED=20 torture "$TORTURE_SEED" "$SECONDS_OF_TORTURE" >"$T/said" 2>&1
	status=$?
	assertEquals "$(cat "$T/said" "$T/torture.schedule")" 0 "$status"
	tail -n 1 "$T/said" | sed 's/^/# /'
	assertTrue 'sections' "[ $(grep -c ' enter ' "$T/torture.log") -gt $((SECONDS_OF_TORTURE * 3)) ]"
}

# shellcheck source=/dev/null
. shunit2

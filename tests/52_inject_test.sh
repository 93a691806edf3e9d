# tests/52_inject_test.sh - each call to ZooKeeper and each allocation of the keeper fails once
# limit: 300
#
# The keepers are those of tests/inject/inject.c, which says what a plan is.  Two programs cross each other's way by every
# kind of lock (tests/probes/crossing.c) while a plan is carried out on their hosts.  Whatever fails: never two holders,
# nobody hangs, a call succeeds or fails with ENOLCK, and at the end nothing of ours is left in ZooKeeper but two hosts.
#
# `make inject` sweeps over every class, every action and every allocation; here is a sample.  INJECT_SEED repeats one.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
. "$(dirname "$0")/lib.sh"
OBJECTS=$BUILD/obj
BUILD=$BUILD/inject
RANDOM=$((${INJECT_SEED:=$RANDOM}))

# The classes of the calls to ZooKeeper that the keepers make while two programs cross.  One that is not named here, or is
# not met, fails a test: then there is a call that nobody has let fail.
CLASSES=(create.parent create.host create.queue create.claim create.mailbox create.letter
	children.queue children.mailbox get.queue get.claim get.peer get.letter set.host set.queue set.claim set.peer
	delete.claim delete.letter)
# Those that only a keeper makes that follows another one, or that has lost a reply; and those of the list.
RARE_CLASSES=(sync.root sync.queue children.kind get.host)

# What can become of a call.  A node that is there is never said to be missing, which no server does: it is deleted ("gone")
# where that takes nobody's lock away.  Numbers are zookeeper.h's.
declare -A CODES=([SYSTEM]=-1 [CONNECTIONLOSS]=-4 [MARSHALLING]=-5 [OPERATIONTIMEOUT]=-7 [INVALIDSTATE]=-9 [NONODE]=-101
	[NOAUTH]=-102 [BADVERSION]=-103 [NODEEXISTS]=-110 [SESSIONEXPIRED]=-112)
ACTIONS=("refuse ${CODES[MARSHALLING]}" "refuse ${CODES[INVALIDSTATE]}" "before ${CODES[CONNECTIONLOSS]}"
	"after ${CODES[CONNECTIONLOSS]}" "before ${CODES[OPERATIONTIMEOUT]}" "after ${CODES[OPERATIONTIMEOUT]}"
	"before ${CODES[SESSIONEXPIRED]}" "before ${CODES[NOAUTH]}" "before ${CODES[SYSTEM]}"
	"late 200")
# actions_of CLASS - sets ACTIONS_OF: those of all, and what only some calls can meet
actions_of() {
	ACTIONS_OF=("${ACTIONS[@]}")
	case $1 in
	create.*) ACTIONS_OF+=("before ${CODES[NODEEXISTS]}" "before ${CODES[NONODE]}" gone) ;;
	set.host) ACTIONS_OF+=("before ${CODES[BADVERSION]}" gone) ;;
	set.*) ACTIONS_OF+=("before ${CODES[BADVERSION]}") ;;
	children.* | get.queue | get.letter | delete.*) ACTIONS_OF+=(gone) ;;
	esac
}

oneTimeSetUp() {
	[ -x "$BUILD/zkflockd" ] || { echo "no $BUILD/zkflockd; run make probes" && return 1; }
	zk_start || return 1
	for name in alpha beta; do
		host $name 'keep 200ms' "map $T/$name/g group"
		mkdir "$T/$name/g"
	done
	echo "INJECT_SEED=$INJECT_SEED"
}

# plan HOST LINE... - carry out from now on; without a line: nothing more
plan() {
	local run=$T/$1/run
	shift
	rm -f "$run/injected"
	[ $# -gt 0 ] || { rm -f "$run/inject" && return; }
	printf '%s\n' "$@" >"$run/inject.new"
	mv "$run/inject.new" "$run/inject"
}

only_hosts_are_left() { [ "$(zk_mntr zk_ephemerals_count)" = 2 ]; }

# cross - two programs; sets $said to what both have to say.  1 when it is not good, or when something is left.
LIMIT=20
cross() {
	local a b status=0
	rm -f "$T/crossing"
	spawn alpha "$PROBES/crossing" 0 "$T/crossing" $((LIMIT * PATIENCE))
	a=$spawned a_out=$spawned_out
	spawn beta "$PROBES/crossing" 1 "$T/crossing" $((LIMIT * PATIENCE))
	b=$spawned b_out=$spawned_out
	wait "$a" || status=$?
	wait "$b" || status=$?
	said="$(<"$a_out") / $(<"$b_out")"
	[ $status = 0 ] || [ "$status" = "$may_end" ] || return 1
	wait_until $((8 + ${GRACE_MS:-0} / 500)) only_hosts_are_left && return 0
	said+="; left: $(zk_command dump | grep '^[[:space:]]*/' | tr -s '\t\n' ' ')"
	return 1
}
ALL_WELL='ok enolck 0 / ok enolck 0'
may_end=0 # status of a program that is allowed beside 0

# crosses MESSAGE - cross, then the plans end; what went wrong is told with both plans
crosses() {
	cross && return 0
	fail "$1: $said
alpha: $(tr '\n' ';' <"$T/alpha/run/inject" 2>/dev/null)
beta: $(tr '\n' ';' <"$T/beta/run/inject" 2>/dev/null)"
	return 1
}

classes_met() { sort "$T/alpha/run/trace" "$T/beta/run/trace" | uniq -c | sort -rn; }

test_no_call_is_missing_in_the_table() {
	local imported missing
	imported=$(nm -u "$OBJECTS"/keeper/*.o "$OBJECTS"/mapping/*.o | awk '$1 == "U" { print $2 }' | sort -u |
		grep -v '^zkf_' | grep -E '^(zoo_|zookeeper_|is_unrecoverable|[a-z_]*alloc(array)?$|_*v?asprintf|str(n)?dup|wcsdup|open_memstream|open_wmemstream|f(d|mem)?open(64)?$|popen|tmpfile|freopen|fopencookie|opendir|fdopendir|scandir|_*getdelim|getline|getaddrinfo|gethostby|getpw|getgr|realpath|getcwd|get_current_dir|posix_memalign|aligned_|memalign|pthread_(create|key_create)|glob|ftw|nftw|fts_|regcomp|hcreate|tsearch|setenv|putenv|qsort_r|strerrordesc|dlopen|iconv_open|newlocale|getifaddrs|timer_create)')
	# These can't fail, or only set a value, or tell something for people.  Of zoo_add_auth: a failure is the same as
	# credentials that are refused, which 93_security_test.sh has.
	missing=$(comm -23 <(echo "$imported") <({ "$TESTS/inject/table"; printf '%s\n' posix_fallocate zoo_add_auth zoo_client_id \
		zookeeper_get_connected_host \
		zoo_recv_timeout zoo_set_debug_level zoo_set_servers_resolution_delay; } | sort -u))
	assertEquals 'calls that no test can let fail' '' "$missing"
	assertContains "$imported" zoo_acreate
	assertContains "$imported" reallocarray
}

# unmet - prints the CLASSES that are not in the traces
unmet() {
	local met class
	met=$(classes_met)
	for class in "${CLASSES[@]}"; do [[ $met == *" $class"* ]] || echo "$class"; done
}

# On a busy machine one side comes too late to be in the other's way: then they cross once more.
test_every_class_of_calls_is_met() {
	local class
	plan alpha trace
	plan beta trace
	for _ in 1 2 3 4 5; do
		crosses 'nothing fails' || return 0
		[ "$(unmet)" ] || [ "$said" != "$ALL_WELL" ] || break
	done
	assertEquals 'nothing fails' "$ALL_WELL" "$said"
	assertEquals 'not met: who makes these calls now?' '' "$(unmet)"
	for class in $(classes_met | awk '{ print $2 }'); do
		[[ " ${CLASSES[*]} ${RARE_CLASSES[*]} alloc address init close " == *" $class "* ]] || fail "$class is in no list"
	done
}

# lines CLASS... - sets LINES: for each class one of its first calls, and one of the actions, by chance
lines() {
	local class
	LINES=()
	for class; do
		actions_of "$class"
		LINES+=("$class $((1 + RANDOM % 3)) ${ACTIONS_OF[RANDOM % ${#ACTIONS_OF[@]}]}")
	done
}

# up - keepers run on both hosts: what fails in their start is another matter
up() {
	plan alpha
	plan beta
	assertEquals granted "$(wait_for alpha cross.lock 10)"
	assertEquals granted "$(wait_for beta cross.lock 10)"
}

# nothing_fails - once more without a plan: the keepers have not been harmed.  A call may fail because a machine is too busy
# for ZooKeeper to answer in time, but not for good.
nothing_fails() {
	plan alpha
	plan beta
	for _ in 1 2 3; do
		crosses 'nothing fails any more' || return 0
		[ "$said" != "$ALL_WELL" ] || break
	done
	assertEquals 'nothing fails any more' "$ALL_WELL" "$said"
}

test_every_class_of_calls_fails_once() {
	local name
	up
	for _ in 1 2; do
		for name in alpha beta; do
			lines "${CLASSES[@]:2}" "${RARE_CLASSES[@]}" # the keeper runs: parents and host are made
			plan $name "${LINES[@]}"
		done
		crosses 'each class fails once' || return 0
	done
	nothing_fails
}

test_allocations_fail_here_and_there() {
	up
	plan alpha "alloc $RANDOM rate 15"
	plan beta "alloc $RANDOM rate 30"
	crosses 'allocations fail' || return 0
	assertNotEquals 'none has failed' 0 "$(cat "$T"/*/run/injected | wc -l)"
}

# A keeper that could not start is started again by the next call.
test_start_fails() {
	local n=$((1 + RANDOM % 30))
	keeper_stop alpha
	keeper_stop beta
	plan alpha "alloc $n fail" "alloc $((n + 40)) fail"
	plan beta "create.parent 1 after ${CODES[CONNECTIONLOSS]}" "create.parent 4 before ${CODES[NOAUTH]}" \
		"create.host 1 after ${CODES[CONNECTIONLOSS]}" "set.host 1 before ${CODES[SYSTEM]}" \
		"create.mailbox 1 refuse ${CODES[MARSHALLING]}"
	crosses 'a start fails'
	assertEquals 'crossed' 0 $?
}

# The configured addresses are numbers, which no look-up is to find later.
test_no_memory_for_the_servers_addresses() {
	keeper_stop alpha
	keeper_stop beta
	plan alpha "address 1 fail"
	plan beta "address 2 fail"
	crosses 'no memory for addresses'
	assertEquals 'crossed' 0 $?
}

test_keeper_dies_at_a_call() {
	up
	plan alpha "any $((1 + RANDOM % 60)) kill" "any $((80 + RANDOM % 60)) kill"
	plan beta "any $((1 + RANDOM % 120)) kill"
	crosses 'keepers die' && nothing_fails
}

# Looking at once at a claim that can't be read would keep a processor and the server busy.
test_claim_that_can_not_be_read_is_waited_for_in_peace() {
	local before after
	up
	hold alpha cross.lock || fail 'alpha has no lock'
	plan beta "get.peer 0 before ${CODES[NOAUTH]}"
	spawn beta "$PROBES/lock" -w cross.lock
	wait_until 5 test -s "$T/beta/run/injected" || fail 'nobody reads the claim'
	before=$(wc -l <"$T/beta/run/injected")
	never 1 test "$(wc -l <"$T/beta/run/injected")" -gt 10000
	after=$(wc -l <"$T/beta/run/injected")
	assertTrue "$((after - before)) reads in a second" "[ $((after - before)) -lt 50 ]"
	kill "$holder"
	wait_until 5 contains "$spawned_out" granted || fail 'beta waits for a lock that is free'
	plan beta
}

# ---- sweeps, by `make inject` ----------------------------------------------------------------------------------------

# One class, one action, one call at a time.
sweep_calls() {
	local class action nth host round=0
	up
	for class in "${CLASSES[@]:2}" "${RARE_CLASSES[@]}"; do
		actions_of "$class"
		for action in "${ACTIONS_OF[@]}"; do
			for nth in 1 2 4; do
				plan alpha
				plan beta
				((++round % 2)) && host=alpha || host=beta
				plan $host "$class $nth $action"
				crosses "$class $nth $action" || return 0
			done
		done
	done
	nothing_fails
	echo "$round crossings"
}

# The nth allocation, from n = FROM on; on beta another one.
sweep_allocations() {
	local n from=${FROM:-1} to=${TO:-900} step=${STEP:-1}
	up
	for ((n = from; n <= to; n += step)); do
		plan alpha "alloc $n fail"
		plan beta "alloc $((to + from - n)) fail"
		crosses "allocation $n, $((to + from - n))" || return 0
	done
	nothing_fails
}

# The nth allocation of a keeper that starts
sweep_starts() {
	local n
	for ((n = ${FROM:-1}; n <= ${TO:-120}; n += ${STEP:-1})); do
		keeper_stop alpha
		keeper_stop beta
		plan alpha "alloc $n fail"
		plan beta "alloc $((n + 1)) fail" "alloc $((2 * n + 3)) fail"
		crosses "a start, allocation $n" || return 0
	done
}

# A keeper dies at each call
sweep_deaths() {
	local n
	up
	for ((n = ${FROM:-1}; n <= ${TO:-150}; n += ${STEP:-1})); do
		plan alpha "any $n kill"
		plan beta "any $((3 * n % 149 + 1)) kill"
		crosses "keepers die at call $n" || return 0
	done
	nothing_fails
}

# Its session is ended by force: then its holder is killed, a moment later.  The keeper's own connection may be left open
# by the server, which drops what comes through it without a word: then it is the lease that ends.
sweep_expiries() {
	local n
	up
	may_end=137
	export GRACE_MS=6500
	for ((n = ${FROM:-1}; n <= ${TO:-150}; n += ${STEP:-1})); do
		plan alpha
		plan beta
		plan "$( ((n % 2)) && echo alpha || echo beta)" "any $n expire"
		crosses "the session ends at call $n" || return 0
	done
	may_end=0
	unset GRACE_MS
	nothing_fails
}

. shunit2

#!/bin/bash
# tests/model/check.sh - run spin on claims.pml: every configuration, or every mutant
#
#     tests/model/check.sh                 all configurations: one PASS or FAIL line each
#     tests/model/check.sh --mutants       leave one rule out at a time: PASS when spin finds the fault
#     tests/model/check.sh --long          larger configurations, for hours: see LIMIT_S
#     tests/model/check.sh [--mutants | --long] NAME...   only these
#
# Answers for: what is checked, with which bounds.  The model is explained in claims.pml.
# Exit: 0 all as expected, 1 a FAIL, 2 spin or gcc is missing or refuses the model, or a NAME is unknown.
#
# safety    assertions and invalid end states: no two holders, nobody waits for ever in a system that stands still
# progress  no cycle at all, with those who start an overtaking again doing so one at a time (CALM, see claims.pml)
#
# One check at a time, one core, at most MEMORY_MB.  A check that meets a bound (memory, search depth, time) fails:
# it has not been through all schedules.  The trail of a failure stays in build/model/NAME; to read it:
#
#     cd build/model/NAME && ./pan -r claims.pml.trail
#
# SPDX-License-Identifier: Apache-2.0
set -u

MEMORY_MB=7000
DEPTH=1000000
LIMIT_S=${LIMIT_S:-900} # a check takes a few minutes at most on a quiet machine
MODEL=$(cd "$(dirname "$0")" && pwd)/claims.pml
BUILD=${BUILD:-build}/model

# Bits of MENU, in words; the two models number them differently (claims.pml: choose, Program)
q_1=1 q_2=2 q_both=4 q_try1=8 q_try2=16 q_tryboth=32 q_1then2=64 q_try1then2=128 q_greedy1then2=256 q_greedy1=512
q_third=$((1 << 11)) q_all=$((1 << 12)) q_try3=$((1 << 19)) q_1then24=$((1 << 24)) q_23then4=$((1 << 25))
q_1thengreedy2=$((1 << 26)) q_greedytry2=$((1 << 27))
p_1=1 p_2=2 p_both=4 p_1then2=8

menus() { # MENU0 MENU1 [MENU2]
	printf -- '-DHOSTS=%d' "$#"
	local host=0 menu
	for menu; do
		printf -- ' -DMENU%d=%d' "$host" "$menu"
		host=$((host + 1))
	done
}

# name, check, switches
configurations() {
	local wait=$((q_1 | q_2 | q_both)) try=$((q_try1 | q_try2 | q_tryboth))

	echo "queue-overtake safety $(menus $q_1then2 $wait $try)"
	echo "queue-greed safety $(menus $((q_greedy1then2 | q_greedy1)) $wait $try)"
	echo "queue-owners safety $(menus $((q_2 | q_try2 | q_1then2)) $((q_both | q_1)) $((q_try1then2 | q_try1 | q_tryboth)))"
	echo "queue-greedy-owner safety -DGREEDY_OWNER $(menus $q_1thengreedy2 $q_2 $((q_greedytry2 | q_2)))"
	echo "queue-patience safety -DPATIENCE $(menus $q_1then2 $wait $((q_both | q_2)))"
	echo "queue-patience-three safety -DPATIENCE $(menus $wait $wait $wait)"
	echo "queue-stale-mark safety $(menus $q_1then24 $q_23then4 $q_third)"
	echo "queue-four-hosts safety -DSEQS=4 $(menus $q_2 $q_all $q_try3 $q_try1)"
	echo "queue-loss-owner safety -DLOSSES=1 -DUNLUCKY=1 -DSEQS=7 $(menus $q_1then2 $q_both $q_2)"
	echo "queue-loss-waiter safety -DLOSSES=1 -DUNLUCKY=2 $(menus $q_1then2 $q_both $q_try2)"
	echo "queue-loss-try safety -DLOSSES=1 -DUNLUCKY=4 $(menus $q_1 $q_both $q_try2)"
	echo "page-recall safety -DPAGE $(menus $p_1then2 $p_both $p_2)"
	echo "page-relock safety -DPAGE -DROUNDS=2 -DSEQS=8 $(menus $p_1 $p_both)"
	echo "page-stranger safety -DPAGE -DSTRANGERS=3 $(menus $p_1then2 $((p_1 | p_2 | p_both)))"
	echo "page-loss safety -DPAGE -DLOSSES=1 -DSEQS=8 $(menus $p_1then2 $p_both)"
	echo "page-crash safety -DPAGE -DCRASHES=1 -DSEQS=8 $(menus $p_1then2 $p_both)"
	echo "page-crash-stranger safety -DPAGE -DCRASHES=1 -DUNLUCKY=1 -DSTRANGERS=1 $(menus $p_1 $p_1)"
	echo "queue-overtake-ends progress $(menus $q_1then2 $wait $try)"
	echo "queue-stale-mark-ends progress $(menus $q_1then24 $q_23then4 $q_third)"
	echo "queue-greedy-owner-ends progress -DGREEDY_OWNER $(menus $q_1thengreedy2 $q_2 $((q_greedytry2 | q_2)))"
	echo "queue-patience-ends progress -DPATIENCE $(menus $q_1then2 $q_both $((q_both | q_2)))"
	echo "page-recall-ends progress -DPAGE $(menus $p_1then2 $p_both)"
}

# R6 is not among them: with R8 in force, spin finds no fault in any configuration here when R6 alone is left out (R8
# watches the claim that the mark is taken from).
mutants() {
	local wait=$((q_1 | q_2 | q_both)) try=$((q_try1 | q_try2 | q_tryboth))

	echo "R1 safety -DNO_R1 $(menus $((q_1then2 | q_greedy1then2)) $wait $try)"
	echo "R2 safety -DNO_R2 $(menus $q_2 $q_both $q_try1then2)"
	echo "R2-confirmed safety -DNO_R2_CONFIRMED -DSEQS=4 $(menus $q_2 $q_all $q_try3 $q_try1)"
	echo "R3 safety -DNO_R3 $(menus $q_1then2 $wait $try)"
	echo "R4 safety -DNO_R4 $(menus $q_1then2 $wait $try)"
	echo "R5 safety -DNO_R5 $(menus $q_1then2 $wait $try)"
	echo "R4-patience safety -DNO_R4 -DPATIENCE $(menus $q_1then2 $wait $((q_both | q_2)))"
	echo "R5-greedy-owner safety -DNO_R5 -DGREEDY_OWNER $(menus $q_1thengreedy2 $q_2 $((q_greedytry2 | q_2)))"
	echo "R7 safety -DNO_R7 $(menus $q_1then2 $wait $try)"
	echo "R8 safety -DNO_R8 $(menus $q_1then24 $q_23then4 $q_third)"
	echo "restart-in-step progress -DNO_CALM $(menus $q_1then2 $q_both $q_try2)"
	echo "I4-keeper safety -DPAGE -DNO_I4_KEEPER -DROUNDS=2 -DSEQS=8 $(menus $p_1 $p_both)"
	echo "I4-program safety -DPAGE -DNO_I4_PROGRAM -DROUNDS=2 -DSEQS=8 $(menus $p_1 $p_both)"
	echo "I7-cover safety -DPAGE -DNO_I7 -DLOSSES=1 -DSEQS=7 $(menus $p_1 $p_both) -DROUNDS=2"
	echo "I7-request safety -DPAGE -DNO_I7_REQUEST -DLOSSES=1 -DSEQS=7 $(menus $p_1 $p_both)"
	echo "lease-first safety -DPAGE -DNO_LEASE_FIRST -DLOSSES=1 -DSEQS=7 $(menus $p_1then2 $p_both)"
	echo "recall-by-slot safety -DPAGE -DRECALL_BY_SLOT -DROUNDS=2 -DSEQS=8 $(menus $p_2 $p_1then2)"
	echo "resume-generation safety -DPAGE -DNO_RESUME_GENERATION -DCRASHES=1 -DSEQS=7 $(menus $p_1 $p_both)"
	echo "resume-trusts-kernel safety -DPAGE -DRESUME_TRUSTS_KERNEL -DCRASHES=1 -DUNLUCKY=1 -DSTRANGERS=1 $(menus $p_1 $p_1)"
}

# Larger ones that have never been run to their end: over 20 million states without a fault, and no end in sight.
long() {
	echo "page-loss-three safety -DPAGE -DLOSSES=1 -DUNLUCKY=1 $(menus $p_1 $p_1 $p_1)"
	echo "page-crash-three safety -DPAGE -DCRASHES=1 -DUNLUCKY=1 $(menus $p_1 $p_1 $p_1)"
}

# check NAME KIND SWITCHES...: prints "clean", "fault: WHAT" or "bound: WHICH", and the size
check() {
	local name=$1 kind=$2 directory=$BUILD/$1 define=() run=() found status
	shift 2

	rm -rf "$directory"
	mkdir -p "$directory" || exit 2
	case $kind in
	safety) define=(-DSAFETY) ;;
	progress)
		define=(-DNP) run=(-l)
		case " $* " in
		*' -DNO_CALM '*) ;;
		*) set -- -DCALM "$@" ;;
		esac
		;;
	esac
	cp "$MODEL" "$directory/claims.pml"
	(cd "$directory" && spin -a "$@" claims.pml >spin.out 2>&1) &&
		(cd "$directory" && gcc -O2 -w -DCOLLAPSE -DMEMLIM=$MEMORY_MB "${define[@]}" -o pan pan.c 2>gcc.out) || {
		echo "check.sh: spin or gcc refuses $name: see $directory" >&2
		exit 2
	}
	(cd "$directory" && exec timeout "$LIMIT_S" ./pan "${run[@]}" -m$DEPTH >pan.out 2>&1)
	status=$?
	case $status in
	124) echo "bound: $LIMIT_S s, $(size "$directory")"; return ;;
	129 | 13? | 14?) echo "killed: signal $((status - 128)), $(size "$directory")"; return ;;
	esac
	found=$(sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$directory/pan.out")
	if [ -n "$found" ]; then
		case $found in
		*last\<=*) found="bound: SEQS is too small" ;;
		assertion*) found="fault: two holders" ;;
		'invalid end'*) found="fault: standstill" ;;
		*) found="fault: goes round for ever" ;;
		esac
	elif grep -q 'errors: 0$' "$directory/pan.out" && ! grep -Eq 'too small|reached -DMEMLIM|Search not completed' "$directory/pan.out"; then
		found=clean
	else
		found="bound: memory or search depth"
	fi
	echo "$found, $(size "$directory")"
}

size() { # states and seconds of a finished or interrupted run
	awk '/states, stored/ { states = $1 } /^Depth=/ { sub(/.*States= */, ""); partial = $1 }
		/elapsed time/ { seconds = $4 } /total actual memory/ { memory = $1 }
		END { printf "%s states, %s s, %s MB", states ? states : "over " partial, seconds ? seconds : "?", memory ? memory : "?" }' \
		"$1/pan.out"
}

command -v spin >/dev/null && command -v gcc >/dev/null || {
	echo 'check.sh: needs spin and gcc (Debian: apt install spin gcc)' >&2
	exit 2
}

table=configurations expected=clean
case ${1-} in
--mutants) table=mutants expected=fault && shift ;;
--long) table=long && shift ;;
esac
for name; do
	$table | grep -q "^$name " || { echo "check.sh: no such check: $name; there are: $($table | cut -d' ' -f1 | paste -sd' ')" >&2; exit 2; }
done

failed=0
while read -r name kind switches; do
	[ $# -eq 0 ] || [[ " $* " = *" $name "* ]] || continue
	# The switches are words on purpose.
	# shellcheck disable=SC2086
	result=$(check "$name" "$kind" $switches) || exit 2
	case $result in
	$expected*) verdict=PASS ;;
	*) verdict=FAIL failed=1 ;;
	esac
	printf '%s %-22s %-8s %s\n' "$verdict" "$name" "$kind" "$result"
done < <($table)
exit $failed

# tests/lib_actors.sh - several actors on one file, and whether they wait
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2004 # the index is a name, not a number

# actors FILE[,FILE] NAME=HOST... - start them, each with the first FILE open in slot 0, the second in slot 1
actors() {
	local files=${1//,/ } file slot actor
	shift
	for actor; do
		[ "${actor#*=}" != gamma ] || [ -d "$T/gamma" ] || host gamma
		actor "${actor%=*}" "${actor#*=}"
		slot=0
		for file in $files; do
			expect "${actor%=*}" "open $slot rw $file" ok
			((++slot))
		done
	done
}

# any_answered NAME... - has one of them answered its last command?
any_answered() {
	local name
	for name; do has_line "$name" $((ANSWERS_READ[$name] + 1)) && return 0; done
	return 1
}

# nobody_answers SECONDS NAME... - time itself is the subject: so long they all wait
nobody_answers() {
	local seconds=$1
	shift
	wait_until "$seconds" any_answered "$@"
	assertNotEquals "all wait: $*" 0 $?
}

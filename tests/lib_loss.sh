# tests/lib_loss.sh - jobs whose every move is on record, and what has become of them; to be read after lib.sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # used by the test files; lib.sh's

# ticker HOST FILE OUT - a job under flock(1) that writes the time in ms to OUT twenty times a second; $ticker is its pid
ticker() {
	rm -f "$3"
	spawn "$1" flock "$2" bash -c 'while :; do echo $((${EPOCHREALTIME/./} / 1000)) >>"$1"; read -rt 0.05 <>"$2"; done' \
		ticker "$3" "$T/nap"
	ticker=$spawned
	wait_until 10 test -s "$3" || fail "no ticker on $1"
}

# nap SECONDS - where time itself is the subject
nap() {
	local fd nothing
	exec {fd}<>"$T/nap"
	read -rt "$1" -u "$fd" nothing
	exec {fd}>&-
}

# started FILE, standing FILE, frozen FILE SECONDS - does something write to it, (soon) no more?
grows() { [ "$(stat -c %s "$1")" != "$2" ]; }
started() { wait_until 10 grows "$1" "$(stat -c %s "$1")"; }
standing() {
	local size
	size=$(stat -c %s "$1")
	nap 0.6
	! grows "$1" "$size"
}
frozen() { wait_until "$2" standing "$1"; }
state_of() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
keeper_is_not() { [ "$(keeper_pid "$1")" ] && [ "$(keeper_pid "$1")" != "$2" ]; }
logged() { grep -q "$2" "$T/$1/run/log"; }

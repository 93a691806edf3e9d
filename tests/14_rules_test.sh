# tests/14_rules_test.sh - lock names between hosts that map otherwise, and rules that change under running programs
# modes: cluster
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh's
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

eval "$(declare -f oneTimeSetUp | sed 's/^oneTimeSetUp/common_set_up/')"
oneTimeSetUp() {
	local name
	common_set_up || return 1
	for name in alpha beta; do
		mkdir -p "$T/$name/t" "$T/$name/s"/{home/{ann,bob}/app,flat/{a,b},dirs/{a,b}/c}
		printf '%s\n' "map $T/$name/t t/%r" "map $T/$name/s/home/*/app app-%1/%r" "map $T/$name/s/flat flat/%b" \
			"map $T/$name/s/dirs dirs/%d/%b" >>"$T/$name/zkflock.conf"
	done
}

# excludes MESSAGE ALPHA BETA - alpha's file, held, keeps beta from that one
excludes() {
	hold alpha "$2" -m sh || { fail "$1: alpha did not get $2"; return; }
	assertEquals "$1" busy "$(try beta "$3")"
	end "$holder"
}

# apart MESSAGE ALPHA BETA - and these two are different locks
apart() {
	hold alpha "$2" || { fail "$1: alpha did not get $2"; return; }
	assertEquals "$1" granted "$(try beta "$3")"
	end "$holder"
}

# ---- names -----------------------------------------------------------------------------------------------------------

test_parts_of_the_path_between_hosts() {
	excludes 'by user' home/ann/app/x home/ann/app/x
	apart 'of another user' home/ann/app/x home/bob/app/x
	excludes 'by base name' flat/a/job flat/b/job
	apart 'of another base name' flat/a/job flat/a/job2
	excludes 'by directory and base name' dirs/a/c/job dirs/a/c/job
	apart 'of another directory' dirs/a/c/job dirs/b/c/job
	excludes 'directly below the prefix' dirs/job dirs/job
}

# ---- new rules -------------------------------------------------------------------------------------------------------

# reloads HOST - has its keeper taken the new rules?  What it says is in $said
reloads() {
	said=$(ZKFLOCK_RUNTIME_DIR=$T/$1/run "$BUILD/zkflock" reload 2>&1)
}

# rules HOST LINE... - the host's rules from now on, behind what its file had at first
rules() {
	local conf=$T/$1/zkflock.conf
	[ -e "$conf.first" ] || cp "$conf" "$conf.first"
	cp "$conf.first" "$conf"
	shift
	[ $# = 0 ] || printf '%s\n' "$@" >>"$conf"
}

# another_keeper HOST PID - has it one that is not PID?
another_keeper() { [ "$(keeper_pid "$1")" ] && [ "$(keeper_pid "$1")" != "$2" ]; }

# new_host NAME - one whose s maps nothing below "free"
new_host() {
	host "$1" "map $T/$1/s/free -"
	mkdir -p "$T/$1/s/free" "$T/beta/s/free"
	assertEquals 'the keeper runs' granted "$(try "$1" any.lock)"
}

test_a_running_program_notices_a_reload() {
	new_host note
	actor P note
	expect P 'open 0 rw free/x' ok
	expect P 'flock 0 ex' ok
	assertEquals 'it is not mapped' granted "$(try beta free/x)"
	sed "s|map $T/note/s/free -|map $T/note/s/other -|" -i "$T/note/zkflock.conf"
	reloads note || fail "reload: $said"
	assertEquals reloaded "$said"
	assertEquals 'a lock that was taken before stays what it is' granted "$(try beta free/x)"
	expect P 'flock 0 un' ok
	expect P 'flock 0 ex' ok
	assertEquals 'it is mapped now' busy "$(try beta free/x)"
	# And back: the held lock stays a cluster lock, the next one is none.
	rules note "map $T/note/s/free/x -"
	reloads note || fail "reload: $said"
	assertEquals 'it is held' busy "$(try beta free/x)"
	expect P 'setlk 0 wr 0 0' ok
	assertEquals 'a new lock on the file is the kernel'"'"'s alone' granted "$(try beta free/x -k posix)"
	expect P 'flock 0 ex' ok
	assertEquals 'it is held, asked for again' busy "$(try beta free/x)"
	expect P 'flock 0 un' ok
	assertTrue 'free' 'becomes granted 5 beta free/x'
	expect P 'flock 0 ex' ok
	assertEquals 'it is not mapped' granted "$(try beta free/x)"
	tell P 'exit 0'
}

# locks_in_the_cluster - does P's next lock on free/y keep beta out?
locks_in_the_cluster() {
	expect P 'flock 0 un' ok
	expect P 'flock 0 ex' ok
	[ "$(try beta free/y)" = busy ]
}

# Its first lock call has met no keeper.
test_a_program_that_is_older_than_the_keeper_notices() {
	host elder "map $T/elder/s/free -"
	mkdir -p "$T/elder/s/free" "$T/beta/s/free"
	actor P elder
	expect P 'open 0 rw free/y' ok
	expect P 'flock 0 ex' ok
	expect P 'flock 0 un' ok
	sed '$d' -i "$T/elder/zkflock.conf"
	assertEquals 'a keeper begins' granted "$(try elder any.lock)"
	assertTrue 'within a second' 'wait_until 3 locks_in_the_cluster'
	tell P 'exit 0'
}

# A conversion of what is held is no new lock: another host may share it.
test_a_conversion_after_a_reload() {
	new_host conv
	actor P conv
	expect P 'open 0 rw c' ok
	expect P 'flock 0 sh' ok
	hold beta c -m sh || fail 'not shared'
	rules conv "map $T/conv/s/c -"
	reloads conv || fail "reload: $said"
	expect P 'flock 0 ex nb' EAGAIN
	tell P 'exit 0'
	end "$holder"
}

test_a_file_gets_another_name() {
	new_host nick
	actor P nick
	expect P 'open 0 rw n' ok
	expect P 'flock 0 ex' ok
	rules nick "map $T/nick/s/n t/%b"
	reloads nick || fail "reload: $said"
	assertEquals 'held: the old name' busy "$(try beta n)"
	assertEquals 'held: the new one is free' granted "$(try beta "$T/beta/t/n")"
	assertEquals 'its own host' busy "$(try nick n)"
	expect P 'flock 0 un' ok
	expect P 'flock 0 ex' ok
	assertEquals 'a new lock: the new name' busy "$(try beta "$T/beta/t/n")"
	assertEquals 'the old one is free' granted "$(try beta n)"
	# Kept, but not in use: no new lock under the old name, however quick.
	expect P 'flock 0 un' ok
	rules nick
	reloads nick || fail "reload: $said"
	expect P 'flock 0 ex' ok
	assertEquals 'the first name again' busy "$(try beta n)"
	tell P 'exit 0'
}

test_a_broken_file_changes_nothing() {
	local pid conf
	new_host broken
	conf=$T/broken/zkflock.conf
	actor P broken
	expect P 'open 0 rw b' ok
	expect P 'open 1 rw free/b' ok
	expect P 'flock 1 ex' ok
	rules broken 'map /nowhere'
	reloads broken
	assertEquals 'exit status' 1 $?
	assertEquals "$conf:$(wc -l <"$conf"): map without a lock name; allowed is: map PREFIX NAME [option=value...]
zkflock: reload: the old rules stay" "$said"
	expect P 'flock 0 ex' ok
	assertEquals 'the old rules' busy "$(try beta b)"
	expect P 'flock 0 un' ok
	# A keeper that is started again has nothing but the broken file, and needs it not.
	pid=$(keeper_pid broken)
	kill -KILL "$pid"
	assertTrue 'another keeper' "wait_until 10 another_keeper broken $pid"
	expect P 'flock 0 ex' ok 20
	assertEquals 'still the old rules' busy "$(try beta b)"
	expect P 'flock 1 un' ok
	expect P 'flock 1 ex' ok
	assertEquals 'not mapped, still' granted "$(try beta free/b)"
	rm "$conf"
	reloads broken
	assertEquals 'no file: exit status' 1 $?
	assertContains "$said" "$conf: No such file"
	rules broken
	reloads broken || fail "mended: $said"
	tell P 'exit 0'
}

test_a_keeper_that_is_started_again_has_the_new_rules() {
	local pid
	new_host again
	sed '$d' -i "$T/again/zkflock.conf"
	reloads again || fail "reload: $said"
	pid=$(keeper_pid again)
	kill -KILL "$pid"
	assertTrue 'another keeper' "wait_until 10 another_keeper again $pid"
	hold again free/z || { fail 'not held'; return; }
	assertEquals 'mapped since the reload' busy "$(try beta free/z)"
	end "$holder"
}

test_what_needs_a_restart_is_said() {
	local conf
	new_host fixed
	conf=$T/fixed/zkflock.conf
	sed 's|^root .*|root /elsewhere|; s/^session_timeout .*/session_timeout 8s/; s/^tick_time .*//' -i "$conf"
	printf '%s\n' 'connect_timeout 1s' 'keep 1s' >>"$conf"
	reloads fixed || fail "reload: $said"
	assertEquals "$conf:2: root is changed, and needs a restart of zkflockd
$conf:3: session_timeout is changed, and needs a restart of zkflockd
$conf: tick_time is set no more, and needs a restart of zkflockd
reloaded" "$said"
	hold fixed r || { fail 'not held'; return; }
	assertEquals 'the old root' busy "$(try beta r)"
	end "$holder"
}

# A keeper that serves everybody is not told by everybody what to do.
test_another_user_may_not_reload() {
	[ "$(id -u)" = 0 ] || { skip 'needs root'; return; }
	new_host users
	chmod 755 "$T/users/run"
	said=$(cd "$T/users/run" && exec 8<"$BUILD/zkflock" 9<. && ZKFLOCK_RUNTIME_DIR=/proc/self/fd/9 \
		setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/8 reload 2>&1)
	assertEquals 'exit status' 1 $?
	assertEquals "zkflock: reload: only root and the keeper's own user may do that" "$said"
	chmod 700 "$T/users/run"
}

test_rules_are_dropped_in() {
	local conf
	host drop
	conf=$T/drop/zkflock.conf
	mkdir -p "$conf.d" "$T/drop/pack" "$T/beta/t"
	assertEquals granted "$(try drop any.lock)"
	hold drop "$T/drop/pack/p" || { fail 'not held'; return; }
	assertEquals 'not mapped yet' granted "$(try beta "$T/beta/t/p")"
	end "$holder"
	echo "map $T/drop/pack t/%r" >"$conf.d/50-pack.conf"
	reloads drop || fail "reload: $said"
	hold drop "$T/drop/pack/p" || { fail 'not held'; return; }
	assertEquals 'mapped' busy "$(try beta "$T/beta/t/p")"
	end "$holder"
	echo "map $T/drop/pack x" >"$conf.d/60-twice.conf"
	reloads drop
	assertEquals 'twice: exit status' 1 $?
	assertContains "$said" "$conf.d/60-twice.conf:1: prefix"
	assertContains "$said" "in '50-pack.conf' at line 1 already"
	# What was right is read again when it is taken away.
	rm "$conf.d/60-twice.conf" "$conf.d/50-pack.conf"
	reloads drop || fail "reload: $said"
	hold drop "$T/drop/pack/p" || { fail 'not held'; return; }
	assertEquals 'not mapped any more' granted "$(try beta "$T/beta/t/p")"
	end "$holder"
}

# shellcheck source=/dev/null
. shunit2

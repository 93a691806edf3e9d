# tests/12_names_test.sh - what the kernel says of a path, lock names between hosts, and rules that change under programs
# modes: native cluster
#
# The kernel has one answer for every way to a file; what of it is about two hosts must hold between them too.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh's
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SHM=/dev/shm/zkflock-names.$$
TMP=/tmp/zkflock-names.$$

eval "$(declare -f oneTimeSetUp | sed 's/^oneTimeSetUp/common_set_up/')"
eval "$(declare -f oneTimeTearDown | sed 's/^oneTimeTearDown/common_tear_down/')"
oneTimeSetUp() {
	local name
	common_set_up || return 1
	cluster || return 0
	for name in alpha beta; do
		mkdir -p "$T/$name/t" "$T/$name/s"/{home/{ann,bob}/app,flat/{a,b},dirs/{a,b}/c} "$SHM-$name" "$TMP-$name"
		# Hosts that map files otherwise to the same names.
		printf '%s\n' "map $T/$name/s/later -" "map $T/$name/t t/%r" "map $SHM-$name shm/%r" "map $TMP-$name tmp/%r" \
			"map $T/$name/s/home/*/app app-%1/%r" "map $T/$name/s/flat flat/%b" \
			"map $T/$name/s/dirs dirs/%d/%b" >>"$T/$name/zkflock.conf"
	done
}

oneTimeTearDown() {
	common_tear_down
	[ "$KEEP" ] || rm -rf "$SHM"-* "$TMP"-*
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

# ---- the path --------------------------------------------------------------------------------------------------------

test_symbolic_links_are_followed() {
	on alpha mkdir -p links/real
	on beta mkdir -p links/real
	on alpha ln -sfn real links/way
	on alpha ln -sfn real/file links/file
	excludes 'a link to the file' links/file links/real/file
	excludes 'a link to the directory' links/way/other links/real/other
}

test_every_byte_of_a_name_counts() {
	local name
	for name in 'a b' $'a\nb' $'a\tb' 'a\012b' 'a%20b' $'\xff\xfe' 'ä' '#x' '-' "q'\"" 'x (deleted)' "$(printf '%0255d' 0)"; do
		excludes "'$name'" "./$name" "./$name"
	done
	apart 'a space and its encoding' 'a b' 'a%20b'
	apart 'a newline and its escape' $'a\nb' 'a\012b'
	apart 'a suffix that is part of the name' 'x (deleted)' x
	apart 'long names that differ at the end' "$(printf '%0254dx' 0)" "$(printf '%0254dy' 0)"
}

# as_long_as BYTES DIR - a path of so many bytes below DIR
as_long_as() {
	local path=$2 part
	printf -v part '%0200d' 0
	while [ $((${#path} + 300)) -lt "$1" ]; do path+=/$part; done
	printf '%s/%0*d' "$path" $(($1 - ${#path} - 1)) 0
}

test_the_longest_paths() {
	local host path
	for host in alpha beta; do
		path=$(realpath "$T/$host/s")
		path=$(as_long_as $((4000 + ${#path})) "$path")
		path=${path:0:4095}
		mkdir -p "${path%/*}"
		: >"$path" || { fail 'no such long path'; return; }
	done
	# The same way below s on both hosts, whose names differ in length.
	path=$(as_long_as 4000 .)
	path=${path:0:$((4090 - ${#T} - 8))}
	for host in alpha beta; do (cd "$T/$host/s" && mkdir -p "${path%/*}" && : >"$path"); done
	excludes 'almost PATH_MAX' "$path" "$path"
	apart 'another one' "$path" "${path:0:-1}"
}

# The kernel does not tell such a path.  It may be a cluster lock's, and so it is none of the kernel's alone.
test_a_path_that_the_kernel_does_not_tell() {
	local code='
import errno, fcntl, os, sys
os.makedirs("deep", exist_ok=True); os.chdir("deep")
for i in range(25):
    os.makedirs("d" * 200, exist_ok=True); os.chdir("d" * 200)
f = open("file", "w")
try:
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("granted")
except OSError as e:
    print(errno.errorcode[e.errno])'
	if cluster; then
		assertEquals ENOLCK "$(ZKFLOCK_TEST_LOG=error on alpha "$PYTHON" -c "$code" 2>"$T/out.err")"
		assertTrue "says why: $(cat "$T/out.err")" "grep -q 'longer than PATH_MAX' '$T/out.err'"
	else
		assertEquals granted "$(on alpha "$PYTHON" -c "$code")"
	fi
}

test_directories_are_locked() {
	local host
	for host in alpha beta; do on $host mkdir -p spool; done
	spawn alpha flock -F spool sh -c 'echo held; exec sleep 60'
	assertTrue 'held' "wait_until 10 contains '$spawned_out' held"
	on beta flock -n spool true
	assertEquals 'beta, the directory' 1 $?
	on alpha flock -n spool true
	assertEquals 'alpha, the directory' 1 $?
	assertEquals 'a file in it' granted "$(try beta spool/file)"
	end "$spawned"
	assertTrue 'free again' 'wait_until 5 on beta flock -n spool true'
}

test_hard_links_are_one_file_on_their_host() {
	: >"$T/alpha/s/name"
	ln -f "$T/alpha/s/name" "$T/alpha/s/another"
	hold alpha name || { fail 'not held'; return; }
	assertEquals 'by the other name' busy "$(try alpha another)"
	assertEquals 'by the first name, from beta' busy "$(try beta name)"
	end "$holder"
	hold alpha another || { fail 'not held'; return; }
	assertEquals 'by the first name' busy "$(try alpha name)"
	end "$holder"
	assertEquals 'free again' granted "$(try alpha name)"
}

# Two inodes for the kernel; one lock for the cluster: the holder still believes in it.
test_a_lock_file_that_is_deleted_and_made_again() {
	cluster || { skip 'one host: the kernel takes the new file for another one'; return; }
	hold alpha gone.lock || { fail 'not held'; return; }
	rm "$T/alpha/s/gone.lock"
	assertEquals 'beta, while it has no name' busy "$(try beta gone.lock)"
	: >"$T/alpha/s/gone.lock"
	assertEquals 'beta, made again on alpha' busy "$(try beta gone.lock)"
	assertEquals 'alpha, the new file' busy "$(try alpha gone.lock)"
	end "$holder"
	assertEquals 'beta, afterwards' granted "$(wait_for beta gone.lock 5)"
	assertEquals 'alpha, afterwards' granted "$(wait_for alpha gone.lock 5)"
}

test_a_file_that_is_locked_after_it_was_deleted() {
	cluster || { skip 'one host: the kernel takes the new file for another one'; return; }
	actor P alpha
	expect P 'open 0 rw late.lock' ok
	rm "$T/alpha/s/late.lock"
	expect P 'flock 0 ex' ok
	assertEquals 'beta' busy "$(try beta late.lock)"
	assertEquals 'alpha, made again' busy "$(try alpha late.lock)"
	expect P 'flock 0 un' ok
	assertTrue 'beta, afterwards' 'becomes granted 5 beta late.lock'
	tell P 'exit 0'
}

test_a_file_that_is_replaced_while_it_is_locked() {
	cluster || { skip 'one host: the kernel takes the new file for another one'; return; }
	hold alpha db || { fail 'not held'; return; }
	: >"$T/alpha/s/db.new"
	mv "$T/alpha/s/db.new" "$T/alpha/s/db"
	assertEquals 'beta' busy "$(try beta db)"
	assertEquals 'alpha, the new file' busy "$(try alpha db)"
	end "$holder"
	assertEquals 'afterwards' granted "$(wait_for beta db 5)"
}

test_a_file_that_is_renamed_keeps_its_lock_until_it_is_free() {
	hold alpha old || { fail 'not held'; return; }
	mv "$T/alpha/s/old" "$T/alpha/s/new"
	assertEquals 'alpha, the file itself' busy "$(try alpha new)"
	if cluster; then
		assertEquals 'beta, the name it was locked by' busy "$(try beta old)"
		end "$holder"
		assertEquals 'the old name' granted "$(wait_for beta old 5)"
		excludes 'the new name' new new
	fi
}

test_file_systems_in_memory_and_elsewhere() {
	cluster || { skip 'the hosts share one directory'; return; }
	[ -w /dev/shm ] || { skip 'no /dev/shm'; return; }
	excludes /dev/shm "$SHM-alpha/x" "$SHM-beta/x"
	excludes /tmp "$TMP-alpha/x" "$TMP-beta/x"
	apart 'one name in two of them' "$SHM-alpha/x" "$TMP-beta/x"
}

can_mount() { unshare -m mount --bind "$T" "$T" 2>/dev/null; }

# By way of a mount the kernel tells the path that the program has gone: it wants a rule of its own.
test_bind_mounts_are_paths_of_their_own() {
	local out
	can_mount || { skip 'no mounts here'; return; }
	if ! cluster; then
		mkdir -p "$T/bound"
		spawn alpha unshare -m sh -c "mount --bind '$T/s' '$T/bound' && exec '$PROBES/lock' -w -h '$T/bound/b.lock'"
		assertTrue held "wait_until 10 contains '$spawned_out' granted"
		assertEquals 'it is one file' busy "$(try beta b.lock)"
		return
	fi
	host bound
	mkdir -p "$T/bound/m" "$T/bound/u"
	echo "map $T/bound/m s/%r" >>"$T/bound/zkflock.conf"
	spawn bound unshare -m sh -c "mount --bind '$T/bound/s' '$T/bound/m' && exec '$PROBES/lock' -w -h '$T/bound/m/b.lock'"
	assertTrue held "wait_until 10 contains '$spawned_out' granted"
	assertEquals 'beta' busy "$(try beta b.lock)"
	assertEquals 'its own host, by the other path' busy "$(try bound b.lock)"
	end "$spawned"
	assertEquals 'afterwards' granted "$(wait_for beta b.lock 5)"
	# A mount that no rule names is not mapped, and the tool says so.
	out=$(ZKFLOCK_CONF=$T/bound/zkflock.conf unshare -m sh -c \
		"mount --bind '$T/bound/s' '$T/bound/u' && '$BUILD/zkflock' check '$T/bound/u/b.lock'")
	assertContains "$out" 'not mapped: no rule'
}

# A program in a new root has other paths than the rules; its keeper is out of reach.  It gets no lock that may be none.
test_a_program_that_changes_its_root() {
	local code='
import errno, fcntl, os, sys
def lock(name):
    try:
        fcntl.flock(open(name, "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "granted"
    except OSError as e:
        return errno.errorcode[e.errno]
print(lock(sys.argv[1] + "/out"), lock(sys.argv[2] + "/mapped"))
os.chroot(sys.argv[1])
print(lock("/inside"))'
	[ "$(id -u)" = 0 ] && can_mount || { skip 'needs root and mounts'; return; }
	mkdir -p "$T/jail/proc"
	if cluster; then
		assertEquals 'without /proc' $'granted granted\nENOLCK' \
			"$(ZKFLOCK_TEST_LOG='' on alpha "$PYTHON" -c "$code" "$T/jail" "$T/alpha/s")"
		assertEquals 'with /proc' $'granted granted\nENOLCK' "$(ZKFLOCK_TEST_LOG='' on alpha unshare -m sh -c \
			"mount --bind /proc '$T/jail/proc' && exec '$PYTHON' -c \"\$1\" '$T/jail' '$T/alpha/s'" sh "$code")"
	else
		assertEquals $'granted granted\ngranted' "$(on alpha "$PYTHON" -c "$code" "$T/jail" "$T/s")"
	fi
}

# An overlay has locks of its own, and a file keeps them when it is copied up.
test_overlayfs() {
	local o=$T/overlay
	mkdir -p "$o"/{low,up,work,s}
	echo low >"$o/low/file"
	mount -t overlay overlay -o "index=off,lowerdir=$o/low,upperdir=$o/up,workdir=$o/work" "$o/s" 2>/dev/null ||
		{ skip 'no overlayfs here'; return; }
	if cluster; then
		host over "map $o/s over/%r"
		host other
		mkdir -p "$T/other/o"
		echo "map $T/other/o over/%r" >>"$T/other/zkflock.conf"
		echo low >"$T/other/o/file"
	else
		host over
		host other
		mkdir -p "$T/other"
		ln -s "$o/s" "$T/other/o"
	fi
	hold over "$o/s/file" -m sh || fail 'not held'
	echo more >>"$o/s/file"
	assertEquals 'copied up, its own host' busy "$(try over "$o/s/file")"
	assertEquals 'copied up, the other host' busy "$(try other "$T/other/o/file")"
	end "$holder"
	assertEquals 'afterwards' granted "$(wait_for other "$T/other/o/file" 5)"
	assertEquals 'and back' granted "$(wait_for over "$o/s/file" 5)"
	umount -l "$o/s"
}

# ---- names -----------------------------------------------------------------------------------------------------------

test_parts_of_the_path_between_hosts() {
	cluster || { skip 'names are between hosts'; return; }
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

# new_host NAME - one whose s maps nothing below "free"
new_host() {
	host "$1" "map $T/$1/s/free -"
	mkdir -p "$T/$1/s/free" "$T/beta/s/free"
	assertEquals 'the keeper runs' granted "$(try "$1" any.lock)"
}

test_a_running_program_notices_a_reload() {
	cluster || { skip 'rules are the library'"'"'s'; return; }
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

# Its first lock call has met no keeper.
test_a_program_that_is_older_than_the_keeper_notices() {
	cluster || { skip 'rules are the library'"'"'s'; return; }
	host elder "map $T/elder/s/free -"
	mkdir -p "$T/elder/s/free" "$T/beta/s/free"
	actor P elder
	expect P 'open 0 rw free/y' ok
	expect P 'flock 0 ex' ok
	expect P 'flock 0 un' ok
	sed '$d' -i "$T/elder/zkflock.conf"
	assertEquals 'a keeper begins' granted "$(try elder any.lock)"
	locked_in_the_cluster() {
		expect P 'flock 0 un' ok
		expect P 'flock 0 ex' ok
		[ "$(try beta free/y)" = busy ]
	}
	assertTrue 'within a second' 'wait_until 3 locked_in_the_cluster'
	tell P 'exit 0'
}

# A conversion of what is held is no new lock: another host may share it.
test_a_conversion_after_a_reload() {
	cluster || { skip 'rules are the library'"'"'s'; return; }
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
	cluster || { skip 'rules are the library'"'"'s'; return; }
	new_host nick
	actor P nick
	expect P 'open 0 rw n' ok
	expect P 'flock 0 ex' ok
	rules nick "map $T/nick/s/n t/n"
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
	cluster || { skip 'rules are the library'"'"'s'; return; }
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
	another_keeper() { [ "$(keeper_pid broken)" ] && [ "$(keeper_pid broken)" != "$pid" ]; }
	assertTrue 'another keeper' 'wait_until 10 another_keeper'
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
	cluster || { skip 'rules are the library'"'"'s'; return; }
	new_host again
	sed '$d' -i "$T/again/zkflock.conf"
	reloads again || fail "reload: $said"
	pid=$(keeper_pid again)
	kill -KILL "$pid"
	another_keeper() { [ "$(keeper_pid again)" ] && [ "$(keeper_pid again)" != "$pid" ]; }
	assertTrue 'another keeper' 'wait_until 10 another_keeper'
	hold again free/z || { fail 'not held'; return; }
	assertEquals 'mapped since the reload' busy "$(try beta free/z)"
	end "$holder"
}

test_what_needs_a_restart_is_said() {
	local conf
	cluster || { skip 'rules are the library'"'"'s'; return; }
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

test_rules_are_dropped_in() {
	local conf
	cluster || { skip 'rules are the library'"'"'s'; return; }
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

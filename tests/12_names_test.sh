# tests/12_names_test.sh - what the kernel says of a path
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
	local name dir
	common_set_up || return 1
	for dir in "$SHM" "$TMP"; do
		mkdir -p "$dir-alpha"
		if cluster; then mkdir -p "$dir-beta"; else ln -s "$dir-alpha" "$dir-beta"; fi
	done
	cluster || return 0
	for name in alpha beta; do
		printf '%s\n' "map $SHM-$name shm/%r" "map $TMP-$name tmp/%r" >>"$T/$name/zkflock.conf"
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

# Two inodes for the kernel, which lets anybody into the second; one lock for the cluster: the holder still believes in it.
kernel_or() { if cluster; then echo "$1"; else echo granted; fi; }

test_a_lock_file_that_is_deleted_and_made_again() {
	hold alpha gone.lock || { fail 'not held'; return; }
	rm "$T/alpha/s/gone.lock"
	assertEquals 'beta, while it has no name' "$(kernel_or busy)" "$(try beta gone.lock)"
	: >"$T/alpha/s/gone.lock"
	assertEquals 'beta, made again on alpha' "$(kernel_or busy)" "$(try beta gone.lock)"
	assertEquals 'alpha, the new file' "$(kernel_or busy)" "$(try alpha gone.lock)"
	end "$holder"
	assertEquals 'beta, afterwards' granted "$(wait_for beta gone.lock 5)"
	assertEquals 'alpha, afterwards' granted "$(wait_for alpha gone.lock 5)"
}

test_a_file_that_is_locked_after_it_was_deleted() {
	actor P alpha
	expect P 'open 0 rw late.lock' ok
	rm "$T/alpha/s/late.lock"
	expect P 'flock 0 ex' ok
	assertEquals 'beta' "$(kernel_or busy)" "$(try beta late.lock)"
	assertEquals 'alpha, made again' "$(kernel_or busy)" "$(try alpha late.lock)"
	expect P 'flock 0 un' ok
	assertTrue 'beta, afterwards' 'becomes granted 5 beta late.lock'
	tell P 'exit 0'
}

test_a_file_that_is_replaced_while_it_is_locked() {
	hold alpha db || { fail 'not held'; return; }
	: >"$T/alpha/s/db.new"
	mv "$T/alpha/s/db.new" "$T/alpha/s/db"
	assertEquals 'beta' "$(kernel_or busy)" "$(try beta db)"
	assertEquals 'alpha, the new file' "$(kernel_or busy)" "$(try alpha db)"
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
	[ -d "$SHM-alpha" ] || { skip 'no /dev/shm'; return; }
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
	can_mount || { skip 'no mounts here'; return; }
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

# shellcheck source=/dev/null
. shunit2

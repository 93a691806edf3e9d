#!/bin/bash
# tests/05_library_alone_test.sh - the library as a file, and what it does where there is nothing for it to do
#
# No server and no real keeper: what is to be started is a script that fails in the way that a test needs.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2317 # called by shunit2
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LIBRARY=$BUILD/libzkflock.so

oneTimeSetUp() {
	if ! { [ -e "$LIBRARY" ] && [ -x "$PROBES/calls" ]; }; then
		echo "nothing to test: no libzkflock.so or probes/calls in $BUILD; run make all probes"
		return 1
	fi
	mkdir -p "$T/mapped/local" "$T/mapped/fail" "$T/other" "$T/lib"
	cp "$LIBRARY" "$T/lib/"
	printf '%s\n' 'connect_timeout 500ms' "map $T/mapped m/%r" "map $T/mapped/local l/%r unavailable=local" \
		"map $T/mapped/fail f/%r unavailable=fail" >"$T/zkflock.conf"
}

# ---- helpers ---------------------------------------------------------------------------------------------------------

CONF=''   # the configuration for the next preloaded programs, if not $T/zkflock.conf
LOG=error # their ZKFLOCK_LOG

# preloaded CMD... - run with the library that has no keeper beside it, unless a test has put one there
preloaded() {
	timeout -k 1 20 env "LD_PRELOAD=$T/lib/libzkflock.so" "ZKFLOCK_CONF=${CONF:-$T/zkflock.conf}" \
		"ZKFLOCK_RUNTIME_DIR=$T/run" "ZKFLOCK_LOG=$LOG" "$@"
}

# keeper_is LINE... - put a script in the place of the keeper; without LINEs take it away
keeper_is() {
	rm -f "$T/lib/zkflockd"
	[ $# = 0 ] && return
	printf '%s\n' '#!/bin/sh' "$@" >"$T/lib/zkflockd"
	chmod +x "$T/lib/zkflockd"
}

imports() { nm -D --undefined-only "$LIBRARY" | awk '{ print $NF }'; }

# ---- the file --------------------------------------------------------------------------------------------------------

# A named version node would show as flock@@NODE, and would bind programs to libc's fcntl@GLIBC_2.2.5.
test_exports_the_five_calls_and_no_versions() {
	assertEquals 'fcntl fcntl64 flock lockf lockf64' \
		"$(nm -D --defined-only "$LIBRARY" | awk '{ print $NF }' | sort | paste -sd' ')"
	assertEquals 'version definitions' '' "$(readelf -V "$LIBRARY" | grep 'Version definition')"
}

test_needs_libc_only() {
	assertEquals '' \
		"$(readelf -d "$LIBRARY" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc\.so|ld-linux)')"
}

# case B19: *_chk is not in every libc; the others allocate, lock, or start what the program would notice
test_imports_nothing_dangerous() {
	local words='malloc|calloc|realloc|free|strdup|printf|fprintf|snprintf|vsnprintf|puts|fopen|dlsym|dlopen|dladdr'
	words+='|pthread_create|pthread_mutex_lock|pthread_atfork|fork|vfork|posix_spawn|atexit|signal|exit|abort'
	assertEquals '' "$(imports | grep -E '_chk(@|$)')"
	assertEquals '' "$(imports | grep -E "^_*($words|assert_fail)(@|\$)")"
}

# libc's wrappers of these are cancellation points: flock is none, and record locks only while they wait.
test_imports_no_cancellation_point() {
	local words='open|openat|open64|close|read|write|connect|sendmsg|recvmsg|poll|ppoll|nanosleep|clock_nanosleep'
	assertEquals '' "$(imports | grep -E "^($words|wait4|waitpid|fcntl|fcntl64|lockf|flock)(@|\$)")"
}

test_glibc_2_34_suffices() {
	assertEquals GLIBC_2.34 \
		"$({ echo GLIBC_2.34; imports | sed -n 's/.*@\(GLIBC_[0-9.]*\).*/\1/p'; } | sort -V | tail -n 1)"
}

# It is in every program: what each has for itself counts, and what they share.
test_is_small() {
	strip -o "$T/stripped.so" "$LIBRARY"
	assertTrue "$(stat -c %s "$T/stripped.so") bytes" "[ $(stat -c %s "$T/stripped.so") -lt 65536 ]"
	assertTrue 'private memory' "[ $(size "$LIBRARY" | awk 'NR == 2 { print $2 + $3 }') -lt 4096 ]"
}

# The compiler's start files put one entry each there.
test_has_no_constructor_of_its_own() {
	assertEquals '8 8' "$(readelf -dW "$LIBRARY" | awk '/INIT_ARRAYSZ|FINI_ARRAYSZ/ { print $3 }' | paste -sd' ')"
}

# Both families of names, in a program built either way, reach the library and not libc.
test_programs_are_bound_to_it() {
	local name names probe
	for probe in actor actor64; do
		preloaded env LD_BIND_NOW=1 LD_DEBUG=bindings "$PROBES/$probe" </dev/null >/dev/null 2>"$T/bindings"
		case $probe in
		actor) names='flock fcntl lockf' ;;
		actor64) names='flock fcntl64 lockf64' ;;
		esac
		for name in $names; do
			assertEquals "$name in $probe" libzkflock.so "$(sed -n \
				"s/.*binding file [^ ]*$probe .* to \(.*\) \[0\]: normal symbol .$name'.*/\1/p" \
				"$T/bindings" | sed 's/.*\///' | sort -u)"
		done
	done
}

# ---- files that are not mapped ---------------------------------------------------------------------------------------

can_trace() { strace -o "$T/trace" true 2>/dev/null; }

# A program that locks nothing makes the same system calls as without the library, but for the loader's.
test_no_work_before_the_first_lock() {
	can_trace || { skip 'strace may not trace here'; return; }
	LOG=debug preloaded strace -o "$T/trace" sh -c 'echo hello >/dev/null' 2>"$T/err"
	assertEquals '' "$(cat "$T/err")"
	assertEquals '' "$(grep -E 'zkflock\.conf|/run/|socket\(|readlink' "$T/trace")"
}

between_markers() { sed -n '/^write(-2/,/^write(-2/p' "$1" | sed 's/0x[0-9a-f]*/ADDRESS/g'; }

# The same results, the same errno, the same system calls, but for the look at the file's name.  The first call reads
# the configuration besides, and that is all.
test_unmapped_files_are_left_alone() {
	can_trace || { skip 'strace may not trace here'; return; }
	strace -o "$T/trace.without" "$PROBES/calls" "$T/other/calls" >"$T/calls.without"
	strace -o "$T/trace.with" -E "LD_PRELOAD=$T/lib/libzkflock.so" -E "ZKFLOCK_CONF=$T/zkflock.conf" \
		-E ZKFLOCK_LOG=debug "$PROBES/calls" "$T/other/calls" >"$T/calls.with" 2>"$T/calls.err"
	assertEquals 'stderr' '' "$(cat "$T/calls.err")"
	assertEquals 'results' '' "$(diff "$T/calls.without" "$T/calls.with")"
	assertTrue 'something was tried' "[ $(wc -l <"$T/calls.with") -gt 1000 ]"
	assertEquals 'system calls' '' "$(diff <(between_markers "$T/trace.without") \
		<(between_markers "$T/trace.with" | sed '/^openat/,/^readlink/d' |
			grep -vE '^(fstat|newfstatat|readlink)\('))"
	# The probe may have locked before its first mark, to have this behind it.
	assertEquals 'the first call' 'openat fcntl close newfstatat read read close openat munmap munmap readlink' \
		"$(sed -n '/^openat.*zkflock\.conf/,/^readlink/p' "$T/trace.with" | sed 's/(.*//' | paste -sd' ')"
}

# case B17, with the one call more that it takes to learn a file's name
test_unmapped_files_in_a_sandbox() {
	"$PROBES/sandbox" "$T/other/sandbox" >/dev/null 2>&1 || { skip 'no system call filters here'; return; }
	assertEquals ok "$(preloaded "$PROBES/sandbox" "$T/other/sandbox" 2>&1)"
}

test_errno_is_left_alone() {
	local log
	exec 9>"$T/other/busy"
	flock 9
	"$PROBES/errno" "$T/other/errno" "$T/other/busy" 9>&- >"$T/errno.without"
	for log in error debug; do
		LOG=$log preloaded "$PROBES/errno" "$T/other/errno" "$T/other/busy" 9>&- >"$T/errno.with" \
			2>"$T/errno.err"
		assertEquals "ZKFLOCK_LOG=$log" '' "$(diff "$T/errno.without" "$T/errno.with")"
		assertEquals "ZKFLOCK_LOG=$log, stderr" '' "$(cat "$T/errno.err")"
	done
	exec 9>&-
}

# ---- the configuration -----------------------------------------------------------------------------------------------

# refusal FILE - the answers to a lock of each kind on FILE; the log is added to $T/err
refusal() {
	local kind
	for kind in flock posix ofd lockf; do
		preloaded "$PROBES/lock" -k $kind "$1" 2>>"$T/err"
	done | sort | uniq -c | awk '{ print $1, $2 }'
}

test_a_missing_configuration_refuses_all() {
	: >"$T/err"
	assertEquals '4 ENOLCK' "$(CONF=$T/none refusal "$T/other/file")"
	assertEquals 'one line a call' 4 "$(grep -c "^zkflock: error configuration $T/none: .*ENOENT" "$T/err")"
	assertEquals 'no other' 4 "$(wc -l <"$T/err")"
	: >"$T/err"
	assertEquals 'silent unless asked' '4 ENOLCK' "$(LOG='' CONF=$T/none refusal "$T/other/file")"
	assertEquals '' "$(cat "$T/err")"
}

test_what_is_no_file_is_no_configuration() {
	: >"$T/err"
	mkfifo "$T/fifo"
	assertEquals '4 ENOLCK' "$(CONF=$T/fifo refusal "$T/other/file")"
	assertEquals '4 ENOLCK' "$(CONF=$T refusal "$T/other/file")"
	assertEquals 8 "$(grep -c '^zkflock: error configuration ' "$T/err")"
}

# What may be meant by a broken file is refused, all else is none of our business.
test_a_broken_configuration_refuses_what_it_may_mean() {
	printf '%s\n' 'session_timeout forever' "map $T/mapped m/%r" >"$T/broken"
	: >"$T/err"
	assertEquals '4 ENOLCK' "$(CONF=$T/broken refusal "$T/mapped/file")"
	assertEquals 4 "$(grep -c "^zkflock: error configuration $T/broken:1: " "$T/err")"
	: >"$T/err"
	assertEquals '4 granted' "$(CONF=$T/broken refusal "$T/other/file")"
	assertEquals '' "$(cat "$T/err")"
}

# What is dropped in beside it is as good, and as bad.
test_files_beside_the_configuration() {
	printf '%s\n' "map $T/other/x -" >"$T/beside"
	mkdir -p "$T/beside.d"
	printf '\nmap %s\n' "$T/mapped" >"$T/beside.d/1.conf"
	: >"$T/err"
	assertEquals '4 ENOLCK' "$(CONF=$T/beside refusal "$T/mapped/file")"
	assertEquals 4 "$(grep -c "^zkflock: error configuration $T/beside.d/1.conf:2: " "$T/err")"
	assertEquals '4 granted' "$(CONF=$T/beside refusal "$T/other/file")"
	rm "$T/beside.d/1.conf"
	mkfifo "$T/beside.d/1.conf"
	: >"$T/err"
	assertEquals 'a fifo is not waited for' '4 ENOLCK' "$(CONF=$T/beside refusal "$T/other/file")"
	assertEquals 4 "$(grep -c "^zkflock: error configuration $T/beside.d/1.conf: cannot be read error=EINVAL" "$T/err")"
	rm "$T/beside.d/1.conf"
	assertEquals '4 granted' "$(CONF=$T/beside refusal "$T/other/file")"
}

test_pipes_need_no_configuration() {
	assertEquals ok "$(CONF=$T/none preloaded "$PYTHON" -c '
import fcntl, os
r, w = os.pipe()
fcntl.flock(w, fcntl.LOCK_EX)
print("ok")' 2>&1)"
}

# A program must get rid of its locks, whatever has become of the configuration; and learns of a mended one.
test_unlocks_are_not_refused_and_a_mended_file_is_seen() {
	printf '%s\n' "map $T/other -" >"$T/changing"
	assertEquals 'ENOLCK ENOLCK unlocked locked' "$(CONF=$T/changing LOG='' preloaded "$PYTHON" -c '
import errno, fcntl, os, sys
conf, path = sys.argv[1:]
fd = os.open(path, os.O_CREAT | os.O_RDWR)
def put(text):
    with open(conf + ".new", "w") as f:
        f.write(text)
    os.rename(conf + ".new", conf)
good = open(conf).read()
put("nonsense " + path + "\n")
for call in (fcntl.flock, fcntl.lockf):
    try:
        call(fd, fcntl.LOCK_EX)
    except OSError as e:
        print(errno.errorcode[e.errno], end=" ")
fcntl.flock(fd, fcntl.LOCK_UN)
fcntl.lockf(fd, fcntl.LOCK_UN)
print("unlocked", end=" ")
put(good)
fcntl.flock(fd, fcntl.LOCK_EX)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("locked")' "$T/changing" "$T/other/changing" 2>&1)"
}

# ---- no keeper -------------------------------------------------------------------------------------------------------

# The answer that the program gets and the line in the log: what is missing, and where.
test_a_keeper_that_cannot_be_started() {
	local begin="^zkflock: error keeper start=$T/lib/zkflockd directory=$T/run: "
	keeper_is 'echo "no ensemble in the configuration" >&3' 'exit 1'
	assertEquals ENOLCK "$(preloaded "$PROBES/lock" "$T/mapped/file" 2>"$T/err")"
	assertEquals 1 "$(grep -c "${begin}no ensemble in the configuration\$" "$T/err")"
	assertEquals 1 "$(wc -l <"$T/err")"
	keeper_is 'exit 1'
	assertEquals ENOLCK "$(preloaded "$PROBES/lock" "$T/mapped/file" 2>"$T/err")"
	assertEquals 1 "$(grep -c "${begin}it ended without a word\$" "$T/err")"
	keeper_is 'echo >&3'
	assertEquals ENOLCK "$(preloaded "$PROBES/lock" "$T/mapped/file" 2>"$T/err")"
	assertEquals 1 "$(grep -c "^zkflock: error keeper directory=$T/run error=ENOENT" "$T/err")"
	keeper_is
	[ -e /usr/local/sbin/zkflockd ] && return # an installed one would be started
	assertEquals ENOLCK "$(preloaded "$PROBES/lock" "$T/mapped/file" 2>"$T/err")"
	assertEquals 1 "$(grep -c '^zkflock: error keeper start=.*/zkflockd .*error=ENOENT' "$T/err")"
}

# Somebody says that a keeper is there, or on its way, and none listens (a guard that is stopped): who waits for a lock waits
# for that, too, and who does not want to wait for servers does not.
test_a_keeper_that_is_awaited() {
	local lines="^zkflock: error keeper directory=$T/run error=ENOENT"
	keeper_is 'echo >&3'
	preloaded "$PROBES/lock" -w "$T/mapped/file" >"$T/out" 2>"$T/err" &
	wait_until 10 more_than_one "$lines"
	assertEquals 'it asks again' 0 $?
	keeper_is 'exit 1'
	wait $!
	assertEquals ENOLCK "$(cat "$T/out")"
	keeper_is 'echo >&3'
	assertEquals ENOLCK "$(preloaded "$PROBES/lock" -w "$T/mapped/fail/file" 2>"$T/err")"
	assertEquals granted "$(preloaded "$PROBES/lock" -w "$T/mapped/local/file" 2>"$T/err")"
	keeper_is
}
more_than_one() { [ "$(grep -c "$1" "$T/err")" -gt 1 ]; }

# cases A09, C15: connect_timeout and a second
test_a_keeper_that_does_not_answer_is_not_waited_for() {
	local begin took
	keeper_is 'exec sleep 15'
	begin=$(now_ms)
	assertEquals ENOLCK "$(preloaded "$PROBES/lock" "$T/mapped/file" 2>"$T/err")"
	took=$(($(now_ms) - begin))
	assertTrue "took $took ms" "[ $took -ge 1400 ] && [ $took -lt 4000 ]"
	assertEquals 1 "$(grep -c '^zkflock: error lock .*error=ETIMEDOUT' "$T/err")"
	keeper_is
}

test_unavailable_local_locks_on_this_host() {
	keeper_is 'exit 1'
	: >"$T/err"
	assertEquals '4 granted' "$(LOG=warn refusal "$T/mapped/local/file")"
	assertEquals 4 "$(grep -c '^zkflock: warn lock .*unavailable=local' "$T/err")"
	keeper_is
}

# Whoever can write to the runtime directory could answer "covered" to everything.
test_a_directory_open_to_others_is_not_trusted() {
	keeper_is 'echo started >&3'
	mkdir -m 777 "$T/run"
	assertEquals ENOLCK "$(preloaded "$PROBES/lock" "$T/mapped/local/file" 2>"$T/err")"
	assertEquals 1 "$(grep -c "^zkflock: error keeper directory=$T/run error=EPERM" "$T/err")"
	rmdir "$T/run"
	keeper_is
}

# What the keeper gets: three null descriptors and the pipe, no signal blocked or ignored, an environment of its own.
test_the_keeper_inherits_nothing() {
	# shellcheck disable=SC2016 # for the script
	keeper_is "exec >'$T/started'" 'echo "$@"' 'ls /proc/$$/fd | paste -sd" "' 'env | cut -d= -f1 | paste -sd" "' \
		'grep -E "^Sig(Blk|Ign)" /proc/$$/status | paste -sd" "' 'pwd; readlink /proc/$$/fd/0' 'echo done >&3'
	rm -f "$T/started"
	(
		cd "$T" || exit
		exec 5</dev/null 7</dev/null
		preloaded env XDG_RUNTIME_DIR=/nowhere OTHER=1 "$PYTHON" -c '
import fcntl, os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
try:
    fcntl.flock(os.open("mapped/file", os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
except OSError:
    pass' 2>/dev/null
	)
	assertEquals '--on-demand --ready-fd=3' "$(sed -n 1p "$T/started")"
	# 10 or 255: the shell's own copy of the script
	assertEquals '0 1 2 3' "$(sed -n 2p "$T/started" | sed 's/ 10\b//; s/ 255\b//')"
	assertEquals 'PATH XDG_RUNTIME_DIR ZKFLOCK_CONF ZKFLOCK_LOG ZKFLOCK_RUNTIME_DIR' \
		"$(sed -n 3p "$T/started" | tr ' ' '\n' | grep -vxE 'PWD|OLDPWD|SHLVL|_' | sort | paste -sd' ')"
	assertEquals 'nothing blocked' 0000000000000000 "$(sed -n 4p "$T/started" | awk '{ print $2 }')"
	# 32 and 33 are libc's own, and ignored in whatever a posix_spawn has started, make for one: sigaction can't undo it.
	assertEquals 'nothing ignored' 0 "$((0x$(sed -n 4p "$T/started" | awk '{ print $4 }') & ~0x180000000))"
	assertEquals /,/dev/null "$(sed -n '5,6p' "$T/started" | paste -sd,)"
	keeper_is
}

# No SIGCHLD, no child, no descriptor, no signal mask: the program can't tell that it has started something.
test_the_program_does_not_notice_the_start() {
	keeper_is 'echo "not today" >&3'
	assertEquals 'ENOLCK 0 none same same' "$(LOG='' preloaded "$PYTHON" -c '
import errno, fcntl, os, signal, sys
seen = []
signal.signal(signal.SIGCHLD, lambda *args: seen.append(1))
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
def state():
    return sorted(os.listdir("/proc/self/fd")), signal.pthread_sigmask(signal.SIG_BLOCK, [])
before = state()
try:
    fcntl.flock(fd, fcntl.LOCK_EX)
except OSError as e:
    print(errno.errorcode[e.errno], end=" ")
print(len(seen), end=" ")
try:
    print(os.waitpid(-1, 0), end=" ")
except ChildProcessError:
    print("none", end=" ")
after = state()
print(*("same" if b == a else a for b, a in zip(before, after)))' "$T/mapped/file" 2>&1)"
	keeper_is
}

# With no descriptor left there may well be a keeper: that is not what unavailable=local speaks of.
test_no_descriptor_left_is_not_unavailable() {
	keeper_is 'exit 1'
	mkdir -m 700 "$T/run"
	assertEquals 'ENOLCK ENOLCK' "$(LOG='' preloaded "$PYTHON" -c '
import errno, fcntl, os, resource, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX) # reads the configuration
fcntl.flock(fd, fcntl.LOCK_UN)
resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, fd + 1))
for call in (fcntl.flock, fcntl.lockf):
    try:
        call(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("locked", end=" ")
    except OSError as e:
        print(errno.errorcode[e.errno], end=" ")' "$T/mapped/local/file" 2>&1 | sed 's/ $//')"
	rmdir "$T/run"
	keeper_is
}

# ---- the log ---------------------------------------------------------------------------------------------------------

test_a_closed_standard_error_does_no_harm() {
	assertEquals 'a pipe that nobody reads' ENOLCK \
		"$(CONF=$T/none preloaded "$PYTHON" -c '
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
r, w = os.pipe()
os.close(r)
os.dup2(w, 2)
os.execv(sys.argv[1], sys.argv[1:])' "$PROBES/lock" "$T/other/file")"
	assertEquals 'no descriptor at all' ENOLCK "$(CONF=$T/none preloaded "$PROBES/lock" "$T/other/file" 2>&-)"
}

test_a_long_path_is_cut_to_one_line() {
	local dir=$T/other/deep name
	name=$(printf 'x%.0s' {1..200})
	dir=$dir/$name/$name/$name/$name/$name/$'new\nline'
	mkdir -p "$dir"
	assertEquals ENOLCK "$(CONF=$T/none preloaded "$PROBES/lock" "$dir/file" 2>"$T/err")"
	assertEquals 1 "$(wc -l <"$T/err")"
	assertTrue "[ $(wc -c <"$T/err") -le 1024 ]"
	assertEquals ... "$(tail -c 4 "$T/err")"
}

# shellcheck source=/dev/null
. shunit2

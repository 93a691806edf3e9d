#!/bin/bash
# tests/65_records_programs_test.sh - databases on record locks, random locks under kill -9, and what a lock costs the server
# modes: native cluster
# early
# limit: 240
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
# Mounts of a namespace of our own are gone with the last process, however it ends.
if [ -z "$ZKF_OWN_MOUNTS" ] && unshare -m --propagation private true 2>/dev/null; then
	ZKF_OWN_MOUNTS=1 exec unshare -m --propagation private bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"

# ---- storage that two hosts share -----------------------------------------------------------------------------------

# shared_storage NAME - s/NAME shows the same data on alpha and beta, which do not see each other's kernel locks: two
# overlays over one upper directory.  Names are cached, so whatever is created must be there before: make it by
# `fill` COMMAND..., run in the upper directory.  1 where that can't be mounted.
shared_storage() {
	local name=$1 host shared=$T/shared.$1
	shift 2
	mkdir -p "$shared/upper" "$shared/lower"
	(cd "$shared/upper" && "$@") >/dev/null || return 1
	if ! cluster; then
		ln -sfn "$shared/upper" "$T/s/$name"
		return
	fi
	[ "$ZKF_OWN_MOUNTS" ] || return 1
	for host in alpha beta; do
		mkdir -p "$shared/work.$host" "$T/$host/s/$name"
		mount -t overlay overlay -o "lowerdir=$shared/lower,upperdir=$shared/upper,workdir=$shared/work.$host,index=off" \
			"$T/$host/s/$name" 2>/dev/null || return 1
	done
}
no_shared_storage='two overlay mounts over one directory are not possible here (root, and a mount namespace)'

# The mounts must not be there when the directory is removed.
eval "$(declare -f oneTimeTearDown | sed '1s/oneTimeTearDown/lib_tear_down/')"
oneTimeTearDown() {
	local host
	if [ "$ZKF_OWN_MOUNTS" ]; then
		for host in "${HOSTS[@]}"; do [ -e "$T/$host/run/pid" ] && keeper_stop "$host"; done
		awk -v below="$T/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | xargs -r umount -l
	fi
	lib_tear_down
}

# ---- SQLite ----------------------------------------------------------------------------------------------------------

make_database() {
	# persist: the journal's name stays.  Its header is cleared instead, which is as good.
	sqlite3 data.db 'pragma journal_mode=persist; create table t(n); insert into t values(0); update t set n=0'
}

# shell NAME HOST|kernel DIRECTORY - a sqlite3 shell that says when it is busy instead of waiting; `sql` speaks to it
declare -A SHELL_IN=() SHELL_LINES=()
shell() {
	local HOST_ENV fd
	rm -f "$T/shell.$1"
	mkfifo "$T/shell.$1"
	exec {fd}<>"$T/shell.$1"
	SHELL_IN[$1]=$fd
	: >"$T/out.shell.$1"
	if [ "$2" = kernel ]; then HOST_ENV=(env -C "$3"); else host_env "$2" && HOST_ENV+=(env -C "$3"); fi
	"${HOST_ENV[@]}" sqlite3 -batch -cmd 'pragma journal_mode=persist' -cmd '.timeout 0' data.db \
		<"$T/shell.$1" >"$T/out.shell.$1" 2>&1 {fd}<&- &
	SHELL_LINES[$1]=0
	sql "$1" '' >/dev/null
}

# sql NAME STATEMENT - tell it, and print what it answers, on one line
sql() {
	local lines line answer=
	printf "%s\nselect 'done';\n" "$2" >&"${SHELL_IN[$1]}"
	wait_until 20 shell_is_done "$1" || lines+=('no answer')
	for line in "${lines[@]:SHELL_LINES[$1]}"; do
		case $line in
		done) continue ;;
		*'database is locked'*) line=busy ;;
		esac
		answer+=" $line"
	done
	SHELL_LINES[$1]=${#lines[@]}
	printf '%s: %s ->%s\n' "$1" "$2" "$answer"
}
shell_is_done() {
	mapfile -t lines <"$T/out.shell.$1"
	[ ${#lines[@]} -gt "${SHELL_LINES[$1]}" ] && [ "${lines[-1]}" = 'done' ]
}

quit_shells() {
	local fd
	for fd in "${SHELL_IN[@]}"; do
		printf '.quit\n' >&"$fd"
		exec {fd}>&-
	done
	SHELL_IN=()
}

# The story: a and a2 on one host, b on the other.  Every lock that a rollback journal needs is met by every other.
sqlite_story() {
	sql a 'begin immediate;'
	sql b 'begin immediate;'
	sql b 'begin; select n from t; commit;'
	sql a 'rollback;'
	sql b 'begin immediate;'
	sql a 'begin immediate;'
	sql b 'commit;'
	# a reader with an open transaction keeps a writer from committing, not from writing
	sql a 'begin; select n from t;'
	sql b 'begin immediate; update t set n=n+1;'
	sql b 'commit;'
	# which is pending now, so that new readers are kept out, on its own host and the other one
	sql a2 'select n from t;'
	sql a 'select n from t;'
	sql a 'commit;'
	sql b 'commit;'
	sql a2 'select n from t;'
	# two readers that both want to write
	sql a 'begin; select n from t;'
	sql b 'begin; select n from t;'
	sql a 'update t set n=n+10;'
	sql b 'update t set n=n+100;'
	sql a 'commit;'
	sql b 'rollback;'
	sql a 'commit;'
	sql b 'select n from t;'
	# exclusive
	sql b 'begin exclusive; update t set n=n+1;'
	sql a 'select n from t;'
	sql a2 'begin immediate;'
	sql b 'commit;'
	sql a 'select n from t;'
	sql a2 'begin exclusive;'
	sql b 'begin exclusive;'
	sql a2 'rollback;'
	sql b 'begin exclusive; rollback;'
	# reading side by side
	sql a 'begin; select n from t;'
	sql b 'begin; select n from t;'
	sql a2 'select n from t;'
	sql a 'commit;'
	sql b 'commit;'
	sql b 'pragma integrity_check;'
}

# Where two shells on one kernel say "database is locked" the other host says it, and nowhere else.
test_sqlite_is_busy_where_one_kernel_says_so() {
	shared_storage sqlite fill make_database || { skip "$no_shared_storage"; return; }
	mkdir -p "$T/kernel.sqlite"
	(cd "$T/kernel.sqlite" && make_database) >/dev/null
	shell a kernel "$T/kernel.sqlite"
	shell b kernel "$T/kernel.sqlite"
	shell a2 kernel "$T/kernel.sqlite"
	sqlite_story >"$T/story.kernel"
	quit_shells
	shell a alpha sqlite
	shell b beta sqlite
	shell a2 alpha sqlite
	sqlite_story >"$T/story.ours"
	quit_shells
	assertEquals 'the same story' '' "$(diff "$T/story.kernel" "$T/story.ours")"
	# and it is the story that was meant
	assertEquals 'busy answers' 9 "$(grep -c busy "$T/story.ours")"
	assertContains "$(cat "$T/story.ours")" 'b: pragma integrity_check; -> ok'
	assertContains "$(cat "$T/story.ours")" 'a: select n from t; -> 12'
}

PROGRAM='
import sqlite3, sys
db = sqlite3.connect("data.db", timeout=60, isolation_level=None)
db.execute("pragma journal_mode=persist")
if sys.argv[2] == "deferred":
    db.execute("pragma busy_timeout=0")
done = busy = 0
while done < int(sys.argv[1]):
    try:
        if sys.argv[2] == "deferred":
            db.execute("begin")
            n = db.execute("select n from t").fetchone()[0]
            db.execute("update t set n=?", (n + 1,))
        else:
            db.execute("begin immediate")
            db.execute("update t set n=n+1")
        db.execute("commit")
        done += 1
    except sqlite3.OperationalError as e:
        if "locked" not in str(e):
            raise
        busy += 1
        if db.in_transaction:
            db.execute("rollback")
print("done", done, "busy", busy)
'

# On each host a shell that polls with its busy timeout, and a small program: deferred (it gives up and begins anew when it
# is refused) or immediate.  No update is lost, and the database stays whole.
test_sqlite_updates_from_two_hosts() {
	local pids=() outs=() host i ended
	shared_storage updates fill make_database || { skip "$no_shared_storage"; return; }
	for i in $(seq 60); do echo 'begin immediate; update t set n=n+1; commit;'; done >"$T/updates.sql"
	for host in alpha beta; do
		spawn $host env -C updates sh -c 'sqlite3 -batch -bail -cmd ".timeout 60000" -cmd "pragma journal_mode=persist" data.db <"$1"' \
			sh "$T/updates.sql"
		pids+=("$spawned") outs+=("$spawned_out")
	done
	spawn alpha env -C updates "$PYTHON" -c "$PROGRAM" 40 deferred
	pids+=("$spawned") outs+=("$spawned_out")
	spawn beta env -C updates "$PYTHON" -c "$PROGRAM" 40 immediate
	pids+=("$spawned") outs+=("$spawned_out")
	for i in "${!pids[@]}"; do
		wait_until 60 gone "${pids[i]}" || kill -KILL "${pids[i]}"
		wait "${pids[i]}"
		ended=$?
		assertEquals "program $i: $(cat "${outs[i]}" "${outs[i]}.err" | tail -n 2)" 0 $ended
	done
	for host in alpha beta; do
		assertEquals "$host" '200 ok' "$(on $host env -C updates sqlite3 -batch data.db \
			'select n from t; pragma integrity_check' | paste -sd' ')"
	done
}

# ---- tdb -------------------------------------------------------------------------------------------------------------

# Several processes on one database, as the tdbtorture of its authors does: every call by chance, each of which locks by
# its own pattern of bytes.  The counter shows whether a chain lock or a transaction ever let two in.
TDB='
import ctypes, os, random, sys
tdb = ctypes.CDLL("libtdb.so.1", use_errno=True)
class Data(ctypes.Structure):
    _fields_ = [("dptr", ctypes.c_void_p), ("dsize", ctypes.c_size_t)]
for name in ("open", "fetch", "store", "delete", "append", "chainlock", "chainunlock", "chainlock_read",
             "chainunlock_read", "transaction_start", "transaction_commit", "transaction_cancel", "traverse_read", "check",
             "error"):
    function = getattr(tdb, "tdb_" + name)
    function.restype = {"open": ctypes.c_void_p, "fetch": Data}.get(name, ctypes.c_int)
tdb.tdb_open.argtypes = [ctypes.c_char_p] + [ctypes.c_int] * 4
handle, keep = Data, []
def data(content):
    buffer = ctypes.create_string_buffer(content, len(content))
    keep[:] = keep[-7:] + [buffer]
    return Data(ctypes.cast(buffer, ctypes.c_void_p), len(content))
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
def content(found):
    if not found.dptr:
        return b""
    result = ctypes.string_at(found.dptr, found.dsize)
    libc.free(found.dptr)
    return result
rounds, seed = int(sys.argv[1]), int(sys.argv[2])
random.seed(seed)
db = tdb.tdb_open(b"data.tdb", 2, 0, os.O_RDWR | os.O_CREAT, 0o600)
if not db:
    sys.exit("open: " + os.strerror(ctypes.get_errno()))
db = ctypes.c_void_p(db)
def must(result, what):
    if result:
        sys.exit("%s: tdb error %d, errno %d" % (what, tdb.tdb_error(db), ctypes.get_errno()))
def count():
    now = int(content(tdb.tdb_fetch(db, data(b"counter"))) or b"0")
    must(tdb.tdb_store(db, data(b"counter"), data(b"%d" % (now + 1)), 1 if now else 0), "store")
for _ in range(rounds if rounds > 0 else 0):
    key = data(b"key%d" % random.randrange(40))
    value = data(bytes(random.choices(b"abcdef", k=random.randrange(1, 100))))
    chance = random.randrange(8)
    if chance == 0:
        must(tdb.tdb_transaction_start(db), "transaction_start")
        tdb.tdb_store(db, key, value, 0)
        count()
        must(tdb.tdb_transaction_commit(db), "transaction_commit")
    elif chance == 1:
        must(tdb.tdb_transaction_start(db), "transaction_start")
        tdb.tdb_delete(db, key)
        must(tdb.tdb_transaction_cancel(db), "transaction_cancel")
        must(tdb.tdb_chainlock(db, data(b"counter")), "chainlock")
        count()
        must(tdb.tdb_chainunlock(db, data(b"counter")), "chainunlock")
    elif chance == 2:
        must(tdb.tdb_chainlock(db, data(b"counter")), "chainlock")
        count()
        must(tdb.tdb_chainunlock(db, data(b"counter")), "chainunlock")
    elif chance == 3:
        tdb.tdb_delete(db, key)
        must(tdb.tdb_transaction_start(db), "transaction_start")
        count()
        must(tdb.tdb_store(db, key, value, 0), "store")
        must(tdb.tdb_transaction_commit(db), "transaction_commit")
    elif chance == 4:
        must(tdb.tdb_store(db, key, value, 0), "store")
        must(tdb.tdb_chainlock(db, data(b"counter")), "chainlock")
        count()
        must(tdb.tdb_chainunlock(db, data(b"counter")), "chainunlock")
    elif chance == 5:
        must(tdb.tdb_append(db, key, value), "append")
        must(tdb.tdb_chainlock(db, data(b"counter")), "chainlock")
        count()
        must(tdb.tdb_chainunlock(db, data(b"counter")), "chainunlock")
    elif chance == 6:
        tdb.tdb_delete(db, key)
        must(tdb.tdb_chainlock(db, data(b"counter")), "chainlock")
        count()
        must(tdb.tdb_chainunlock(db, data(b"counter")), "chainunlock")
    else:
        if tdb.tdb_traverse_read(db, None, None) < 0:
            must(-1, "traverse_read")
        must(tdb.tdb_chainlock(db, data(b"counter")), "chainlock")
        count()
        must(tdb.tdb_chainunlock(db, data(b"counter")), "chainunlock")
if not rounds:
    must(tdb.tdb_check(db, None, None), "check")
    print(content(tdb.tdb_fetch(db, data(b"counter"))).decode())
'

# tdb_torture ROUNDS DIRECTORY HOST... - a process on each HOST, then the check of the authors, and our count.  It takes a
# second or two where nobody waits for what he need not wait for.
tdb_torture() {
	local rounds=$1 directory=$2 pids=() outs=() i ended before
	shift 2
	before=$(now_ms)
	for i in "$@"; do
		spawn "$i" env -C "$directory" "$PYTHON" -c "$TDB" "$rounds" ${#pids[@]}
		pids+=("$spawned") outs+=("$spawned_out")
	done
	for i in "${!pids[@]}"; do
		wait_until 40 gone "${pids[i]}" || kill -KILL "${pids[i]}"
		wait "${pids[i]}"
		ended=$?
		assertEquals "process $i: $(cat "${outs[i]}" "${outs[i]}.err" | tail -n 2)" 0 $ended
	done
	assertTrue "it took $(($(now_ms) - before)) ms" "[ $(($(now_ms) - before)) -lt $((20000 * PATIENCE)) ]"
	assertEquals 'whole, and nothing lost' $((rounds * $#)) "$(on "$1" env -C "$directory" "$PYTHON" -c "$TDB" 0 0 2>&1)"
}

tdb_there() { "$PYTHON" -c 'import ctypes; ctypes.CDLL("libtdb.so.1")' 2>/dev/null; }

test_tdb_on_one_host() {
	tdb_there || { skip 'no libtdb.so.1 (Debian: libtdb1)'; return; }
	tdb_torture 80 . alpha alpha alpha
	cluster && assertNotEquals 'over the library' 0 "$(claims records data.tdb)"
	# the authors' own program, where there is one: Debian packages none
	if command -v tdbtorture >/dev/null; then
		assertContains "$(within 60 alpha tdbtorture -n 3 -l 150 -s 1 2>&1)" OK
		assertContains "$(within 60 alpha tdbtorture -t -n 3 -l 150 -s 2 2>&1)" OK
	fi
}

# Without its authors' blessing, and with a page cache in common: the locks are all that is at stake here.
test_tdb_from_two_hosts() {
	tdb_there || { skip 'no libtdb.so.1 (Debian: libtdb1)'; return; }
	shared_storage tdb fill "$PYTHON" -c "$TDB" 0 0 || { skip "$no_shared_storage"; return; }
	tdb_torture 60 tdb alpha beta alpha beta
}

# ---- random locks ----------------------------------------------------------------------------------------------------

# torture SECONDS KIND HOST... - a process on each HOST; sets pids, outs
torture() {
	local seconds=$1 kind=$2 host
	shift 2
	pids=() outs=()
	for host; do torture_one "$seconds" "$kind" "$host"; done
}
torture_one() {
	spawn "$3" "$PROBES/torture" "$T/torture.table" "$1" $((++seed)) 3 "$2"
	pids+=("$spawned") outs+=("$spawned_out")
}
seed=0

# torture_ends - all come to their end within 20 s, nobody met anybody, nobody waits any longer
torture_ends() {
	local i name
	for i in "${!pids[@]}"; do
		wait_until 20 gone "${pids[i]}" || fail "process $i is stuck"
		[ "${killed[i]}" ] || assertContains "process $i: $(cat "${outs[i]}.err")" "$(cat "${outs[i]}")" 'locks, '
	done
	assertEquals 'violations' '' "$(cat "${outs[@]}" | grep -E 'VIOLATION|FAILED')"
	cat "${outs[@]}" | awk '/ locks, / { locks += $1; refused += $3 } END { print locks " locks, " refused " refused" }'
	cluster || return 0
	wait_until 5 nobody_waits
	assertEquals 'claims that wait' '' "$(waiting_claims)"
}
nobody_waits() { [ -z "$(waiting_claims)" ]; }

# Lines "QUEUE CLAIM WORD=VALUE...": tells of claims of two hosts that want the same.  One of them must be waiting.
CONFLICTS='
import sys
claims = []
for line in sys.stdin:
    queue, name, *words = line.split()
    pieces = []
    for word in words:
        if word[:2] in ("r=", "w="):
            for piece in word[2:].split(","):
                start, _, end = piece.partition("-")
                pieces.append((word[0], int(start, 16), int(end, 16) if end else 2**63 - 1))
    for other_queue, other, others in claims:
        if queue == other_queue and name.split("-")[0] != other.split("-")[0]:
            for mode, start, end in pieces:
                if any(start <= e and s <= end and "w" in mode + m for m, s, e in others):
                    print(queue, other, others, name, pieces)
                    break
    claims.append((queue, name, pieces))
'

# waiting_claims - of the torture's files
waiting_claims() {
	local queue claim
	for queue in /zkflock/{locks,records}/s%2Ftorture.{0,1,2}; do
		for claim in $(zkcat ls "$queue" 2>/dev/null); do
			echo "$queue $claim $(zkcat get "$queue/$claim" 2>/dev/null)"
		done
	done | "$PYTHON" -c "$CONFLICTS"
}

test_random_flocks() {
	local pids outs killed=()
	[ -d "$T/gamma" ] || host gamma
	torture 6 flock alpha beta gamma alpha beta gamma
	wait_until 12 gone "${pids[0]}"
	torture_ends
}

test_random_record_locks() {
	local pids outs killed=()
	[ -d "$T/gamma" ] || host gamma
	torture 6 record alpha beta gamma alpha beta gamma
	wait_until 12 gone "${pids[0]}"
	torture_ends
}

test_random_ofd_locks() {
	local pids outs killed=()
	torture 6 ofd alpha beta alpha beta alpha beta
	wait_until 12 gone "${pids[0]}"
	torture_ends
}

# A killed holder's marks are void from the moment its locks are free, which is a little before it is dead.  So it is
# stopped first, its marks are taken off while it still holds, and then it is killed.
CLEAR='
import mmap, os, sys, time
pid = int(sys.argv[2])
for _ in range(500):
    with open("/proc/%d/stat" % pid) as stat:
        if stat.read().rpartition(")")[2].split()[0] in "TZX":
            break
    time.sleep(0.002)
with open(sys.argv[1], "r+b") as table, mmap.mmap(table.fileno(), 0) as marks:
    words = memoryview(marks).cast("i")
    for i, word in enumerate(words):
        if abs(word) == pid:
            words[i] = 0
    words.release()
'

kill_holder() {
	kill -STOP "$1" 2>/dev/null || return
	"$PYTHON" -c "$CLEAR" "$T/torture.table" "$1" 2>/dev/null
	kill -KILL "$1"
	wait "$1" 2>/dev/null
	return 0
}

test_random_locks_and_kills() {
	local pids outs killed=() hosts=(alpha beta gamma alpha beta gamma) end i
	[ -d "$T/gamma" ] || host gamma
	torture 30 mixed "${hosts[@]}"
	end=$(($(now_ms) + 5000))
	while [ "$(now_ms)" -lt $end ]; do
		i=$((RANDOM % ${#pids[@]}))
		[ "${killed[i]}" ] && continue
		kill_holder "${pids[i]}" && killed[i]=1
		hosts+=("${hosts[i]}")
		torture_one $(((end - $(now_ms)) / 1000 + 1)) mixed "${hosts[i]}"
		sleep 0.2
	done
	# The first ones had 30 s to live.
	for i in 0 1 2 3 4 5; do
		[ "${killed[i]}" ] && continue
		kill_holder "${pids[i]}" && killed[i]=1
	done
	echo "killed: ${#killed[@]} of ${#pids[@]}"
	assertTrue 'some were killed' "[ ${#killed[@]} -gt 6 ]"
	torture_ends
	for i in 0 1 2; do
		for kind in flock posix; do assertEquals granted "$(wait_for alpha torture.$i 5 -k $kind)"; done
	done
}

# ---- what it costs ---------------------------------------------------------------------------------------------------

# Each host has its own byte of one file: nothing is left to ask the server for.
test_disjoint_bytes_cost_the_server_nothing() {
	cluster || { skip 'no server'; return; }
	local lines operations
	lines=$(timeout 60 "$TESTS/../bench/records.sh" 2 2>&1)
	echo "$lines"
	operations=$(awk '/^zookeeper_operations_per_cycle/ { print $2 }' <<<"$lines")
	assertTrue "operations per cycle: '$operations'" "awk -v n='$operations' 'BEGIN { exit !(n != \"\" && n < 0.05) }'"
	assertContains 'each host has its own' "$lines" 'claims w=0-0 w=1-1'
	assertTrue 'enough cycles to tell' "awk '/^cycles_per_second/ { exit !(\$2 > 200) }' <<<'$lines'"
}

. shunit2

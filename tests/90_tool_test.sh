#!/bin/bash
# tests/90_tool_test.sh - zkflock(1): status, list, who, break, doctor, lock; the metrics file
#
# What it prints is read by scripts: formats are pinned here.  The hosts alpha and beta share one server.
# early
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2030,SC2031
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$TESTS/lib_loss.sh"

TOOL=$BUILD/zkflock
ZKFLOCK_TEST_LOG=info # the keepers, too

# A session that outlives a moment in which a busy machine runs neither server nor keeper: who has expired has nothing left
# to list.
oneTimeSetUp() {
	local SESSION_TIMEOUT=20s
	zk_start || return 1
	host alpha "metrics_file $T/alpha/metrics"
	host beta "map $T/beta/w w/%r on_loss=warn"
}

# tool HOST ARGUMENT... - run the tool on a host
tool() { zk_tool "$@" 2>&1; }
zk_tool() {
	local host=$1
	shift
	ZKFLOCK_CONF=$T/$host/zkflock.conf ZKFLOCK_RUNTIME_DIR=$T/$host/run timeout 20 "$TOOL" "$@"
}

# json EXPRESSION - of standard input, as d
json() { "$PYTHON" -c "import json, sys; d = json.load(sys.stdin); print($1)"; }

# fact HOST KEY - one value of status
fact() { tool "$1" status | awk -v key="$2" '$1 == key { print $2 }'; }

# ---- status ----------------------------------------------------------------------------------------------------------

test_status_tells_how_the_keeper_is() {
	local out before
	assertEquals granted "$(try alpha first.lock)"
	out=$(tool alpha status)
	assertEquals 'exit code' 0 $?
	assertContains "$out" "$(printf '%-18s ready' state)"
	assertContains "$out" "$(printf '%-18s 127.0.0.1:%s' server "$ZK_PORT")"
	assertContains "$out" "$(printf '%-18s standalone' server_mode)"
	assertContains "$out" "$(printf '%-18s 20000' session_timeout_ms)"
	assertEquals 'the session is ours' "$(fact alpha session)" "$(zkcat ls /zkflock/hosts | head -n 1)"
	assertTrue 'there is a lease' "[ $(fact alpha lease_ms) -gt 0 ] && [ $(fact alpha lease_ms) -le 20000 ]"
	assertEquals 'what it keeps' '1 1' "$(fact alpha locks) $(fact alpha claims_granted)"
	before=$(fact alpha grants_queued)
	assertEquals granted "$(try alpha second.lock)"
	assertEquals 'a grant by the queue is counted' $((before + 1)) "$(fact alpha grants_queued)"
	assertContains 'in its histogram' "$(tool alpha status)" '  within '
	out=$(tool alpha status -j)
	assertEquals 'wrong option' '64 zkflock: status: unexpected argument -j; see zkflock status --help' "$? $out"
}

test_status_as_json() {
	local out
	assertEquals granted "$(try alpha first.lock)"
	out=$(tool alpha status --json)
	assertEquals "ready 20000 0" "$(json 'd["state"], d["session_timeout_ms"], d["losses"]' <<<"$out" | tr -d "(),'")"
	assertEquals 'the session is a string' 16 "$(json 'len(d["session"])' <<<"$out")"
	assertTrue 'histograms are objects' "[ '$(json 'd["grants_queued"]["within_any"] == d["grants_queued"]["count"] > 0' <<<"$out")' = True ]"
	assertContains 'warnings' "$(json '"; ".join(d["warnings"])' <<<"$out")" 'three or five are recommended'
}

test_status_warns_of_what_the_servers_give() {
	local out
	SESSION_TIMEOUT=70s host gamma "tick_time 100ms"
	sed -i '/^tick_time 500ms/d' "$T/gamma/zkflock.conf"
	try gamma x.lock >/dev/null
	out=$(tool gamma status)
	assertContains "$out" 'session_timeout_ms 60000 (configured: 70000)'
	assertContains "$out" 'warning: the servers gave a session timeout of 60000 ms instead of 70000 ms'
	assertContains "$out" "warning: the server's tickTime is 500 ms and tick_time is 100 ms"
	assertTrue 'gamma ends' 'keeper_stop gamma'
	out=$(tool gamma status)
	assertEquals 'no keeper' 3 $?
	assertContains "$out" 'no keeper answers'
}

test_a_wait_is_counted_and_handed_off() {
	local waits recalls
	hold alpha counted.lock || fail 'alpha got no lock'
	try beta other.lock >/dev/null
	waits=$(fact beta waits) recalls=$(fact alpha recalls)
	spawn beta "$PROBES/lock" -w counted.lock
	assertTrue 'beta counts its wait' "wait_until 5 fact_is beta waits $((waits + 1))"
	assertEquals 'and its waiter' 1 "$(fact beta waiters)"
	assertEquals 'alpha counts the recall' $((recalls + 1)) "$(fact alpha recalls)"
	recalls=$(fact alpha hand_offs)
	end "$holder"
	wait_until 5 gone "$spawned"
	assertTrue 'and the hand-off' "wait_until 5 fact_is alpha hand_offs $((recalls + 1))"
}
fact_is() { [ "$(fact "$1" "$2")" = "$3" ]; }

# OpenMetrics by its own rules: TYPE before samples, counters end with _total, buckets grow, one EOF.
test_the_metrics_file() {
	local file=$T/alpha/metrics
	try alpha first.lock >/dev/null
	assertTrue 'it is written' "wait_until 12 test -s '$file'"
	assertEquals '' "$("$PYTHON" - "$file" <<-'END' 2>&1
		import re, sys
		lines = open(sys.argv[1]).read().split('\n')
		assert lines[-2:] == ['# EOF', ''], lines[-2:]
		types, bucket = {}, {}
		for line in lines[:-2]:
		    if line.startswith('# '):
		        word, name, rest = re.match(r'# (TYPE|HELP|UNIT) (\S+) (.+)', line).groups()
		        if word == 'TYPE': types[name] = rest
		        continue
		    name, labels, number = re.match(r'([a-z_]+)(\{.*\})? (\S+)$', line).groups()
		    float(number)
		    base = re.sub('_(total|bucket|sum|count|info)$', '', name)
		    kind = types[base if base in types else name]
		    assert (kind == 'counter') == name.endswith('_total'), line
		    if name.endswith('_bucket'):
		        by = re.search('by="([a-z]+)"', labels).group(1)
		        assert int(number) >= bucket.get(by, 0), line
		        bucket[by] = int(number)
		assert types['zkflock_grant_seconds'] == 'histogram' and len(bucket) == 2
	END
	)"
	assertEquals 'readable' 644 "$(stat -c %a "$file")"
	grep -q '^zkflock_session_ready [01]$' "$file"
	assertEquals 0 $?
	sed -i "s|^metrics_file .*|metrics_file $T/alpha/metrics2|" "$T/alpha/zkflock.conf"
	assertEquals reloaded "$(tool alpha reload)"
	assertTrue 'a reload moves it' "wait_until 5 test -s '${file}2'"
	assertFalse 'and leaves nothing behind' "[ -e '$file' ]"
}

# ---- list and who ----------------------------------------------------------------------------------------------------

# rows HOST FILE COLUMNS - of one lock, one space between two cells; and whatever the tool complains of
rows() {
	tool "$1" list -n -o "LOCK,$3" | awk -v lock="s/$2" '$1 == "zkflock:" { print } $1 == lock { $1 = ""; sub(/^ /, ""); print }'
}
rows_are() { [ "$(rows "$1" "$2" "$3")" = "$4" ]; }

test_list_shows_the_queue_of_every_host_in_order() {
	local me first second
	me=$(hostname)
	hold alpha q.lock || fail 'alpha got no lock'
	spawn beta "$PROBES/lock" -w q.lock && first=$spawned
	wait_until 5 test "$(claims locks q.lock)" = 2
	assertTrue 'a holder and a waiter' "wait_until 5 rows_are alpha q.lock PID,STATE,MODE,BLOCKER \
		'$holder recalled WRITE -
$first waiting WRITE* $me:$holder'"
	spawn alpha "$PROBES/lock" -w -m sh q.lock && second=$spawned
	assertTrue 'and who waits on the holders host' "wait_until 5 rows_are alpha q.lock COMMAND,PID,HOST,TYPE,M,START,END,STATE,BLOCKER,PATH \
		'lock $holder $me FLOCK 0 0 - recalled - $T/alpha/s/q.lock
lock $second $me FLOCK 0 0 - waiting $me:$holder $T/alpha/s/q.lock
lock $first $me FLOCK 0 0 - waiting $me:$holder -'"
	assertTrue 'as beta sees it' "wait_until 5 rows_are beta q.lock PID,STATE,MODE,PATH,SIZE \
		'$holder held WRITE - -
$first waiting WRITE* $T/beta/s/q.lock 0'"
	end "$holder" "$first" "$second"
}

test_list_tells_every_reader_and_every_record() {
	local one two
	hold alpha r.lock -m sh && one=$holder
	hold alpha r.lock -m sh && two=$holder
	assertEquals 'two readers' "$(printf '%s READ held\n' "$one" "$two" | sort)" "$(rows alpha r.lock PID,MODE,STATE | sort)"
	end "$one" "$two"
	assertEquals 'kept, when they have gone' '- kept' "$(rows alpha r.lock BLOCKER,STATE)"
	hold alpha r.dat -k posix -r 0,10 && one=$holder
	hold alpha r.dat -k posix -r 100,0 -m sh && two=$holder
	assertEquals 'two records' "$one RECORD 0 9 WRITE held
$two RECORD 100 - READ held" "$(rows alpha r.dat PID,TYPE,START,END,MODE,STATE | sort -k3n)"
	end "$one" "$two"
}

test_list_as_it_is_printed() {
	local out
	hold alpha p.lock || fail 'alpha got no lock'
	out=$(tool alpha list)
	assertEquals 'headings' 'COMMAND PID HOST TYPE MODE START END STATE AGE BLOCKER LOCK PATH' "$(head -n 1 <<<"$out" | xargs)"
	assertEquals 'a pipe gets no escapes' 0 "$(grep -c $'\033' <<<"$out")"
	assertEquals 'none' 0 "$(tool alpha list -n | grep -c COMMAND)"
	assertEquals 'one column' "LOCK $holder" "$(tool alpha list -o lock | head -n 1) $(tool alpha who -no pid s/p.lock)"
	out=$(tool alpha list -o nope)
	assertEquals 64 $?
	assertContains "$out" 'list: unknown column nope; allowed are COMMAND, PID,'
	out=$(tool alpha list --watch=0)
	assertEquals '64 zkflock: list: --watch 0; allowed are 1 to 86400 seconds' "$? $out"
	out=$(tool alpha list x)
	assertEquals '64 zkflock: list: unexpected argument x; see zkflock list --help' "$? $out"
	ZKFLOCK_CONF=$T/alpha/zkflock.conf ZKFLOCK_RUNTIME_DIR=$T/alpha/run "$TOOL" list --watch 1 -o pid >"$T/watched" 2>&1 &
	assertTrue 'again and again' "wait_until 6 twice PID '$T/watched'"
	kill $!
	wait $! 2>/dev/null
	assertEquals 'without escapes there too' 0 "$(grep -c $'\033' "$T/watched")"
	end "$holder"
}
twice() { [ "$(grep -c "$1" "$2")" -ge 2 ]; }

# Any bytes in a path: the JSON is JSON, and tells the bytes.
test_json_of_any_path() {
	local name=$'o"d\\d\n\t%41\377\303\244' out
	hold alpha "$name" || fail 'alpha got no lock'
	out=$(tool alpha list -J)
	assertEquals True "$(json \
		"[l for l in d['locks'] if bytes.fromhex(l.get('path_bytes', '')) == b'$T/alpha/s/' + b'o\"d\\\\d\\n\\t%41\\xff\\xc3\\xa4' and
		l['path'].endswith('%41\\ufffd\\u00e4') and l['pid'] == $holder and l['end'] is None and l['m'] is False] != []" <<<"$out")"
	assertEquals 'all columns' 'age_ms blocker command end host lock lock_bytes m mode path path_bytes pid size start state type' \
		"$(json "' '.join(sorted([l for l in d['locks'] if l['pid'] == $holder][0]))" <<<"$out")"
	assertEquals 'on a line of the table' 1 "$(tool alpha list -n -o path | grep -cF 'o"d\\d\012\011%41')"
	end "$holder"
}

test_who_by_path_and_by_lock() {
	local out
	keeper_start beta
	hold alpha w.lock || fail 'alpha got no lock'
	out=$(tool beta who -no pid "$T/beta/s/w.lock")
	assertEquals 'by path' "0 $holder" "$? $(xargs <<<"$out")"
	assertEquals 'by name' "$holder" "$(tool beta who -no pid s/w.lock | xargs)"
	assertEquals 'by znode' "$holder" "$(tool beta who -no pid s%2Fw.lock | xargs)"
	tool beta who s/nobody.lock >/dev/null
	assertEquals 'nobody' 1 $?
	out=$(tool beta who /etc/passwd)
	assertEquals 'not mapped' '2 zkflock: who: /etc/passwd is not a cluster lock; see zkflock check' "$? $out"
	out=$(tool beta who)
	assertEquals '64 zkflock: who: no PATH or LOCK; see zkflock who --help' "$? $out"
	end "$holder"
}

# A reader that is slower than the keeper gets every row: this one begins when the keeper has no more room.
test_a_slow_reader_gets_every_row() {
	spawn alpha "$PYTHON" -c 'import fcntl, os, time
for i in range(13):
    os.mkdir(240 * "x")
    os.chdir(240 * "x")
files = [open("many.%d" % i, "w") for i in range(80)]
for f in files: fcntl.flock(f, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)'
	wait_until 20 contains "$spawned_out" locked
	assertEquals 'rows, of which some had to wait' '80 True' "$("$PYTHON" - "$T/alpha/run/socket" \
		"$(sed -n 's/^#define ZKF_WIRE_MAGIC \(0x[0-9a-f]*\)u.*/\1/p' "$TESTS/../keeper/wire.h")" <<-'END'
		import array, fcntl, socket, struct, sys, termios, time
		def queued():
		    bytes = array.array('i', [0])
		    fcntl.ioctl(s, termios.FIONREAD, bytes)
		    return bytes[0]
		s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		s.settimeout(20)
		s.connect(sys.argv[1])
		s.send(struct.pack('=IBBBBiiqqQQ', int(sys.argv[2], 16), 4, 0, 0, 0, 0, -1, 0, 0, 0, 0))
		before, since, end = 0, time.monotonic(), time.monotonic() + 30
		while time.monotonic() < min(end, since + 1) or not before:
		    if queued() != before: before, since = queued(), time.monotonic()
		    time.sleep(0.01)
		rows = total = 0
		while True:
		    packet = s.recv(9000)
		    total += len(packet)
		    if not packet or packet[4] != 8: break
		    rows += b'many.' in packet
		print('%d %s' % (rows, before < total) if packet and packet[4] == 9 else 'no end after %d' % rows)
	END
	)"
	end "$spawned"
}

# ---- break -----------------------------------------------------------------------------------------------------------

test_break_takes_it_away_and_on_loss_applies() {
	local out next
	hold alpha b.lock || fail 'alpha got no lock'
	spawn beta "$PROBES/lock" -w -h b.lock && next=$spawned_out
	wait_until 5 test "$(claims locks b.lock)" = 2
	out=$(tool beta break --reason 'its "host" burns' s/b.lock </dev/null)
	assertEquals '64 zkflock: break: nobody to ask: standard input is no terminal; allowed is --yes' "$? $out"
	assertFalse 'not broken' "gone $holder"
	out=$(tool beta break --yes --reason 'its "host" burns' s/b.lock)
	assertEquals 'broken' "0 broken: FLOCK, host $HOSTNAME" "$? $(tail -n 1 <<<"$out")"
	assertContains 'it says whom' "$out" "$holder"
	assertTrue 'its holder is killed' "wait_until 5 gone $holder"
	assertTrue 'the next one has it' "wait_until 5 contains $next granted"
	assertFalse 'and keeps it' "gone $spawned"
	assertTrue 'who and why' "logged beta 'break lock=s%2Fb.lock kind=locks claim=.* by_uid=$(id -u) by_pid=.* reason=\"its \"host\" burns\"'"
	end "$spawned"
	out=$(tool beta break --yes s/nobody.lock)
	assertEquals '1 zkflock: break: nobody has the lock s/nobody.lock; see zkflock list' "$? $out"
	out=$(tool beta break --yes /s/nobody.lock)
	assertEquals "1 zkflock: break: nobody has the lock /s/nobody.lock; see zkflock check for a file's lock" "$? $out"
	out=$(tool beta break -y)
	assertEquals '64 zkflock: break: no LOCK; see zkflock break --help' "$? $out"
}

# in the mailbox of any host
a_letter_waits() {
	local host
	for host in $(zkcat ls /zkflock/probes); do
		[ -z "$(zkcat ls "/zkflock/probes/$host")" ] || return 0
	done
	return 1
}

# Whoever comes next must not be let in while the holder runs: its keeper, which stops it, is late here.
test_break_ends_the_holder_before_the_next_one_is_let_in() {
	local guard keeper next out breaking
	hold alpha late.lock || fail 'alpha got no lock'
	keeper=$(keeper_pid alpha)
	guard=$(ps -o ppid= -p "$keeper" | tr -d ' ')
	spawn beta "$PROBES/lock" -w -h late.lock && next=$spawned_out
	wait_until 5 test "$(claims locks late.lock)" = 2
	kill -STOP "$guard" "$keeper"
	tool beta break --yes --reason late s/late.lock >"$T/break.out" &
	breaking=$!
	assertTrue 'its host is told' 'wait_until 5 a_letter_waits'
	assertTrue 'nobody else has it' "never 1 contains $next granted"
	assertFalse 'the holder runs' "gone $holder"
	kill -CONT "$guard" "$keeper"
	assertTrue 'its holder is killed' "wait_until 5 gone $holder"
	assertTrue 'the next one has it' "wait_until 5 contains $next granted"
	wait "$breaking"
	assertEquals 'broken' "0 broken: FLOCK, host $HOSTNAME" "$? $(tail -n 1 "$T/break.out")"
	assertTrue 'the log of its host: who and why' "logged alpha 'break lock=s%2Flate.lock .* by_uid=$(id -u) by_pid=.* reason=\"late\"'"
	end "$spawned"
}

test_break_by_force_asks_nobody() {
	local guard keeper next out
	hold alpha forced.lock || fail 'alpha got no lock'
	keeper=$(keeper_pid alpha)
	guard=$(ps -o ppid= -p "$keeper" | tr -d ' ')
	spawn beta "$PROBES/lock" -w -h forced.lock && next=$spawned_out
	wait_until 5 test "$(claims locks forced.lock)" = 2
	kill -STOP "$guard" "$keeper"
	out=$(tool beta break --yes --force s/forced.lock)
	assertEquals 'broken' "0 broken: FLOCK, host $HOSTNAME" "$? $(tail -n 1 <<<"$out")"
	assertTrue 'the next one has it' "wait_until 5 contains $next granted"
	kill -CONT "$guard" "$keeper"
	assertTrue 'its holder is killed later' "wait_until 5 gone $holder"
	end "$spawned"
}

# on_loss=warn: it runs on, and the others are let in.
test_break_of_a_lock_whose_holder_is_only_warned() {
	local out
	mkdir -p "$T/beta/w"
	hold beta ../w/w.lock || fail 'beta got no lock'
	out=$(tool beta break --yes w/w.lock)
	assertEquals 'broken' "0 broken: FLOCK, host $HOSTNAME" "$? $(tail -n 1 <<<"$out")"
	assertFalse 'it runs on' "gone $holder"
	assertTrue 'it is said' "logged beta 'loss lock=w%2Fw.lock pid=$holder action=none'"
	end "$holder"
}

test_break_asks_on_a_terminal() {
	local out
	keeper_start beta
	hold alpha ask.lock || fail 'alpha got no lock'
	out=$(ZKFLOCK_CONF=$T/beta/zkflock.conf ZKFLOCK_RUNTIME_DIR=$T/beta/run "$PYTHON" -c 'import os, pty, sys
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], [sys.argv[1], "break", "s/ask.lock"])
os.write(fd, b"n\n")
out = b""
try:
    while True:
        part = os.read(fd, 4096)
        if not part: break
        out += part
except OSError: pass
print(out.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))' "$TOOL")
	assertContains "$out" 'Take the lock s/ask.lock away from these? [y/N]'
	assertEquals 'exit code' 1 "${out##* }"
	assertFalse 'no is no' "gone $holder"
	end "$holder"
}

# ---- check -----------------------------------------------------------------------------------------------------------

check() { ZKFLOCK_CONF=$T/prefix.conf "$TOOL" check "$@" 2>&1; }

test_check_warns_of_a_prefix_that_does_not_exist() {
	local out
	local why='No such file or directory, so the rule meets no file yet'
	printf '%s\n' "map $T/missing m/%r" "map $T/missing/not -" "map $T/lacking/*/x l/%1/%r" "map $T/alpha/s s/%r" \
		"map $T/prefix.conf/x f/%r" >"$T/prefix.conf"
	out=$(check "$T/missing/job.lock")
	assertEquals 'the path can not be resolved' 1 $?
	assertContains "$out" 'not mapped: No such file or directory'
	assertContains "$out" "  warning   $T/prefix.conf:1: $T/missing: $why"
	assertContains 'a relative path' "$(cd "$T" && check missing/job.lock)" "  warning   $T/prefix.conf:1: $T/missing: $why"
	out=$(check "$T/missing")
	assertEquals 'the prefix itself is mapped' 0 $?
	assertContains "$out" "  warning   $T/prefix.conf:1: $T/missing: $why"
	assertContains 'up to a pattern' "$(check "$T/lacking/a/x/job.lock")" "  warning   $T/prefix.conf:3: $T/lacking: $why"
	assertContains 'below a file' "$(check "$T/prefix.conf/x/job.lock")" \
		"  warning   $T/prefix.conf:5: $T/prefix.conf/x: Not a directory, so the rule meets no file yet"
	out=$(check "$T/alpha/s/job.lock" "$T/alpha/s/missing/job.lock" "$T/missing/not/job.lock")
	assertEquals 'one that exists, one that excludes' 0 "$(grep -c warning <<<"$out")"
	mkdir "$T/missing"
	assertEquals 'now it exists' 0 "$(check "$T/missing/job.lock" | grep -c warning)"
}

# ---- doctor ----------------------------------------------------------------------------------------------------------

# verdicts - "ok configuration" and so on, of what doctor says
verdicts() { sed -n 's/^\(ok\|warn\|fail\) *\([a-z]*\) .*/\1 \2/p' | sort -u | grep -v ' clock$' | paste -sd ,; }

test_doctor_finds_what_is_wrong() {
	local out
	try alpha first.lock >/dev/null
	out=$(tool alpha doctor "$PROBES/lock")
	assertEquals "$out" "0 ok configuration,ok files,ok keeper,ok library,ok program,ok root,ok runtime,ok server,ok session,warn servers" \
		"$? $(verdicts <<<"$out")"
	assertContains "$out" "127.0.0.1:$ZK_PORT: standalone, version 3."
	ENSEMBLE=127.0.0.1:1,127.0.0.1:$ZK_PORT host delta "map /nowhere/* n/%1/%r"
	out=$(tool delta doctor /sbin/ldconfig)
	assertEquals "$out" 1 $?
	assertContains "$out" 'warn  server        127.0.0.1:1: Connection refused'
	assertContains "$out" "ok    server        127.0.0.1:$ZK_PORT: standalone"
	assertContains "$out" 'warn  keeper        none answers'
	assertContains "$out" 'warn  files         /nowhere '
	assertContains "$out" 'fail  program       /sbin/ldconfig is statically linked'
	assertContains "$out" '-> lock around it'
	echo nonsense >>"$T/delta/zkflock.conf"
	out=$(tool delta doctor)
	assertEquals "1 fail configuration,ok library,ok runtime" "$? $(verdicts <<<"$out")"
	ENSEMBLE=none.invalid:2181 host theta
	out=$(tool theta doctor)
	assertContains "$out" '-> is the name right'
	assertNotContains "$out" 'firewall'
}

test_a_go_program_is_known() {
	local out
	printf '%s\n' 'int main(void) { return 0; }' \
		'__asm__(".section .note.go.buildid,\"a\",@note\n.long 4, 4, 4\n.asciz \"Go\\0\"\n.long 0\n");' |
		gcc -x c -o "$T/go" - || fail 'no compiler'
	out=$(tool alpha doctor "$T/go" | grep program)
	assertContains "$out" "fail  program       $T/go is a Go program"
}

# ---- lock ------------------------------------------------------------------------------------------------------------

test_lock_excludes_hosts_and_files_of_that_name() {
	local out
	hold beta n.lock || fail 'beta got no lock'
	tool alpha lock -n s/n.lock true
	assertEquals 'a file of that name is locked on beta' 1 $?
	tool alpha lock -nE 7 s/n.lock true
	assertEquals 'with -E' 7 $?
	out=$(tool alpha lock -vw 0.2 s/n.lock true)
	assertEquals 'with -w' '1 zkflock: lock: timeout while waiting to get lock' "$? $out"
	end "$holder"
	assertEquals 'its name' s/n.lock "$(tool alpha lock s/n.lock sh -c 'echo $ZKFLOCK_NAME')"
	out=$(tool alpha lock s/n.lock sh -c 'echo $ZKFLOCK_TOKEN')
	assertTrue "a token that grows: $out" "[ '$out' -gt 0 ] && [ $(tool beta lock s/n.lock sh -c 'echo $ZKFLOCK_TOKEN') -gt '$out' ]"
	tool alpha lock s/n.lock sh -c 'exit 3'
	assertEquals 'its exit code' 3 $?
	tool alpha lock s/n.lock -c 'kill -TERM $$'
	assertEquals 'its signal' $((128 + 15)) $?
	gate lock
	zk_tool alpha lock -s s/n.lock sh -c 'read _ <"$0"' "$T/lock" &
	assertTrue 'held, shared' "wait_until 5 rows_are alpha n.lock MODE,STATE,TYPE 'READ held FLOCK'"
	assertEquals 'beta is kept out' busy "$(try beta n.lock)"
	assertEquals 'but may share' granted "$(try beta n.lock -m sh)"
	tool beta lock -sn s/n.lock true
	assertEquals 'by name too' 0 $?
	open_gate lock
	wait $!
	assertEquals 0 $?
	assertEquals 'free' granted "$(try beta n.lock)"
}

test_lock_without_zookeeper_says_where_to_look() {
	local out
	ENSEMBLE=127.0.0.1:1 host eta 'connect_timeout 200ms'
	out=$(tool eta lock -n s/x.lock true)
	assertEquals '71 zkflock: lock: s/x.lock: No locks available; `zkflock doctor` says why' "$? $out"
}

test_completion_knows_locks_and_columns() {
	# shellcheck disable=SC2329
	zkflock() { echo s/some.lock; }
	local out words
	. "$TESTS/../conf/zkflock.bash-completion"
	for words in 'who s/so' 'lock s/so' 'break s/so' 'list -o ho' 'who --output LOCK,st'; do
		read -ra COMP_WORDS <<<"zkflock $words"
		COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
		_zkflock 2>/dev/null
		out+="${COMPREPLY[*]};"
	done
	unset -f zkflock
	assertEquals 's/some.lock;s/some.lock;s/some.lock;HOST;LOCK,START LOCK,STATE;' "$out"
}

test_lock_refuses_what_it_does_not_understand() {
	local out
	out=$(tool alpha lock s/x.lock)
	assertEquals '64 zkflock: lock: no COMMAND; see zkflock lock --help' "$? $out"
	out=$(tool alpha lock)
	assertEquals '64 zkflock: lock: no NAME; see zkflock lock --help' "$? $out"
	out=$(tool alpha lock -w soon x true)
	assertEquals '64 zkflock: lock: --wait is not a number of seconds; see zkflock lock --help' "$? $out"
	out=$(tool alpha lock -q x true)
	assertEquals '64 zkflock: lock: unknown option; see zkflock lock --help' "$? $out"
	out=$(tool alpha lock x /no/such/command)
	assertEquals '69 zkflock: lock: failed to execute /no/such/command: No such file or directory' "$? $out"
	mkdir "$T/alpha/run/names/busy"
	out=$(tool alpha lock busy true)
	assertEquals 66 $?
	assertContains "$out" "/names/busy: Is a directory"
}

# The command's whole process group, with the descriptor or without, and nobody else's.
test_a_lost_lock_ends_the_whole_group() {
	local ticks=$T/ticks
	: >"$ticks"
	keeper_start beta
	zk_tool alpha lock -o s/l.lock sh -c 'while :; do echo >>"$0"; sleep 0.1; done & wait' "$ticks" &
	assertTrue 'it runs' "started '$ticks'"
	tool beta break --yes s/l.lock >/dev/null
	assertEquals 0 $?
	assertTrue 'its children are dead' "frozen '$ticks' 5"
	wait $!
	assertEquals 'killed' 137 $?
}

# ---- every verb ------------------------------------------------------------------------------------------------------

# verbs - all of them, as the tool says
verbs() { "$TOOL" nonsense 2>&1 | sed 's/.*allowed are//; s/,//g'; }

test_every_verb_has_help_a_manual_and_completion() {
	local verb out wrong='' count=0
	"$TOOL" nonsense 2>/dev/null
	assertEquals 'no such verb' 64 $?
	for verb in $(verbs); do
		((++count))
		out=$("$TOOL" "$verb" --help 2>"$T/help.err") || wrong+=" $verb: status $?"
		[ ! -s "$T/help.err" ] || wrong+=" $verb: help on standard error"
		[[ $out == "usage: zkflock $verb"* ]] || wrong+=" $verb: '${out%%$'\n'*}'"
		[[ $out == *'xits with '* || $out == *'exit status is'* ]] || wrong+=" $verb: no exit codes"
		[ "$(grep -c "^\.SS zkflock $verb\$" "$TESTS/../man/zkflock.1")" = 2 ] || wrong+=" $verb: not in the manual, or not its exit codes"
		out=$(. "$TESTS/../conf/zkflock.bash-completion" && COMP_WORDS=(zkflock "$verb") COMP_CWORD=1 && _zkflock 2>/dev/null && echo "${COMPREPLY[*]}")
		[ "$out" = "$verb" ] || wrong+=" $verb: completed to '$out'"
	done
	assertEquals '' "$wrong"
	assertTrue "verbs were found: $count" "[ $count -ge 10 ]"
}

# The manual has one sentence for all of them: "A wrong command line is N (but M for run)."
test_an_unknown_option_is_a_wrong_command_line() {
	local verb option out documented usual run status
	documented=$(sed 's/\\f[BIRP]//g; s/^\.[A-Z]* //' "$TESTS/../man/zkflock.1" | paste -sd ' ' |
		sed -n 's/.*A wrong command line is \([0-9]*\) (but \([0-9]*\) for run ).*/\1 \2/p')
	read -r usual run <<<"$documented"
	assertEquals 'as the manual says' '64 125' "$usual $run"
	for verb in $(verbs); do
		for option in --nonsense -Z --help=x; do
			out=$(tool alpha "$verb" "$option" </dev/null)
			status=$?
			assertEquals "$verb $option" "$([ "$verb" = run ] && echo "$run" || echo "$usual")" $status
			assertContains "$verb $option: $out" "$out" "zkflock: $verb: un"
			assertContains "$verb $option: $out" "$out" "see zkflock $verb --help"
		done
		[ "$verb" = run ] || [[ $("$TOOL" "$verb" --help) == *"$usual (wrong command line)"* ]] || fail "$verb --help does not tell $usual"
	done
	"$TOOL" >/dev/null 2>&1
	assertEquals 'no verb' "$usual" $?
	"$TOOL" --nonsense >/dev/null 2>&1
	assertEquals 'an option as the verb' "$usual" $?
}

# What goes to a pipe or a file is for programs, whatever TERM says.
test_a_pipe_gets_no_escape_sequences() {
	local verb words
	hold alpha pipe.lock || fail 'alpha got no lock'
	for words in list 'list -J' "who s/pipe.lock" "who $T/alpha/s/pipe.lock" status 'status -J' reload "token $T/alpha/s/pipe.lock" \
		"check $T/alpha/s/pipe.lock" 'check --all' "doctor $PROBES/lock" 'lock -v other.lock true' 'run true' --help --version; do
		# shellcheck disable=SC2086 # words
		TERM=xterm-256color tool alpha $words >"$T/piped"
		assertEquals "$words" 0 $?
		assertFalse "$words" "grep -q '[[:cntrl:]]' '$T/piped'"
		[ "$words" = 'run true' ] || assertTrue "$words: $(wc -c <"$T/piped") bytes" "[ -s '$T/piped' ]"
	done
	for verb in $(verbs); do
		assertEquals "$verb --help" 0 "$(TERM=xterm-256color "$TOOL" "$verb" --help 2>&1 | grep -c '[[:cntrl:]]')"
	done
	end "$holder"
	hold alpha pipe.lock || fail 'alpha got no lock'
	tool alpha break --yes s/pipe.lock >"$T/piped"
	assertEquals 'broken' 0 $?
	assertFalse 'break' "grep -q '[[:cntrl:]]' '$T/piped'"
	assertTrue 'its holder is killed' "wait_until 5 gone $holder"
}

. shunit2

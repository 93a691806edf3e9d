# tests/90_tool_test.sh - zkflock(1): status, list, who, break, doctor, lock; the metrics file
#
# What it prints is read by scripts: formats are pinned here.  The hosts alpha and beta share one server.
# limit: 120
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$TESTS/lib_loss.sh"

TOOL=$BUILD/zkflock

oneTimeSetUp() {
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
	assertContains "$out" "$(printf '%-18s 6000' session_timeout_ms)"
	assertEquals 'the session is ours' "$(fact alpha session)" "$(zkcat ls /zkflock/hosts | head -n 1)"
	assertTrue 'there is a lease' "[ $(fact alpha lease_ms) -gt 0 ] && [ $(fact alpha lease_ms) -le 6000 ]"
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
	assertEquals "ready 6000 0" "$(json 'd["state"], d["session_timeout_ms"], d["losses"]' <<<"$out" | tr -d "(),'")"
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

. shunit2

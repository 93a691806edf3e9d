#!/bin/bash
# tests/30_two_hosts_test.sh - a lock on one host excludes the other, for the programs that people have
# modes: native cluster
# limit: 300
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

# two_actors FILE - a on alpha and b on beta, with FILE open in slot 0
two_actors() {
	actor a alpha
	actor b beta
	expect a "open 0 rw $1" ok
	expect b "open 0 rw $1" ok
}

test_killed_holder_frees_the_lock_at_once() {
	hold alpha job.lock || { fail 'alpha got no lock'; return; }
	assertEquals 'beta, while alpha holds' busy "$(try beta job.lock)"
	kill -KILL "$holder"
	assertEquals 'beta, after SIGKILL on alpha' granted "$(wait_for beta job.lock 2)"
}

# ---- flock(1) --------------------------------------------------------------------------------------------------------

# The first idiom of the manual, and a command that ends by itself, by error, and by a signal.
test_flock_file_command() {
	spawn alpha flock command.lock sleep 60
	assertTrue 'alpha holds' 'becomes busy 5 beta command.lock'
	on beta flock -n command.lock true
	assertEquals 'flock -n' 1 $?
	on beta flock -E 9 -n command.lock true
	assertEquals 'flock -E 9 -n' 9 $?
	on beta flock -w 1 command.lock true
	assertEquals 'flock -w 1' 1 $?
	end "$spawned" # flock(1) ends, its child sleep(1) has the descriptor still
	assertEquals 'the child keeps it' busy "$(try beta command.lock)"
}

# case A01: the process that locks is gone at once, the lock stays with the shell until the subshell ends
test_subshell_idiom() {
	gate a01
	spawn alpha sh -c '( flock 9; echo A-in >>"$1/a01.log"; read _ <"$1/a01"; echo A-out >>"$1/a01.log" ) 9>subshell.lock' sh "$T"
	assertTrue 'A-in' 'wait_until 10 contains "$T/a01.log" A-in'
	on beta sh -c '( flock -n 9 || exit 1; echo B-in >>"$1/a01.log" ) 9>subshell.lock' sh "$T"
	assertEquals 'loser' 1 $?
	spawn beta sh -c '( flock 9; echo B2-in >>"$1/a01.log" ) 9>subshell.lock' sh "$T"
	assertTrue 'B2 waits' 'never 1 contains "$T/a01.log" B2-in'
	open_gate a01
	assertTrue 'B2-in within 1 s' 'wait_until 1 contains "$T/a01.log" B2-in'
	assertEquals 'A-in A-out B2-in' "$(tr '\n' ' ' <"$T/a01.log" | sed 's/ $//')"
}

# The third idiom; case F04: the pid is written into the locked file by the same descriptor.
test_exec_idiom() {
	gate exec
	spawn alpha sh -c 'exec 9>exec.lock; flock -n 9 || exit 1; echo $$ 1>&9; read _ <>"$1/exec"; flock -u 9; read _ <>"$1/exec"' sh "$T"
	assertTrue 'alpha holds' 'becomes busy 5 beta exec.lock'
	assertEquals 'pid in the file' "$spawned" "$(cat "$T/alpha/s/exec.lock")"
	on beta bash -c 'exec 200>exec-b.lock; exec 200>exec.lock; flock -n 200 || exit 7'
	assertEquals 'exec 200>, flock -n 200' 7 $?
	open_gate exec
	assertTrue 'flock -u frees it' 'becomes granted 2 beta exec.lock'
	open_gate exec
}

# case A05, F06: the manual's boilerplate; the lock file is the script, read-only, and the lock crosses env, flock, fork, exec
test_script_that_locks_itself() {
	local option host expected
	gate a05
	for option in '' '-E 14'; do
		expected=${option:+14}
		for host in alpha beta; do
			script $host "self$expected.sh" <<-END
				#!/bin/sh
				[ "\$FLOCKER" != "\$0" ] && exec env FLOCKER="\$0" flock $option -en "\$0" "\$0" "\$@" || :
				echo "ran \$1" && [ "\$1" != wait ] || read _ <"$T/a05"
			END
		done
		spawn alpha "./self$expected.sh" wait
		assertTrue "$option: alpha runs" "wait_until 10 contains '$spawned_out' 'ran wait'"
		assertEquals "$option: beta is silent" '' "$(on beta "./self$expected.sh" b 2>&1)"
		on beta "./self$expected.sh" b >/dev/null
		assertEquals "$option: status" "${expected:-1}" $?
		open_gate a05
		wait_until 5 gone "$spawned"
		assertEquals "$option: beta's turn" 'ran b' "$(on beta "./self$expected.sh" b 2>&1)"
	done
}

test_flock_shared_together_exclusive_alone() {
	hold alpha shared.lock -m sh || { fail 'alpha got no lock'; return; }
	on beta flock -s -n shared.lock true
	assertEquals 'flock -s beside a reader' 0 $?
	on beta flock -n shared.lock true
	assertEquals 'flock -x beside a reader' 1 $?
	end "$holder"
	hold beta shared.lock || { fail 'beta got no lock'; return; }
	on alpha flock -s -n shared.lock true
	assertEquals 'flock -s beside a writer' 1 $?
}

# -o closes the descriptor in the command, -F runs it without a fork
test_flock_close_and_no_fork() {
	spawn alpha flock -F nofork.lock sleep 60
	assertTrue '-F holds' 'becomes busy 5 beta nofork.lock'
	assertEquals '-F did not fork' sleep "$(cat "/proc/$spawned/comm")"
	kill -KILL "$spawned"
	assertTrue '-F, killed' 'becomes granted 2 beta nofork.lock'
	spawn alpha flock -o close.lock sleep 60
	assertTrue '-o holds' 'becomes busy 5 beta close.lock'
	kill -KILL "$spawned" # flock(1) goes; sleep goes on without the descriptor
	assertTrue '-o, killed' 'becomes granted 2 beta close.lock'
}

# case F07
test_flock_long_options() {
	on alpha flock --close -E 87 -w 90 long.lock true
	assertEquals 0 $?
	hold alpha long.lock || { fail 'alpha got no lock'; return; }
	on beta flock --close -E 87 -w 1 long.lock true
	assertEquals 87 $?
	spawn beta flock --close --timeout 28800 long.lock echo in
	end "$holder"
	assertTrue 'eight hours in the queue' "wait_until 2 contains '$spawned_out' in"
}

# case F01: -c with one word; and timeout -k after the lock file: the job that it ends has freed the lock
test_flock_in_a_crontab() {
	script alpha run <<-END
		#!/bin/sh
		echo job
	END
	on alpha sh -c 'flock -n cron.lock -c ./run >>"$1/f01.log" 2>&1' sh "$T"
	assertEquals job "$(cat "$T/f01.log")"
	spawn alpha sh -c 'flock -n cron.lock timeout -k 2 1 sleep 60 >>"$1/f01.log" 2>&1' sh "$T"
	assertTrue 'alpha holds' 'becomes busy 5 beta cron.lock'
	assertEquals 'after its timeout' granted "$(wait_for beta cron.lock 4)"
}

# case F03: three locks by a chain of exec
test_nested_flock() {
	gate f03
	spawn alpha flock nest.a flock nest.b flock nest.c sh -c 'echo in; read _ <"$1/f03"' sh "$T"
	assertTrue 'alpha is in' "wait_until 10 contains '$spawned_out' in"
	for name in a b c; do assertEquals "nest.$name" busy "$(try beta nest.$name)"; done
	open_gate f03
	wait_until 5 gone "$spawned"
	for name in a b c; do assertEquals "nest.$name" granted "$(wait_for beta nest.$name 2)"; done
	on alpha flock nest.a flock -n nest.a true
	assertEquals 'the same one twice' 1 $?
}

# case F05: set -e, an environment file, a python below
test_subshell_with_environment_and_python() {
	gate f05
	script alpha f05.env <<<'export F05=set'
	spawn alpha bash -c 'set -e
		( flock -n 200; . ./f05.env; /usr/bin/python3 -c "import os; print(os.environ[\"F05\"], flush=True)"; read _ <"$1/f05" ) 200>f05.lock' sh "$T"
	assertTrue 'alpha is in' "wait_until 10 contains '$spawned_out' set"
	assertEquals busy "$(try beta f05.lock)"
	open_gate f05
	assertEquals granted "$(wait_for beta f05.lock 3)"
}

# case C18: the exit status, the arguments, and the bytes of the command are its own
test_flock_is_transparent() {
	local status
	on alpha flock c18.lock sh -c 'exit 3'
	assertEquals 'exit 3' 3 $?
	on alpha flock c18.lock sh -c 'kill -9 $$' 2>/dev/null
	assertEquals 'signal 9' 137 $?
	on alpha flock c18.lock /no/such/program 2>/dev/null
	status=$?
	flock "$T/c18.control" /no/such/program 2>/dev/null
	assertEquals 'missing program' $? $status
	assertEquals 'arguments' $'[a b][\'"][x\ny][-v][--][]' \
		"$(on alpha flock c18.lock printf '[%s]' 'a b' "'\"" $'x\ny' -v -- '')"
	on alpha sh -c 'i=0; while [ $i -lt 100 ]; do flock c18.lock true || exit 1; i=$((i + 1)); done'
	assertEquals '100 short commands' 0 $?
	head -c 1048576 /dev/urandom >"$T/c18.bytes"
	on alpha flock c18.lock cat <"$T/c18.bytes" >"$T/c18.copy"
	assertTrue 'bytes' 'cmp -s "$T/c18.bytes" "$T/c18.copy"'
}

# ---- other programs --------------------------------------------------------------------------------------------------

# case B01: python imports fcntl64 and lockf64, perl flock; case A37: the errno is what a language tells its user
test_python_and_perl() {
	local python_try='import fcntl, sys
f = open(sys.argv[1], "a")
try:
    getattr(fcntl, sys.argv[2])(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("granted")
except BlockingIOError as e:
    print("busy", e.errno)'
	local python_hold='import fcntl, sys, signal
f = open(sys.argv[1], "a")
getattr(fcntl, sys.argv[2])(f, fcntl.LOCK_EX)
print("granted", flush=True)
signal.pause()'
	local perl_try='use Fcntl ":flock"; use Errno; open(F, ">>", $ARGV[0]) or die;
		print flock(F, LOCK_EX | LOCK_NB) ? "granted" : $!{EWOULDBLOCK} ? "would block" : "other $!"'
	for kind in flock lockf; do
		spawn alpha "$PYTHON" -c "$python_hold" python.lock $kind
		assertTrue "$kind held" "wait_until 10 contains '$spawned_out' granted"
		assertEquals "python $kind" 'busy 11' "$(on beta "$PYTHON" -c "$python_try" python.lock $kind)"
		[ $kind = flock ] && assertEquals 'perl' 'would block' "$(on beta perl -e "$perl_try" python.lock)"
		kill -KILL "$spawned"
		assertTrue "$kind free" "becomes granted 2 beta python.lock -k $([ $kind = flock ] && echo flock || echo posix)"
		assertEquals "python $kind" granted "$(on beta "$PYTHON" -c "$python_try" python.lock $kind)"
	done
	spawn alpha perl -e 'use Fcntl ":flock"; open(F, ">>", "perl.lock"); flock(F, LOCK_EX); $| = 1; print "granted\n"; sleep 60'
	assertTrue 'perl holds' "wait_until 10 contains '$spawned_out' granted"
	assertEquals 'python against perl' 'busy 11' "$(on beta "$PYTHON" -c "$python_try" perl.lock flock)"
}

# sqlite_on HOST SQL - one statement, no waiting for locks
sqlite_on() { on "$1" sqlite3 -batch -cmd '.timeout 0' data.db "$2" 2>&1; }

# case A07: byte ranges above 2^30, shared and exclusive, polled.  Each host has its own file, mapped to one name.
test_sqlite_writers_keep_each_other_out() {
	local fifo pid
	sqlite_on alpha 'create table if not exists t(n)' >/dev/null
	sqlite_on beta 'create table if not exists t(n)' >/dev/null
	mkfifo "$T/sqlite.in"
	exec {fifo}<>"$T/sqlite.in"
	local HOST_ENV
	host_env alpha
	"${HOST_ENV[@]}" sqlite3 -batch data.db <"$T/sqlite.in" >"$T/out.sqlite" 2>&1 &
	pid=$!
	printf 'begin exclusive;\nselect 1;\n' >&"$fifo"
	assertTrue 'alpha is in' 'wait_until 10 contains "$T/out.sqlite" 1'
	assertContains 'insert on beta' "$(sqlite_on beta 'insert into t values(1)')" 'database is locked'
	assertContains 'select on beta' "$(sqlite_on beta 'select count(*) from t')" 'database is locked'
	printf 'commit;\nselect 2;\n' >&"$fifo"
	assertTrue 'alpha is out' 'wait_until 10 contains "$T/out.sqlite" 2'
	assertEquals 'after the commit' '' "$(on beta sqlite3 -batch -cmd '.timeout 5000' data.db 'insert into t values(1)' 2>&1)"
	exec {fifo}>&-
	end "$pid"
}

# Writers by turns: sqlite polls with its busy timeout.
test_sqlite_writers_take_turns() {
	local pids=() host i ended
	# Before anybody writes: these do not wait for locks.
	for host in alpha beta; do
		on $host sqlite3 -batch -cmd '.timeout 20000' data.db 'create table if not exists turns(n); insert into turns values(0)' >/dev/null
	done
	for host in alpha beta; do
		spawn $host sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
			sqlite3 -batch -cmd ".timeout 20000" data.db "update turns set n=n+1" || exit 1; done'
		pids+=("$spawned")
	done
	for i in "${pids[@]}"; do
		wait_until 60 gone "$i"
		wait "$i"
		ended=$?
		assertEquals "all updates: $(cat "$spawned_out.err")" 0 $ended
	done
	for host in alpha beta; do assertEquals "$host" ok "$(sqlite_on $host 'pragma integrity_check')"; done
}

# ---- calls -----------------------------------------------------------------------------------------------------------

# case A09: a non-blocking call never waits for a holder.  beta's tries are timed.
test_non_blocking_record_tries_are_quick() {
	local answers
	two_actors a09.lock
	expect a 'setlk 0 wr 21 1' ok
	answers=$(on beta "$PYTHON" -c '
import fcntl, sys, time
f = open("a09.lock", "r+b"); times = []; errors = set()
for i in range(50):
    start = time.monotonic()
    try:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 21); errors.add(0)
    except OSError as e:
        errors.add(e.errno)
    times.append(time.monotonic() - start)
times.sort()
patience = float(sys.argv[1])
print(sorted(errors), times[-5] < 0.25 * patience, times[-1] < 1.0 * patience, times)' "$PATIENCE")
	assertEquals "byte 21: $answers" '[11] True True' "${answers% \[*}"
	expect a 'setlk 0 un 0 0' ok
	expect b 'setlk 0 wr 21 1' ok
}

# case A09, the neighbours
test_neighbouring_bytes_are_free() {
	two_actors a09n.lock
	expect a 'setlk 0 wr 21 1' ok
	expect b 'setlk 0 wr 21 1' EAGAIN
	expect b 'setlk 0 wr 20 1' ok
	expect b 'setlk 0 wr 22 1' ok
}

# case A15
test_record_ranges_between_hosts() {
	two_actors a15.lock
	expect a 'setlkw 0 wr 7600 2560' ok
	expect b 'setlk 0 wr 10160 2560' ok
	expect b 'setlk 0 wr 10159 1' EAGAIN
	expect a 'setlk 0 un 8000 100' ok
	expect b 'setlk 0 wr 8000 100' ok
	expect b 'setlk 0 wr 7999 1' EAGAIN
	expect b 'setlk 0 wr 8100 1' EAGAIN
	expect a 'setlk 0 rd 8100 10' ok
	expect b 'setlk 0 rd 8100 10' ok
	expect b 'setlk 0 wr 8100 10' EAGAIN
}

test_records_exclude_by_every_call() {
	two_actors every.lock
	for locked in 'setlk 0 wr 0 10' 'setlkw 0 wr 0 10' 'osetlk 0 wr 0 10' 'osetlkw 0 wr 0 10' 'lockf 0 tlock 10' 'lockf 0 lock 10'; do
		expect a "$locked" ok
		expect b 'setlk 0 wr 5 1' EAGAIN
		expect b 'setlk 0 rd 5 1' EAGAIN
		expect b 'osetlk 0 wr 5 1' EAGAIN
		expect b 'lockf 0 tlock 10' EAGAIN
		expect b 'lockf 0 test 10' EACCES
		case $locked in o*) expect a 'osetlk 0 un 0 0' ok ;; *) expect a 'setlk 0 un 0 0' ok ;; esac
		expect b 'lockf 0 test 10' ok
		expect b 'setlk 0 wr 5 1' ok
		expect a 'setlk 0 wr 5 1' EAGAIN
		expect b 'setlk 0 un 0 0' ok
	done
}

test_records_shared_together_exclusive_alone() {
	two_actors readers.lock
	expect a 'setlk 0 rd 0 0' ok
	expect b 'setlk 0 rd 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect a 'setlk 0 wr 0 0' EAGAIN
	tell a 'setlkw 0 wr 0 0'
	pending a
	expect b 'setlk 0 un 0 0' ok
	expect_answer a ok 2
	expect b 'setlk 0 rd 0 0' EAGAIN
}

# A holder on another host has a negated pid (Linux's rule for remote locks); on one host it is the pid.
test_getlk_tells_of_the_other_host() {
	two_actors getlk.lock
	expect b 'getlk 0 wr 0 10' free
	expect a 'setlk 0 wr 0 0' ok
	tell b 'getlk 0 wr 0 10'
	answer b 10
	if cluster; then
		assertEquals "wr 0 0 -${ACTORS[a]}" "$ANSWER"
	else
		assertEquals "wr 0 0 ${ACTORS[a]}" "$ANSWER"
	fi
	expect a 'setlk 0 un 0 0' ok
	expect b 'getlk 0 wr 0 10' free
}

test_flock_conversions() {
	two_actors convert.lock
	expect a 'flock 0 ex' ok
	expect b 'flock 0 sh nb' EAGAIN
	expect a 'flock 0 sh' ok
	expect b 'flock 0 sh nb' ok
	expect a 'flock 0 ex nb' EAGAIN
	# The failed conversion has dropped the shared lock of a.
	expect b 'flock 0 ex nb' ok
	expect b 'flock 0 un' ok
	expect a 'flock 0 sh' ok
	expect b 'flock 0 sh' ok
	tell a 'flock 0 ex'
	pending a
	expect b 'flock 0 un' ok
	expect_answer a ok 2
}

# What a holder has it may ask for again, even when another host waits: else it would wait for a host that waits for it.
#
#     a  holds            b  waits for a                a  asks for what it has: at once, not behind b
test_a_holder_asks_again_while_another_host_waits() {
	two_actors again.lock
	expect a 'flock 0 ex' ok
	expect a 'setlk 0 wr 0 0' ok
	actor b2 beta
	expect b2 'open 0 rw again.lock' ok
	tell b 'flock 0 ex'
	tell b2 'setlkw 0 wr 0 0'
	pending b
	expect a 'flock 0 ex' ok 2
	expect a 'flock 0 ex nb' ok 2
	expect a 'setlkw 0 wr 0 0' ok 2
	expect a 'setlkw 0 wr 10 10' ok 2
	pending b2
	expect a 'flock 0 un' ok
	expect_answer b ok 2
	expect a 'setlk 0 un 0 0' ok
	expect_answer b2 ok 2
}

# case A32 between hosts
test_kinds_are_separate_between_hosts() {
	two_actors kinds.lock
	expect a 'flock 0 ex nb' ok
	expect a 'setlk 0 wr 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect b 'flock 0 ex nb' EAGAIN
	expect a 'setlk 0 un 0 0' ok
	expect b 'setlk 0 wr 0 0' ok
	expect b 'flock 0 ex nb' EAGAIN
}

# case C28 between hosts
test_threads_of_one_process_against_another_host() {
	two_actors threads.lock
	for slot in 1 2 3; do expect a "open $slot rw threads.lock" ok; done
	expect a 'thread flock 0 ex nb' ok
	for slot in 1 2 3; do expect a "thread flock $slot ex nb" EAGAIN; done
	expect b 'flock 0 ex nb' EAGAIN
	for slot in 0 1 2 3; do expect a "thread setlk $slot wr 0 0" ok; done
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect a 'flock 0 ex' ok
	expect a 'flock 0 un' ok
	expect b 'flock 0 ex nb' ok
}

# case A19: a wait across hosts ends by a signal without SA_RESTART, and leaves no claim; with SA_RESTART it goes on
test_signals_end_a_wait_for_another_host() {
	local call before took
	two_actors a19.lock
	expect a 'flock 0 ex' ok
	expect a 'setlk 0 wr 0 0' ok
	for call in 'flock 0 ex' 'setlkw 0 wr 0 0' 'osetlkw 0 wr 0 0'; do
		before=$(now_ms)
		expect b 'alarm 500 norestart' ok
		expect b "$call" EINTR 5
		took=$(($(now_ms) - before))
		expect b 'alarm 0 norestart' ok
		assertTrue "$call: EINTR after $took ms" "[ $took -ge 490 -a $took -lt $((1500 * PATIENCE)) ]"
	done
	if cluster; then
		assertTrue 'no claim left in locks' 'wait_until 2 claims_are locks a19.lock 1'
		assertTrue 'no claim left in records' 'wait_until 2 claims_are records a19.lock 1'
	fi
	expect b 'alarm 100 restart' ok
	tell b 'flock 0 ex'
	pending b
	expect a 'flock 0 un' ok
	expect_answer b ok 2
	expect b 'alarm 100 restart' ok
	tell b 'setlkw 0 wr 0 0'
	pending b
	expect a 'setlk 0 un 0 0' ok
	expect_answer b ok 2
}

test_cancellation_ends_a_wait_for_another_host() {
	two_actors cancel.lock
	expect a 'setlk 0 wr 0 0' ok
	expect b 'cancel setlkw 0 wr 0 0' canceled
	cluster && assertTrue 'no claim left' 'wait_until 2 claims_are records cancel.lock 1'
	expect a 'setlk 0 un 0 0' ok
	expect a 'setlk 0 wr 0 0' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
}

# Waiting from a signal handler, a vfork child, a fork child, another thread.
test_every_frame_waits_for_another_host() {
	two_actors frame.lock
	for frame in signal vfork child thread; do
		expect b 'flock 0 ex' ok
		tell a "$frame flock 0 ex"
		pending a
		expect b 'flock 0 un' ok
		expect_answer a ok 2
		expect b 'flock 0 ex nb' EAGAIN
		expect a "$frame flock 0 un" ok
	done
}

# case B01
test_64_bit_names_between_hosts() {
	actor a alpha actor64
	actor b beta
	expect a 'open 0 rw big.lock' ok
	expect b 'open 0 rw big.lock' ok
	for call in 'flock 0 ex' 'setlk 0 wr 5000000000 10' 'lockf 0 tlock 10' 'osetlkw 0 wr 0 0'; do
		expect a "$call" ok
		case $call in
		flock*) expect b 'flock 0 ex nb' EAGAIN && expect a 'flock 0 un' ok ;;
		*) expect b 'setlk 0 wr 0 0' EAGAIN && expect a 'setlk 0 un 0 0' ok && expect a 'osetlk 0 un 0 0' ok ;;
		esac
	done
	expect b 'flock 0 ex nb' ok
	expect b 'setlk 0 wr 0 0' ok
}

# ---- waiters ---------------------------------------------------------------------------------------------------------

# case A13: a waiter dies at once by any signal, and its place in the queue with it
test_killed_waiters_leave_nothing() {
	local signal waiters=()
	hold alpha a13.lock || { fail 'alpha got no lock'; return; }
	for signal in TERM INT KILL; do
		spawn beta flock a13.lock true
		waiters+=("$spawned")
	done
	cluster && wait_until 5 claims_are locks a13.lock 2
	for signal in TERM INT KILL; do
		kill -$signal "${waiters[0]}"
		assertTrue "$signal" "wait_until 1 gone ${waiters[0]}"
		waiters=("${waiters[@]:1}")
	done
	cluster && assertTrue 'claims of waiters' 'wait_until 2 claims_are locks a13.lock 1'
	spawn beta "$PROBES/lock" -w a13.lock
	end "$holder"
	assertTrue 'the next one' "wait_until 1 contains '$spawned_out' granted"
}

# case C03: every way to leave the queue; the host's keeper lives on
test_waiters_that_give_up_leave_nothing() {
	local pids=() i
	hold alpha c03.lock || { fail 'alpha got no lock'; return; }
	for i in $(seq 10); do
		spawn beta timeout 0.3 flock c03.lock true && pids+=("$spawned")
		spawn beta timeout -s KILL 0.3 flock c03.lock true && pids+=("$spawned")
		spawn beta timeout -s INT 0.3 flock c03.lock true && pids+=("$spawned")
		spawn beta flock -w 0.2 c03.lock true && pids+=("$spawned")
	done
	for i in "${pids[@]}"; do wait_until 10 gone "$i" || fail "waiter $i is still there"; done
	cluster && assertTrue 'claims' 'wait_until 2 claims_are locks c03.lock 1'
	end "$holder"
	assertEquals 'a third process' granted "$(wait_for beta c03.lock 1)"
	if cluster; then assertTrue 'claims' 'wait_until 3 claims_are locks c03.lock 1'; fi
}

# case A17: a second server polls once in a while; the first is killed
test_polling_for_a_killed_holder() {
	local before
	hold alpha a17.lock -k posix || { fail 'alpha got no lock'; return; }
	for _ in 1 2 3 4 5; do assertEquals busy "$(try beta a17.lock -k posix)"; done
	kill -KILL "$holder"
	before=$(now_ms)
	assertTrue 'free' 'becomes granted 2 beta a17.lock -k posix'
	before=$(($(now_ms) - before))
	assertTrue "after $before ms" "[ $before -lt $((2000 * PATIENCE)) ]"
}

# case A21: the holder removes the file, the waiter looks whether its file is still the one with the name
test_lock_unlink_recreate() {
	local rounds=0
	two_actors u.lock
	expect a 'flock 0 ex' ok
	tell b 'flock 0 ex'
	pending b
	expect a 'unlink u.lock' ok
	expect a 'close 0' ok
	expect_answer b ok 2
	while [ $((++rounds)) -lt 3 ]; do
		tell b 'inode 0 u.lock'
		answer b 5
		[ "$ANSWER" = same ] && break
		expect b 'close 0' ok
		expect b 'open 0 rw u.lock' ok
		expect b 'flock 0 ex' ok 2
	done
	assertEquals 'rounds end' same "$ANSWER"
	assertEquals 'a third process' busy "$(try alpha u.lock)"
}

# case A24: ask who holds, try, poll.  Removing the lock file does not make the lock free: its name is what is locked.
test_polling_and_removing_the_file() {
	two_actors .tool.lock
	expect a 'setlk 0 wr 0 0' ok
	for _ in 1 2 3; do
		tell b 'getlk 0 wr 0 0'
		answer b 5
		assertEquals 'F_GETLK' 'wr 0 0' "${ANSWER% *}"
		expect b 'setlk 0 wr 0 0' EAGAIN
	done
	on beta rm .tool.lock
	expect b 'close 0' ok
	expect b 'open 0 rw .tool.lock' ok
	if cluster; then
		expect b 'setlk 0 wr 0 0' EAGAIN
	fi
	expect a 'close 0' ok
	expect b 'setlk 0 wr 0 0' ok
}

# case A27 between hosts
test_directories_between_hosts() {
	on alpha mkdir -p dir
	on beta mkdir -p dir
	spawn alpha flock dir sleep 60
	assertTrue 'alpha holds' 'wait_until 5 flock_fails beta -n dir'
	on beta flock -sn dir true
	assertEquals 'flock -sn dir' 1 $?
	on beta flock -n dir/f true
	assertEquals 'the file inside' 0 $?
}
flock_fails() {
	local host=$1
	shift
	! on "$host" flock "$@" true
}

# case A29: one lock, however the file is spelled
test_spellings_of_one_file() {
	local s=$T/beta/s spelling
	hold alpha x.lock || { fail 'alpha got no lock'; return; }
	ln -sfn "$T/beta/s" "$T/link-to-s"
	ln -sfn x.lock "$(realpath "$s")/link-to-x.lock"
	: >>"$s/x.lock"
	for spelling in ./x.lock "$s/../s/x.lock" "//${s//\//\/\/\/}///x.lock" "$T/link-to-s/x.lock" "$s/link-to-x.lock"; do
		on beta flock -n "$spelling" true
		assertEquals "$spelling" 1 $?
	done
	on beta sh -c 'exec 9>x.lock; flock -n /proc/self/fd/9 true'
	assertEquals '/proc/self/fd/9' 1 $?
	on beta flock -n x.lock2 true
	assertEquals 'another name' 0 $?
}

# case A04: read-only, and not ours
test_read_only_lock_file() {
	for host in alpha beta; do
		: >"$T/$host/s/ro.lock"
		chmod 0444 "$T/$host/s/ro.lock"
	done
	spawn alpha "$PYTHON" -c 'import fcntl, os, time
fd = os.open("ro.lock", os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX); print("granted", flush=True); time.sleep(60)'
	assertTrue 'alpha holds' "wait_until 10 contains '$spawned_out' granted"
	on beta flock -n ro.lock true
	assertEquals 'beta' 1 $?
}

# case C22: names that are awkward in a znode path; no two of them are the same lock
test_odd_file_names() {
	local long odd names
	long=$(printf 'n%.0s' $(seq 255))
	names=('a b' 'a%20b' 'a%2Fb' 'é' $'new\nline' $'tab\there' $'\xff' '...' zookeeper "$long" "${long%n}m" 'x-y' x)
	mkdir -p "$T/alpha/s/odd/x" "$T/beta/s/odd/x" "$T/alpha/s/odd/x-y.d" "$T/beta/s/odd/x-y.d"
	names+=(x-y.d/z)
	for odd in "${names[@]}"; do
		[ "$odd" = x ] && odd=x/y.d-z
		assertEquals "try on beta: $odd" granted "$(try beta "odd/$odd")"
		hold alpha "odd/$odd" || fail "alpha got no lock on $odd"
	done
	for odd in "${names[@]}"; do
		[ "$odd" = x ] && odd=x/y.d-z
		assertEquals "held: $odd" busy "$(try beta "odd/$odd")"
	done
}

# ---- many ------------------------------------------------------------------------------------------------------------

# contenders SECONDS OPTIONS ROUNDS NAME - four processes on each host; prints their lines
contenders() {
	local pids=() outs=() host pid
	for host in alpha beta alpha beta alpha beta alpha beta; do
		# shellcheck disable=SC2086 # options
		spawn $host "$PROBES/contend" $2 "$4.lock" "$T/$4.state" "$3"
		pids+=("$spawned") outs+=("$spawned_out")
	done
	wait_until "$1" all_gone "${pids[@]}"
	for pid in "${pids[@]}"; do gone "$pid" || { echo "pid $pid did not end" && kill -KILL "$pid"; }; done
	cat "${outs[@]}"
}
all_gone() {
	local pid
	for pid; do gone "$pid" || return 1; done
}

# Hundreds of increments by eight processes on two hosts: none lost.
test_increments_are_not_lost() {
	local kind lines
	for kind in flock posix ofd; do
		lines=$(contenders 30 "-k $kind" 60 "count-$kind")
		assertEquals "$kind: $lines" 480 "$(counter_of "$T/count-$kind.state")"
		assertEquals "$kind: violations" 8 "$(grep -c 'violations 0 ' <<<"$lines")"
	done
}

test_increments_by_retrying_are_not_lost() {
	local kind lines
	for kind in flock posix; do
		lines=$(contenders 30 "-n -o -k $kind" 40 "retry-$kind")
		assertEquals "$kind: $lines" 320 "$(counter_of "$T/retry-$kind.state")"
		assertEquals "$kind: violations" 8 "$(grep -c 'violations 0 ' <<<"$lines")"
	done
}

# The same by an unmodified script around flock(1).
test_increments_of_flock_scripts() {
	local pids=() pid host
	echo 0 >"$T/script.count"
	for host in alpha beta alpha beta; do
		spawn $host sh -c 'i=0; while [ $((i += 1)) -le 40 ]; do
			flock script.lock sh -c "read n <$1; echo \$((n + 1)) >$1"; done' sh "$T/script.count"
		pids+=("$spawned")
	done
	wait_until 60 all_gone "${pids[@]}" || fail 'they did not end'
	assertEquals 160 "$(cat "$T/script.count")"
}

# case C08: writer, reader, writer: the reader must not wait for the writer behind it
test_writer_reader_writer() {
	two_actors c08.lock
	actor a2 alpha
	expect a2 'open 0 rw c08.lock' ok
	expect a 'flock 0 ex' ok
	tell b 'flock 0 sh'
	pending b
	tell a2 'flock 0 ex'
	pending a2
	expect a 'flock 0 un' ok
	# Which of the two waiters is first is the lock manager's choice; both get their turn.
	wait_until 2 either_answered b a2
	assertEquals 'one of them within 2 s' 0 $?
	if has_line b $((ANSWERS_READ[b] + 1)); then
		expect_answer b ok && expect b 'flock 0 un' ok && expect_answer a2 ok 2
	else
		expect_answer a2 ok && expect a2 'flock 0 un' ok && expect_answer b ok 2
	fi
}
either_answered() { has_line "$1" $((ANSWERS_READ[$1] + 1)) || has_line "$2" $((ANSWERS_READ[$2] + 1)); }

# case C08, at random: readers and writers never meet, and nobody stands still
test_readers_and_writers_at_random() {
	local lines
	lines=$(contenders 30 '-s 60 -t 3000' 100000 mixed)
	assertEquals "$lines" 8 "$(grep -c 'violations 0 ' <<<"$lines")"
	assertEquals "no stall over 5 s: $lines" 0 "$(awk '/^counted/ && $6 > 5000' <<<"$lines" | wc -l)"
	assertEquals 'increments' "$(awk '/^counted/ { sum += $2 } END { print sum }' <<<"$lines")" "$(counter_of "$T/mixed.state")"
}

# Readers that keep coming, two at a time on each host, so that there is always one: the kernel would let a writer of
# another process starve.  Between hosts a writer that asked first goes before readers that hold nothing.
test_readers_do_not_starve_a_writer() {
	cluster || { skip 'the kernel does starve a writer'; return; }
	local host
	for host in alpha beta alpha beta; do
		spawn $host sh -c 'while :; do flock -s starve.lock sleep 0.2; done'
	done
	assertTrue 'readers are in' 'becomes busy 5 beta starve.lock'
	assertEquals 'the writer' granted "$(wait_for beta starve.lock 10)"
}

# Two hosts hand one lock to and fro: each turn is one wake-up, not a poll.
test_ping_pong() {
	local before took i
	two_actors pong.lock
	expect a 'flock 0 ex' ok
	before=$(now_ms)
	for i in 1 2 3 4 5 6 7 8 9 10; do
		tell b 'flock 0 ex'
		expect a 'flock 0 un' ok
		expect_answer b ok 2
		tell a 'flock 0 ex'
		expect b 'flock 0 un' ok
		expect_answer a ok 2
	done
	took=$(($(now_ms) - before))
	assertTrue "20 turns took $took ms" "[ $took -lt $((10000 * PATIENCE)) ]"
}

. shunit2

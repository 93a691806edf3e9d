# tests/55_loss_test.sh - keepers that die, leases that run out, sessions that expire: nothing is lost, nobody holds twice
# modes: cluster
# limit: 240
# alone
#
# A server that is stopped (SIGSTOP) looks to every host like a partition.  Stopped for less than the session timeout, the
# sessions are alive afterwards; started again, it expires those whose time has passed.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh's
ZKFLOCK_TEST_LOG=info
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_loss.sh"

eval "$(declare -f oneTimeSetUp | sed 's/^oneTimeSetUp/common_set_up/')"
oneTimeSetUp() {
	common_set_up || return 1
	printf '%s\n' "map $T/alpha/s/kill s/kill/%r on_loss=kill" "map $T/alpha/s/warn s/warn/%r on_loss=warn" \
		>>"$T/alpha/zkflock.conf"
	printf '%s\n' "map $T/beta/s/kill s/kill/%r" "map $T/beta/s/warn s/warn/%r" >>"$T/beta/zkflock.conf"
	mkdir "$T"/{alpha,beta}/s/{kill,warn}
}

# A keeper is killed while a program of its host holds.  The guard starts another one, which takes the session over: the
# other host sees no gap, and the lock is free when it is unlocked.
test_a_killed_keeper_loses_no_lock() {
	local i pid
	hold alpha kept.lock || return
	for i in 1 2 3 4 5 6; do
		pid=$(keeper_pid alpha)
		kill -KILL "$pid"
		wait_until 10 keeper_is_not alpha "$pid"
		assertEquals "a new keeper $i" 0 $?
		assertEquals "beta $i" busy "$(try beta kept.lock)"
	done
	kill -KILL "$holder"
	assertEquals 'free for beta' granted "$(wait_for beta kept.lock 5)"
	assertTrue 'no orphan' 'wait_until 5 claims_are locks kept.lock 1'
}

# counting HOST - count under a lock, for as long as $T/go is there; prints how often.  A lock that is refused ends it.
counting() {
	spawn "$1" bash -c 'while [ -e "$2" ]; do flock count.lock bash -c '\''
		read -r n <"$1"; echo $((n + 1)) >"$1"'\'' x "$1" || exit 1; echo $((++done)) >$3; done' \
		count "$T/counter" "$T/go" "$T/counted.$((++counting))"
	counters+=("$spawned")
}

# The same at moments that nobody chose: two hosts count under the lock while their keepers are killed again and again,
# every fifth time together with the guard, so that it is a program's next call that starts the new one.
# KEEPER_KILLS=100: `make soak`.
test_keepers_killed_at_any_moment() {
	local i host pid guard counters=() counting=0 killed=0
	echo 0 >"$T/counter"
	: >"$T/go"
	for host in alpha beta alpha beta; do counting $host; done
	for ((i = 1; i <= ${KEEPER_KILLS:-12}; i++)); do
		host=alpha
		[ $((i % 2)) = 0 ] && host=beta
		wait_until 20 keeper_pid $host >/dev/null
		pid=$(keeper_pid $host) || continue
		guard=$(ps -o ppid= -p "$pid" | tr -d ' ')
		[ $((i % 5)) = 0 ] && [ "$(cat "/proc/$guard/comm")" = zkflockd ] && kill -KILL "$guard"
		kill -KILL "$pid" && ((++killed))
		nap 0.$((RANDOM % 4))$((RANDOM % 10))
	done
	rm "$T/go"
	for pid in "${counters[@]}"; do
		wait_until 60 gone "$pid"
		wait "$pid"
		assertEquals 'no lock was refused' 0 $?
	done
	assertTrue "$killed were killed" "[ $killed -ge $((${KEEPER_KILLS:-12} * 3 / 4)) ]"
	assertEquals 'no increment was lost' "$(cat "$T"/counted.* | awk '{ n += $1 } END { print n }')" "$(cat "$T/counter")"
	assertTrue "and there were some: $(cat "$T/counter")" "[ $(cat "$T/counter") -gt $killed ]"
	assertTrue 'no orphan' 'wait_until 10 claims_are_at_most locks count.lock 1'
}
claims_are_at_most() { [ "$(claims "$1" "$2")" -le "$3" ]; }

# on_loss=freeze: the partition ends in time.  The job stands still from before the deadline on, and goes on afterwards.
test_freeze_and_go_on() {
	ticker alpha frozen.lock "$T/ticks"
	kill -STOP "$zk_pid"
	assertTrue 'it is stopped' "frozen '$T/ticks' 8"
	kill -CONT "$zk_pid"
	assertTrue 'it goes on' "started '$T/ticks'"
	assertEquals 'and still holds' busy "$(try beta frozen.lock)"
	assertTrue 'it was told' 'wait_until 5 logged alpha action=SIGCONT'
	end "$ticker"
}

# Who was stopped before, by his shell, stays stopped when the others go on.
test_who_was_stopped_before_stays_stopped() {
	local pid
	ticker alpha stopped.lock "$T/ticks"
	pid=$(pgrep -P "$ticker")
	kill -STOP "$pid"
	kill -STOP "$zk_pid"
	wait_until 10 logged alpha "pid=$pid action=none"
	assertEquals 'noticed' 0 $?
	kill -CONT "$zk_pid"
	wait_until 10 logged alpha 'action=SIGCONT'
	assertEquals 'it stays' T "$(state_of "$pid")"
	kill -KILL "$pid"
	end "$ticker"
}

# on_loss=freeze: the session expires.  When a stopped server goes on, its expiry races with the heartbeats that have
# been waiting for it; if those win, the job goes on and it is tried again.
test_freeze_and_kill() {
	local i
	for i in 1 2 3 4 5 6 7 8; do
		ticker alpha lost.lock "$T/ticks"
		: >"$T/alpha/run/log"
		kill -STOP "$zk_pid"
		assertTrue 'it is stopped' "frozen '$T/ticks' 8"
		nap 5
		kill -CONT "$zk_pid"
		wait_until 10 logged alpha 'session expired\|action=SIGCONT'
		assertEquals 'decided' 0 $?
		logged alpha 'session expired' && break
		end "$ticker"
	done
	assertTrue 'it has expired' 'logged alpha "session expired"'
	assertEquals 'beta gets it' granted "$(wait_for beta lost.lock 20)"
	assertTrue 'the holder is dead' "wait_until 5 gone $ticker"
	assertTrue 'and its child writes no more' "standing '$T/ticks'"
}

# on_loss=kill: gone before the server may give the lock away; on_loss=warn: told, and left alone.
test_kill_and_warn() {
	local killed warned
	ticker alpha kill/k.lock "$T/ticks.kill"
	killed=$ticker
	ticker alpha warn/w.lock "$T/ticks.warn"
	warned=$ticker
	kill -STOP "$zk_pid"
	assertTrue 'killed' "wait_until 8 gone $killed"
	kill -CONT "$zk_pid"
	assertTrue 'warned' "wait_until 5 logged alpha 'pid=$warned action=none'"
	assertTrue 'and goes on' "started '$T/ticks.warn'"
	end "$warned"
}

# An operator deletes the claim: the session lives, the lock is lost all the same.
test_a_claim_that_is_taken_away() {
	local path
	hold alpha broken.lock || return
	path=/zkflock/locks/s%2Fbroken.lock
	zkcat delete "$path/$(zkcat ls $path | head -n 1)" >/dev/null
	assertTrue 'the holder is killed' "wait_until 5 gone $holder"
	assertEquals 'free for beta' granted "$(wait_for beta broken.lock 5)"
}

# Keeper and guard die: nobody stops the holder, and the lease runs out.  The next lock call of the host starts a keeper,
# which finds the session expired and deals with the old holder before it grants anything.
test_keeper_and_guard_killed() {
	local pid guard
	ticker alpha orphan.lock "$T/ticks"
	pid=$(keeper_pid alpha)
	guard=$(ps -o ppid= -p "$pid" | tr -d ' ')
	assertEquals 'a guard' zkflockd "$(cat "/proc/$guard/comm")"
	kill -KILL "$guard" "$pid"
	assertEquals 'beta, when the session has ended' granted "$(wait_for beta orphan.lock 20)"
	assertEquals 'another lock of alpha' granted "$(wait_for alpha other.lock 20)"
	assertTrue 'the old holder is dead' "wait_until 5 gone $ticker"
}

# ---- where the kernel refuses to lock: only the keeper knows who holds --------------------------------------------------

# idler HOST FILE OUT - like ticker, in a shell that holds by the descriptor alone: who has called flock(2) is gone
idler() {
	rm -f "$3"
	spawn "$1" bash -c 'flock -n 9 || exit 1
		while :; do echo $((${EPOCHREALTIME/./} / 1000)) >>"$1"; read -rt 0.05 <>"$2"; done' \
		idler "$3" "$T/nap" 9>>"$T/$1/s/$2"
	ticker=$spawned
	wait_until 10 test -s "$3" || fail "no idler on $1"
}

test_refused_files_freeze_and_go_on() {
	local by_child by_taker
	keeper_start alpha
	local REFUSE=ENOLCK
	ticker alpha nolock.lock "$T/ticks"
	by_taker=$ticker
	idler alpha nolock2.lock "$T/ticks2"
	by_child=$ticker
	kill -STOP "$zk_pid"
	assertTrue 'it is stopped' "frozen '$T/ticks' 8"
	assertTrue 'and who has only the descriptor' "frozen '$T/ticks2' 4"
	kill -CONT "$zk_pid"
	assertTrue 'it goes on' "started '$T/ticks'"
	assertTrue 'both' "started '$T/ticks2'"
	assertEquals 'and still holds' 'busy busy' "$(try beta nolock.lock) $(try beta nolock2.lock)"
	end "$(pgrep -P "$by_taker")" "$by_taker" "$by_child"
	assertEquals 'free' 'granted granted' "$(wait_for beta nolock.lock 5) $(wait_for beta nolock2.lock 5)"
}

test_refused_files_kill() {
	keeper_start alpha
	local REFUSE=ENOLCK
	idler alpha kill/nolock.lock "$T/ticks"
	kill -STOP "$zk_pid"
	assertTrue 'killed' "wait_until 8 gone $ticker"
	kill -CONT "$zk_pid"
	wait "$ticker" 2>/dev/null
	assertEquals 'free for beta' granted "$(wait_for beta kill/nolock.lock 20)"
}

# The next keeper reads from the state that the first one has kept who held.
test_refused_files_keeper_and_guard_killed() {
	local pid guard
	keeper_start alpha
	keeper_start beta
	local REFUSE=ENOLCK
	idler alpha nolock3.lock "$T/ticks"
	pid=$(keeper_pid alpha)
	guard=$(ps -o ppid= -p "$pid" | tr -d ' ')
	kill -KILL "$guard" "$pid"
	assertEquals 'beta, when the session has ended' granted "$(wait_for beta nolock3.lock 20)"
	REFUSE=''
	assertEquals 'another lock of alpha' granted "$(wait_for alpha other.lock 20)"
	assertTrue 'the old holder is dead' "wait_until 5 gone $ticker"
}

# What it reads names a process that is gone: that somebody holds is known, and of who it is only that he has the file open.
test_refused_files_keeper_and_guard_killed_and_the_taker_gone() {
	local pid guard taker
	keeper_start alpha
	keeper_start beta
	rm -f "$T/ticks"
	gate taken
	REFUSE=ENOLCK spawn alpha bash -c '"$0" -c "import fcntl; fcntl.flock(9, 2); open(\"$1\").read()" & echo $! >"$4"
		while :; do echo $((${EPOCHREALTIME/./} / 1000)) >>"$2"; read -rt 0.05 <>"$3"; done' \
		"$PYTHON" "$T/taken" "$T/ticks" "$T/nap" "$T/taker" 9>>"$T/alpha/s/nolock4.lock"
	ticker=$spawned
	assertTrue 'held' 'becomes busy 10 alpha nolock4.lock'
	taker=$(cat "$T/taker")
	pid=$(keeper_pid alpha)
	guard=$(ps -o ppid= -p "$pid" | tr -d ' ')
	kill -STOP "$guard" "$pid" # so that nobody notes who has it after
	open_gate taken
	assertTrue 'the taker ends' "wait_until 5 gone $taker"
	kill -KILL "$guard" "$pid"
	assertEquals 'beta, when the session has ended' granted "$(REFUSE=ENOLCK wait_for beta nolock4.lock 20)"
	assertEquals 'another lock of alpha' granted "$(wait_for alpha other.lock 20)"
	assertTrue 'the old holder is dead' "wait_until 5 gone $ticker"
}

. shunit2

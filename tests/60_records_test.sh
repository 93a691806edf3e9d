#!/bin/bash
# tests/60_records_test.sh - record locks to the byte between hosts: ranges, overtaking, F_GETLK, fairness
# modes: native cluster
# limit: 240
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_actors.sh"

# pieces FILE - what the claims in the queue of FILE hold, sorted, one line: "w=0-0 w=1-1"
pieces() {
	local claim queue="/zkflock/records/s%2F$1"
	for claim in $(zkcat ls "$queue"); do
		zkcat get "$queue/$claim" | tr ' ' '\n' | grep '^[rw]=' | paste -sd+
	done | sort | paste -sd' '
}

# pieces_are FILE TEXT - over the library: assert what the claims hold, and wait for it
pieces_are() {
	cluster || return 0
	wait_until 3 has_pieces "$1" "$2"
	assertEquals "claims of $1" "$2" "$(pieces "$1")"
}
has_pieces() { [ "$(pieces "$1")" = "$2" ]; }

# remote PID - a holder's pid as F_GETLK tells it to another host (Linux's rule for remote locks)
remote() { if cluster; then echo "-$1"; else echo "$1"; fi; }

# A program that makes record calls with every whence, one for each argument, prints what came of each, and then holds.
#     CALL:TYPE:WHENCE:START:LEN   setlk, setlkw, osetlk; rd, wr, un or a number; set, cur, end or a number
#     seek:POSITION  truncate:LENGTH  open:r|w|rw  close  hold
CALLS='
import errno, fcntl, os, signal, struct, sys
modes = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}
calls = {"setlk": fcntl.F_SETLK, "setlkw": fcntl.F_SETLKW, "osetlk": 37}
words = {"rd": fcntl.F_RDLCK, "wr": fcntl.F_WRLCK, "un": fcntl.F_UNLCK, "set": 0, "cur": 1, "end": 2}
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
for argument in sys.argv[2:]:
    word, *rest = argument.split(":")
    try:
        if word in calls:
            kind, whence = (words[w] if w in words else int(w) for w in rest[:2])
            fcntl.fcntl(fd, calls[word], struct.pack("hhqqi4x", kind, whence, int(rest[2]), int(rest[3]), 0))
        elif word == "seek":
            os.lseek(fd, int(rest[0]), os.SEEK_SET)
        elif word == "truncate":
            os.ftruncate(fd, int(rest[0]))
        elif word == "close":
            os.close(fd)
        elif word == "open":
            fd = os.open(sys.argv[1], modes[rest[0]])
        elif word == "hold":
            print("holding", flush=True)
            signal.pause()
        print("ok")
    except OSError as e:
        print(errno.errorcode[e.errno])
'

# holding HOST FILE ARGUMENT... - make calls on HOST and hold what they took; the answers are in $spawned_out
holding() {
	local host=$1 file=$2 status
	shift 2
	spawn "$host" "$PYTHON" -c "$CALLS" "$file" "$@" hold
	wait_until 20 contains "$spawned_out" holding
	status=$?
	assertEquals "$host holds: $(cat "$spawned_out" "$spawned_out.err")" 0 $status
}

# ---- ranges ----------------------------------------------------------------------------------------------------------

# The first host claims the whole file; when others come, each claim is down to what its host holds.
test_a_greedy_claim_shrinks() {
	actors shrink.lock a=alpha b=beta c=gamma
	expect a 'setlk 0 wr 0 1' ok
	pieces_are shrink.lock w=0-
	expect b 'setlk 0 wr 1 1' ok
	pieces_are shrink.lock 'w=0-0 w=1-1'
	expect c 'setlk 0 rd 10 5' ok
	pieces_are shrink.lock 'r=a-e w=0-0 w=1-1'
	expect a 'setlk 0 wr 1 1' EAGAIN
	expect b 'setlk 0 wr 0 2' EAGAIN
	expect b 'setlk 0 rd 10 1' ok
	expect c 'setlk 0 wr 12 1' ok
	expect b 'setlk 0 rd 12 1' EAGAIN
	expect a 'setlk 0 un 0 0' ok
	expect b 'setlk 0 wr 0 1' ok
	expect a 'setlk 0 rd 0 1' EAGAIN
}

# Blocking calls for bytes between the bytes of others: answered at once, none waits for a neighbour.
test_disjoint_ranges_never_wait() {
	local call name byte=0 shift
	actors disjoint.lock a=alpha b=beta c=gamma
	for call in setlkw osetlkw; do
		for byte in 0 1 2 3; do
			shift=0
			for name in a b c; do
				expect $name "$call 0 wr $((byte * 3 + shift)) 1" ok 2
				((++shift))
			done
		done
		expect a "${call%w} 0 wr 4 1" EAGAIN
		expect b "${call%w} 0 rd 11 1" EAGAIN
		expect c "${call%w} 0 wr 12 1" ok
		expect b "${call%w} 0 wr 11 2" EAGAIN
		for name in a b c; do expect $name "${call%w} 0 un 0 0" ok; done
	done
	# [0,100) [100,200) and all that follows; one byte more is refused on every side
	expect a 'setlkw 0 wr 0 100' ok 2
	expect b 'setlkw 0 wr 100 100' ok 2
	expect c 'setlkw 0 wr 200 0' ok 2
	expect a 'setlk 0 wr 0 101' EAGAIN
	expect b 'setlk 0 wr 99 101' EAGAIN
	expect b 'setlk 0 wr 100 101' EAGAIN
	expect c 'setlk 0 rd 199 0' EAGAIN
	pieces_are disjoint.lock 'w=0-63 w=64-c7 w=c8-'
}

# l_len 0: to the end of the file, however long it gets, up to byte 2^63-1
test_to_the_end_of_the_file() {
	actors end.lock a=alpha b=beta
	expect a 'setlk 0 wr 100 0' ok
	expect b 'setlk 0 wr 4611686018427387904 1' EAGAIN
	expect b 'setlk 0 rd 9223372036854775807 1' EAGAIN
	expect b 'setlk 0 wr 99 1' ok
	expect b 'setlk 0 wr 100 1' EAGAIN
	expect b 'setlk 0 wr 0 100' ok
	expect b 'setlk 0 wr 0 0' EAGAIN
	expect a 'setlk 0 un 200 100' ok
	expect b 'setlk 0 wr 200 100' ok
	expect b 'setlk 0 wr 300 1' EAGAIN
	expect a 'setlk 0 un 9223372036854775807 1' ok
	expect b 'setlk 0 wr 9223372036854775807 1' ok
	expect b 'setlk 0 wr 9223372036854775806 1' EAGAIN
	expect a 'setlk 0 wr 300 0' EAGAIN
	expect a 'setlk 0 wr 300 9223372036854775507' ok
	expect a 'setlk 0 wr 300 9223372036854775508' EAGAIN
}

# Negative lengths, SEEK_CUR and SEEK_END: whatever way the range is told, the other host meets the same bytes.
test_every_way_to_tell_a_range() {
	actor b beta
	expect b 'open 0 rw whence.lock' ok
	expect b 'setlk 0 wr 5000 1' ok # so that there is another host
	holding alpha whence.lock setlk:wr:set:10:-5 setlk:wr:set:3:-5 setlk:wr:set:3:-3 \
		seek:100 setlk:wr:cur:10:5 setlk:wr:cur:-10:5 setlk:wr:cur:-200:5 setlk:rd:cur:0:-1 \
		truncate:1000 setlk:wr:end:-10:-5 osetlk:wr:end:5:10 setlk:wr:end:-2000:1 setlk:wr:end:8223372036854774807:0
	assertEquals 'ok EINVAL ok ok ok ok EINVAL ok ok ok ok EINVAL ok holding' "$(paste -sd' ' "$spawned_out")"
	for byte in 0 2 5 9 90 94 110 114 985 989 1005 1014 8223372036854775807 9223372036854775807; do
		expect b "setlk 0 wr $byte 1" EAGAIN
		expect b "setlk 0 rd $byte 1" EAGAIN
	done
	expect b 'setlk 0 wr 99 1' EAGAIN
	expect b 'setlk 0 rd 99 1' ok
	for range in '3 2' '10 80' '95 4' '100 10' '115 870' '990 15' '1015 3985' '8223372036854775806 1'; do
		expect b "setlk 0 wr $range" ok
	done
}

# What the kernel refuses is refused, with its errno, and leaves nothing behind, here or at the server.
test_refused_for_its_own_sake() {
	local last=9223372036854775807
	actors refuse.lock a=alpha
	expect a 'setlk 0 wr 5000 1' ok
	assertEquals "$(printf '%s ' ok EOVERFLOW EOVERFLOW ok EOVERFLOW EINVAL EINVAL EINVAL EINVAL ok EOVERFLOW EAGAIN)" \
		"$(on beta "$PYTHON" -c "$CALLS" refuse.lock setlk:wr:set:$last:1 setlk:wr:set:$last:2 setlkw:wr:set:$last:2 \
			setlk:wr:set:$((last - 1)):2 setlk:wr:set:$((last - 1)):3 setlk:wr:set:-1:0 setlk:9:set:0:0 \
			setlk:wr:9:0:0 setlk:wr:set:-1:1 seek:$((last / 2 + 1)) setlk:wr:cur:$((last / 2 + 1)):1 setlk:rd:set:5000:0 | tr '\n' ' ')"
	assertEquals 'access modes' 'ok EBADF ok EBADF ok EBADF ok EBADF ok EBADF ok EBADF ' \
		"$(on beta "$PYTHON" -c "$CALLS" refuse.lock open:r setlk:wr:set:0:1 open:w setlk:rd:set:0:1 open:r \
			osetlk:wr:set:0:1 open:w osetlk:rd:set:0:1 open:r setlkw:wr:set:5000:1 close setlk:wr:set:0:1 | tr '\n' ' ')"
	expect a 'setlk 0 wr 0 0' ok
}

# Merging, splitting and converting in place, by process and by descriptor; the other host follows byte by byte.
test_splitting_and_converting() {
	local o
	actors split.lock a=alpha b=beta
	for o in '' o; do
		expect a "${o}setlk 0 wr 0 100" ok
		expect a "${o}setlk 0 un 40 20" ok
		expect b "${o}setlk 0 wr 40 20" ok
		expect b "${o}setlk 0 wr 39 1" EAGAIN
		expect b "${o}setlk 0 wr 60 1" EAGAIN
		pieces_are split.lock 'w=0-27,3c-63 w=28-3b'
		expect a "${o}setlk 0 rd 0 10" ok
		expect b "${o}setlk 0 rd 0 10" ok
		expect b "${o}setlk 0 wr 0 10" EAGAIN
		expect b "${o}setlk 0 rd 10 1" EAGAIN
		expect a "${o}setlk 0 wr 0 10" EAGAIN
		expect b "${o}setlk 0 un 0 10" ok
		expect a "${o}setlkw 0 wr 0 10" ok 2
		expect b "${o}setlk 0 rd 0 1" EAGAIN
		expect b "${o}setlk 0 un 0 0" ok
		expect a "${o}setlk 0 wr 30 40" ok # over the gap: one piece again
		expect b "${o}setlk 0 rd 45 1" EAGAIN
		expect a "${o}setlk 0 rd 0 0" ok
		expect b "${o}setlk 0 rd 0 0" ok
		expect a "${o}setlk 0 un 0 0" ok
		expect b "${o}setlkw 0 wr 0 0" ok 2
		expect b "${o}setlk 0 un 0 0" ok
	done
}

# A holder asks again for what it has, in every mode, while another host waits for it: never told to wait, never refused.
test_locking_again_under_recall() {
	local o
	for o in '' o; do
		actors "again$o.lock" a=alpha b=beta
		expect a "${o}setlk 0 wr 0 100" ok
		tell b "${o}setlkw 0 wr 5 1"
		pending b
		expect a "${o}setlkw 0 wr 0 100" ok 2
		expect a "${o}setlk 0 wr 5 1" ok 2
		expect a "again 50 ${o}setlkw 0 wr 0 100" ok
		expect a "${o}setlkw 0 rd 5 1" ok 2
		pending b
		expect a "${o}setlkw 0 wr 5 1" ok 2
		expect a "${o}setlk 0 rd 0 100" ok 2
		expect a "${o}setlk 0 wr 0 100" ok 2
		expect a "${o}setlk 0 un 50 10" ok
		expect a "${o}setlk 0 wr 50 10" ok 2
		pending b
		expect a "${o}setlk 0 un 5 1" ok
		expect_answer b ok 2
		expect a "${o}setlk 0 wr 5 1" EAGAIN
		expect a "${o}setlk 0 wr 4 1" ok
	done
}

# case A11: close() of any descriptor of the file drops the process's record locks, for the other host too; those of an
# open file description stay.
test_closing_any_descriptor() {
	local way
	actors close.lock a=alpha b=beta
	on alpha ln -f close.lock close.link
	for way in 'dup 0 1' 'open 1 r close.lock' 'open 1 w close.lock' 'open 1 r close.link' 'reopen 0 1' 'open 1 path close.lock'; do
		expect a 'setlk 0 wr 0 10' ok
		expect a 'osetlk 0 wr 20 10' ok
		expect b 'setlk 0 wr 5 1' EAGAIN
		expect a "$way" ok
		expect b 'setlk 0 wr 5 1' EAGAIN
		expect a 'close 1' ok
		if [[ $way == *path* ]]; then
			expect b 'setlk 0 wr 5 1' EAGAIN
		else
			tell b 'setlkw 0 wr 0 10'
			expect_answer b ok 2 "$way"
		fi
		expect b 'setlk 0 wr 25 1' EAGAIN
		expect a 'osetlk 0 un 0 0' ok
		expect a 'setlk 0 un 0 0' ok
		expect b 'setlk 0 un 0 0' ok
	done
}

# ---- overtaking ------------------------------------------------------------------------------------------------------

# The kernel's rule: who waits keeps nobody out.  A strict queue would make the second call of this a wait for b, who
# waits for a: a deadlock that is none.
#
#     a  holds 1        b  waits for the whole file        a, a2 of the same host, c of a third: byte 2
test_a_waiter_keeps_nobody_out() {
	actors overtake.lock a=alpha a2=alpha b=beta c=gamma
	expect a 'setlk 0 wr 1 1' ok
	tell b 'setlkw 0 wr 0 0'
	pending b
	expect a 'setlkw 0 wr 3 1' ok 2
	expect a2 'setlkw 0 wr 2 1' ok 2
	expect c 'setlk 0 wr 2 1' EAGAIN
	expect c 'setlk 0 wr 4 1' ok 2
	expect a2 'setlk 0 un 0 0' ok
	expect c 'setlk 0 wr 2 1' ok 2
	expect a 'setlk 0 wr 2 1' EAGAIN
	expect c 'setlkw 0 wr 5 1' ok 2 # it holds already
	pending b
	expect a 'setlk 0 un 0 0' ok
	pending b
	expect c 'setlk 0 un 0 0' ok
	expect_answer b ok 3
	expect a 'setlk 0 wr 1 1' EAGAIN
	expect c 'setlk 0 rd 100 1' EAGAIN
	pieces_are overtake.lock w=0-
}

# The same by turns: those who hold go on taking and giving, however long the queue behind them is.
test_holders_go_on_while_others_wait() {
	local i
	actors turns.lock a=alpha b=beta b2=beta c=gamma
	expect a 'setlk 0 wr 0 1' ok
	expect c 'setlk 0 wr 100 1' ok
	tell b 'setlkw 0 wr 0 50'
	tell b2 'setlkw 0 rd 50 0'
	pending b
	for i in 1 2 3 4 5; do
		expect a "setlkw 0 wr $i 1" ok 2
		expect c "setlkw 0 wr $((100 + i)) 1" ok 2
		expect c "setlkw 0 wr $((i + 10)) 1" ok 2
		expect a "setlk 0 wr $((i + 10)) 1" EAGAIN
		expect c "setlk 0 un $((i + 10)) 1" ok
	done
	expect a 'setlk 0 un 0 0' ok
	expect_answer b ok 3
	pending b2
	expect c 'setlk 0 un 0 0' ok
	expect_answer b2 ok 3
}

# What p holds of bytes 0 to 9 while it asks for all of them: 1 to write, 3 to read, and nothing else.
still_holds_what_it_held() {
	expect h "${1}setlk 0 wr 1 1" EAGAIN
	expect h "${1}setlk 0 wr 3 1" EAGAIN
	expect h "${1}setlk 0 rd 3 1" ok 2
	expect h "${1}setlk 0 un 3 1" ok
	expect q "${1}setlk 0 rd 1 1" EAGAIN
	expect q "${1}setlk 0 wr 3 1" EAGAIN
	expect q "${1}setlk 0 rd 3 1" ok 2
	expect q "${1}setlk 0 wr 9 1" ok 2
	expect q "${1}setlk 0 wr 0 1" ok 2
	expect q "${1}setlk 0 un 0 0" ok
}

# A call waits inside its host's kernel, gets the lock there, and finds that another host has taken a part of it meanwhile
# (which one kernel would have let it, too): it waits on without, and its owner has all that it had before, until the end.
test_a_call_that_comes_to_nothing_changes_nothing() {
	local ofd
	for ofd in '' o; do
		actors "undo$ofd.lock" p=alpha q=alpha h=beta
		expect p "${ofd}setlk 0 wr 1 1" ok
		expect p "${ofd}setlk 0 rd 3 1" ok
		expect q "${ofd}setlk 0 wr 5 1" ok
		expect h "${ofd}setlk 0 wr 20 1" ok
		expect p 'alarm 3600000 norestart' ok
		tell p "${ofd}setlkw 0 wr 0 10"
		pending p
		expect h "${ofd}setlk 0 wr 7 1" ok 2
		expect h "${ofd}setlk 0 wr 5 1" EAGAIN
		expect q "${ofd}setlk 0 un 5 1" ok
		pending p
		still_holds_what_it_held "$ofd"
		kill -ALRM "$(actor_of p)"
		expect_answer p EINTR 2
		still_holds_what_it_held "$ofd"
		tell p "${ofd}setlkw 0 wr 0 10"
		pending p
		expect h "${ofd}setlk 0 un 0 0" ok
		expect_answer p ok 2
		expect h "${ofd}setlk 0 rd 0 1" EAGAIN
		expect h "${ofd}setlk 0 rd 9 1" EAGAIN
	done
}

# A writer that waits behind a reader of its own host keeps no reader of another host out: who does not wait, or holds
# already, is answered as by one kernel.  Were it not so, the last call of this would wait for itself:
#
#     p1 of alpha  reads 0                    p2 of alpha  waits, in the kernel, to write 0
#     b  of beta   reads 5, asks to read 0    p1           waits to write 5
test_a_local_writer_that_waits_keeps_no_reader_out() {
	local before
	for before in rd wr; do # with cover to read, and with cover to write that the host has from before
		actors local.$before p1=alpha p2=alpha b=beta c=gamma
		expect b 'setlk 0 rd 5 1' ok
		expect p1 "setlk 0 $before 0 1" ok
		expect p1 'setlk 0 rd 0 1' ok
		tell p2 'setlkw 0 wr 0 1'
		pending p2
		tell p1 'setlkw 0 wr 5 1'
		pending p1
		expect b 'setlkw 0 rd 0 1' ok 2
		expect c 'getlk 0 rd 0 1' free
		expect c 'setlk 0 rd 0 1' ok 2
		expect c 'setlk 0 un 0 0' ok
		expect b 'setlk 0 un 0 0' ok
		expect_answer p1 ok 2
		expect p1 'setlk 0 un 0 0' ok
		expect_answer p2 ok 2
	done
}

# Two waiters for different bytes of one holder: each gets its turn, none waits for the other.
test_waiters_for_different_bytes() {
	actors waiters.lock a=alpha b=beta c=gamma
	expect a 'setlk 0 wr 0 10' ok
	tell b 'setlkw 0 wr 0 1'
	pending b
	tell c 'setlkw 0 wr 9 1'
	pending c
	expect a 'setlk 0 un 9 1' ok
	expect_answer c ok 2
	pending b
	expect a 'setlk 0 un 0 1' ok
	expect_answer b ok 2
	expect a 'setlk 0 wr 0 10' EAGAIN
}

# ---- who holds? ------------------------------------------------------------------------------------------------------

# F_GETLK tells of locks that are held, as they are held, and not of cover that is merely kept.
test_getlk_tells_what_is_held() {
	local pid
	actors getlk.lock a=alpha b=beta
	pid=$(remote "${ACTORS[a]}")
	expect a 'setlk 0 wr 10 5' ok
	expect a 'setlk 0 rd 20 5' ok
	expect a 'setlk 0 rd 1000 0' ok
	expect b 'getlk 0 wr 0 0' "wr 10 5 $pid"
	expect b 'getlk 0 rd 12 1' "wr 10 5 $pid"
	expect b 'getlk 0 wr 20 5' "rd 20 5 $pid"
	expect b 'getlk 0 rd 20 5' free
	expect b 'getlk 0 wr 15 5' free
	expect b 'getlk 0 wr 2000 10' "rd 1000 0 $pid"
	expect b 'ogetlk 0 wr 0 0' "wr 10 5 $pid"
	expect b 'ogetlk 0 rd 1000 0' free
	expect b 'lockf 0 test 10' ok
	expect b 'lockf 0 test 11' EACCES
	# it asks, and takes nothing
	expect a 'setlk 0 wr 0 0' ok
	expect b 'getlk 0 rd 500 1' "wr 0 0 $pid"
	expect a 'setlk 0 un 0 0' ok
	expect b 'getlk 0 wr 0 0' free
	expect b 'ogetlk 0 wr 0 0' free
	expect a 'setlk 0 wr 7 1' ok
	expect b 'getlk 0 wr 0 7' free
	expect b 'getlk 0 wr 8 0' free
	expect b 'getlk 0 wr 0 0' "wr 7 1 $pid"
}

# The holder of an OFD lock has no pid: -1
test_getlk_of_an_ofd_lock() {
	actors ogetlk.lock a=alpha b=beta
	expect a 'osetlk 0 wr 30 5' ok
	expect b 'getlk 0 wr 30 1' 'wr 30 5 -1'
	expect b 'ogetlk 0 rd 34 1' 'wr 30 5 -1'
	expect b 'getlk 0 wr 35 1' free
	expect a 'osetlk 0 rd 30 5' ok
	expect b 'ogetlk 0 wr 0 0' 'rd 30 5 -1'
	expect b 'ogetlk 0 rd 0 0' free
	expect a 'osetlk 0 un 0 0' ok
	expect b 'getlk 0 wr 0 0' free
}

# Somebody waits, nobody holds what is asked for: free, as in the kernel.
test_getlk_does_not_tell_of_waiters() {
	local pid
	actors getwait.lock a=alpha b=beta c=gamma
	pid=$(remote "${ACTORS[a]}")
	expect a 'setlk 0 wr 0 1' ok
	tell b 'setlkw 0 wr 0 0'
	pending b
	expect c 'getlk 0 wr 5 1' free
	expect c 'getlk 0 wr 0 0' "wr 0 1 $pid"
	expect a 'getlk 0 wr 5 1' free
}

# ---- fairness --------------------------------------------------------------------------------------------------------

STREAM='
import fcntl, os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
while True:
    byte = random.randrange(8)
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, byte)
    os.write(1, b"x")
    time.sleep(0.05)
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)
'

# A request for the whole file under a stream of small locks, of which there are always some: it gets its turn, and the
# stream goes on after it.
test_small_locks_do_not_starve_a_large_one() {
	cluster || { skip 'the kernel does starve it'; return; }
	local host before outs=() sum_before sum
	[ -d "$T/gamma" ] || host gamma
	for host in alpha beta alpha beta alpha beta; do
		spawn $host "$PYTHON" -c "$STREAM" stream.lock
		outs+=("$spawned_out")
	done
	for out in "${outs[@]}"; do assertTrue 'all run' "wait_until 10 test -s $out"; done
	assertEquals 'the stream is in the way' busy "$(try gamma stream.lock -k posix)"
	before=$(now_ms)
	for _ in 1 2; do
		assertEquals "after $(($(now_ms) - before)) ms" granted "$(wait_for gamma stream.lock 15 -k posix)"
	done
	echo "two turns took $(($(now_ms) - before)) ms"
	sum_before=$(cat "${outs[@]}" | wc -c)
	wait_until 5 more_than "$((sum_before + 50))" "${outs[@]}"
	sum=$(cat "${outs[@]}" | wc -c)
	assertTrue "the stream goes on: $sum_before, then $sum" "[ $sum -gt $((sum_before + 50)) ]"
}
more_than() {
	local sum=$1
	shift
	[ "$(cat "$@" | wc -c)" -gt "$sum" ]
}

. shunit2

#!/bin/bash
# tests/93_security_test.sh - who may do what: in ZooKeeper, at the keeper's socket, with the keeper's own powers
# modes: cluster
# limit: 300
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

oneTimeSetUp() {
	zk_start || return 1
	mkdir "$T/secrets"
	secret good 'cluster:s3cret word'
	host alpha 'connect_timeout 1s' "credentials $T/secrets/good"
	host beta 'connect_timeout 1s' "credentials $T/secrets/good"
}

# secret NAME LINE [MODE] - a file of credentials
secret() {
	printf '%s\n' "$2" >"$T/secrets/$1"
	chmod "${3:-600}" "$T/secrets/$1"
}

# keeper HOST - run its keeper in the foreground, which must end by itself; prints its last line
keeper() {
	timeout 10 env "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" "$BUILD/zkflockd" </dev/null 2>&1 | tail -n 1
	return "${PIPESTATUS[0]}"
}

# ---- ZooKeeper: credentials ------------------------------------------------------------------------------------------

# acl PATH - as the server tells those who may know
acl() { ZKCAT_AUTH='cluster:s3cret word' zkcat acl "$1"; }

test_every_node_belongs_to_the_credentials() {
	local id node queue=/zkflock/locks/s%2Fown.lock
	id=digest:cluster:$(printf 'cluster:s3cret word' | openssl dgst -sha1 -binary | base64):31
	hold alpha own.lock || { fail 'alpha got no lock'; return; }
	hold alpha own2.lock -k posix || { fail 'alpha got no record lock'; return; }
	for node in /zkflock /zkflock/hosts /zkflock/locks "$queue" "$queue/$(ZKCAT_AUTH='cluster:s3cret word' zkcat ls $queue)" \
		/zkflock/records/s%2Fown2.lock "/zkflock/hosts/$(ZKCAT_AUTH='cluster:s3cret word' zkcat ls /zkflock/hosts | head -n 1)"; do
		assertEquals "$node" "$id" "$(acl "$node")"
	done
	assertEquals 'excludes beta' busy "$(try beta own.lock)"
	assertContains 'a stranger may not look' "$(zkcat ls /zkflock/locks 2>&1)" 'not authenticated'
	assertContains 'a stranger may not take' "$(zkcat ephemeral $queue/__lock__0000000000 2>&1)" 'not authenticated'
	assertContains 'a stranger may not break' "$(zkcat delete $queue 2>&1)" 'not authenticated'
	assertContains 'the wrong password is a stranger' "$(ZKCAT_AUTH=cluster:other zkcat ls /zkflock/locks 2>&1)" 'not authenticated'
	assertEquals 'no secret in the logs' '' "$(grep -l 's3cret' "$T"/*/run/log)"
}

# A keeper that follows says again who it is, before anything else.
test_a_keeper_that_follows_has_the_credentials() {
	local pid
	hold alpha follow.lock || { fail 'alpha got no lock'; return; }
	pid=$(keeper_pid alpha)
	kill -KILL "$pid"
	wait_until 5 gone "$pid"
	assertEquals 'another file' granted "$(wait_for alpha follow2.lock 10)"
	assertEquals 'the same lock' busy "$(try beta follow.lock)"
	end "$holder"
	assertEquals 'free' granted "$(wait_for beta follow.lock 5)"
}

test_a_keeper_without_the_credentials_says_so() {
	local line='not authorised by the node'"'"'s ACL'
	secret other 'cluster:another'
	assertEquals 'with them' granted "$(try alpha strange.lock)"
	host none 'connect_timeout 1s'
	host wrong 'connect_timeout 1s' "credentials $T/secrets/other"
	assertEquals 'none' ENOLCK "$(try none strange.lock 2>"$T/out.none")"
	assertContains "$(cat "$T/out.none")" "$line, and no credentials are set"
	assertEquals 'wrong' ENOLCK "$(try wrong strange.lock 2>"$T/out.wrong")"
	assertContains "$(cat "$T/out.wrong")" "$line: it was made with other credentials than ours"
	assertTrue 'logged once' "[ $(grep -c 'session refused' "$T/none/run/log") = 1 ]"
	# There is nothing to make the others in: it is told of the first one, which could not be made.
	ZK_ROOT=/zkflock/below host below 'connect_timeout 1s'
	assertEquals 'below' ENOLCK "$(try below strange.lock 2>"$T/out.below")"
	assertContains "$(cat "$T/out.below")" "ZooKeeper refuses to make /zkflock/below: $line, and no credentials are set"
}

# Nodes of the time before stay everybody's.  Between hosts that have credentials and hosts that have none yet nobody gets
# what he must not have: who can't read what is in his way has an error.
test_open_nodes_stay_open_and_nobody_shares_by_it() {
	local ZK_ROOT=/mixed queue claim
	host before 'connect_timeout 1s'
	host after 'connect_timeout 1s' "credentials $T/secrets/good"
	assertEquals 'before' granted "$(try before mixed.lock)"
	assertEquals world:anyone:31 "$(acl /mixed/locks)"
	hold after mixed.lock || { fail 'after got no lock'; return; }
	assertNotEquals 'held by one with credentials' granted "$(try before mixed.lock 2>"$T/out.mixed")"
	assertNotEquals 'blocking' granted "$(wait_for before mixed.lock 1 2>/dev/null)"
	queue=/mixed/locks/s%2Fmixed.lock
	assertEquals 'its queue is still everybody'"'"'s' world:anyone:31 "$(acl $queue)"
	assertEquals 'its claim is its own' 1 "$(for claim in $(zkcat ls $queue); do acl "$queue/$claim"; done | grep -c ^digest:cluster:)"
	end "$holder"
	assertEquals 'free' granted "$(wait_for before mixed.lock 10)"
	hold before mixed.lock || { fail 'before got no lock'; return; }
	assertEquals 'held by one without' busy "$(try after mixed.lock)"
}

test_credentials_that_others_can_have_are_refused() {
	local uid=65534
	host refused 'connect_timeout 1s' "credentials $T/secrets/x"
	rm -f "$T/secrets/x"
	assertContains 'missing' "$(keeper refused)" "credentials $T/secrets/x: No such file"
	secret x user:password 640
	assertContains 'mode' "$(keeper refused)" "credentials $T/secrets/x: others may use it; allowed is mode 0600"
	keeper refused >/dev/null
	assertEquals 'status' 3 $?
	assertEquals 'a lock meanwhile' ENOLCK "$(try refused job.lock 2>"$T/out.x")"
	assertContains 'and why' "$(cat "$T/out.x")" 'others may use it'
	rm "$T/secrets/x"
	mkfifo -m 600 "$T/secrets/x"
	assertContains 'a fifo' "$(keeper refused)" 'no regular file'
	rm "$T/secrets/x"
	for text in 'user' ':password' 'user:' $'user:a\nuser:b' ''; do
		secret x "$text"
		assertContains "'$text'" "$(keeper refused)" 'it must be one line'
	done
	secret x "user:$(printf 'x%.0s' {1..600})"
	assertContains 'long' "$(keeper refused)" 'too long'
	secret x user:password 400
	if [ "$(id -u)" = 0 ]; then
		chown $uid "$T/secrets/x"
		assertContains 'owner' "$(keeper refused)" 'must belong to root or'
	fi
}

# A reload says that it takes a restart.
test_a_change_of_credentials_needs_a_restart() {
	assertEquals granted "$(try alpha reload.lock)"
	sed -i "s:secrets/good:secrets/other:" "$T/alpha/zkflock.conf"
	assertContains 'told' "$(on alpha env LD_PRELOAD= "$BUILD/zkflock" reload 2>&1)" 'credentials is changed, and needs a restart'
	sed -i "s:secrets/other:secrets/good:" "$T/alpha/zkflock.conf"
	assertEquals 'as before' '' "$(on alpha env LD_PRELOAD= "$BUILD/zkflock" reload 2>&1 | grep restart)"
	assertEquals granted "$(try alpha reload2.lock)"
}

# ---- one keeper for everybody ----------------------------------------------------------------------------------------

# shared_host NAME [LINE...] - a host with a keeper of root's that other users reach; its s has a directory of NOBODY's
NOBODY=65534 OTHER=1
shared_host() {
	local name=$1
	host "$@" "credentials $T/secrets/good"
	chmod 711 "$T" "$T/$name"
	chmod 755 "$T/$name/run" "$T/$name/s"
	mkdir -p "$T/bin"
	[ -e "$T/bin/lock" ] || cp "$BUILD/libzkflock.so" "$BUILD/zkflock" "$PROBES/lock" "$PROBES/hostile" "$T/bin"
	mkdir -m 700 "$T/$name/s/private"
	chown $NOBODY "$T/$name/s/private"
	assertEquals "the keeper of $name" granted "$(ZKFLOCK_TEST_LOG=info try "$name" first.lock)"
}

# as UID HOST - sets AS: the words before a command that make it run as that user on HOST
as() {
	local HOST_ENV
	host_env "$2"
	AS=(timeout 30 setpriv "--reuid=$1" "--regid=$1" --clear-groups "${HOST_ENV[@]/$BUILD/$T/bin}")
}

# Needs all of the capabilities that are left: reopening a file of mode 0600 in a directory of mode 0700, looking for an
# unlinked one among another user's descriptors, and killing who has lost his lock.
test_the_keeper_has_no_power_that_it_does_not_need() {
	local pid guard claim queue=/zkflock/locks/s%2Fprivate%2Fgone.lock
	[ "$(id -u)" = 0 ] || { skip 'not root'; return; }
	shared_host powers
	pid=$(keeper_pid powers)
	guard=$(ps -o ppid= -p "$pid" | tr -d ' ')
	for pid in "$pid" "$guard"; do
		assertEquals 'capabilities' "$(printf 'CapInh:0\nCapPrm:80024\nCapEff:80024\nCapBnd:80024\nCapAmb:0\nNoNewPrivs:1')" \
			"$(sed -nE 's/^(Cap...|NoNewPrivs):\t0*([0-9a-f]+)$/\1:\2/p' "/proc/$pid/status")"
	done
	as $NOBODY powers
	"${AS[@]}" "$T/bin/lock" -w -h private/gone.lock >"$T/out.gone" 2>&1 &
	wait_until 10 contains "$T/out.gone" granted
	assertEquals 'reopened' granted "$(cat "$T/out.gone")"
	chmod 600 "$T/powers/s/private/gone.lock"
	rm "$T/powers/s/private/gone.lock"
	pid=$(keeper_pid powers)
	kill -KILL "$pid"
	wait_until 5 gone "$pid"
	assertEquals 'another keeper' granted "$(try powers second.lock)"
	mkdir "$T/alpha/s/private"
	assertEquals 'it has found the unlinked file' busy "$(try alpha private/gone.lock)"
	assertEquals 'and says so' "held" "$("${AS[@]}" "$T/bin/zkflock" list -n -o LOCK,STATE | awk '/gone.lock/ { print $2 }')"
	claim=$(ZKCAT_AUTH='cluster:s3cret word' zkcat ls $queue)
	ZKCAT_AUTH='cluster:s3cret word' zkcat delete "$queue/$claim"
	assertTrue "killed: $(cat "$T/powers/run/log")" "wait_until 10 grep -q 'action=SIGKILL error=0' '$T/powers/run/log'"
	wait_until 5 granted_is alpha private/gone.lock
	assertEquals 'and over' 0 $?
}
granted_is() { [ "$(try "$@")" = granted ]; }

test_files_of_the_keeper_are_its_own() {
	local file modes=
	[ "$(id -u)" = 0 ] || { skip 'not root'; return; }
	shared_host modes
	hold modes kept.lock || fail 'not granted'
	for file in session files lock socket page pid log; do
		modes+="$file $(stat -c %a "$T/modes/run/$file") "
	done
	assertEquals 'for everybody' 'session 600 files 600 lock 600 socket 666 page 644 pid 644 log 640 ' "$modes"
	assertEquals 'nothing else is for others' '' "$(find "$T/modes/run" -perm /022 ! -name socket)"
	modes=
	for file in session socket page; do
		modes+="$file $(stat -c %a "$T/modes/run/$file") "
	done
	assertEquals 'no password in the log' '' "$(grep -F "$(cut -d ' ' -f 2 "$T/modes/run/session")" "$T/modes/run/log")"
}

test_a_user_sees_what_is_his() {
	[ "$(id -u)" = 0 ] || { skip 'not root'; return; }
	shared_host views
	chmod 777 "$T/views/s"
	as $NOBODY views
	"${AS[@]}" "$T/bin/lock" -w -h mine.lock >"$T/out.mine" 2>&1 &
	hold views theirs.lock || fail 'root got no lock'
	assertTrue 'nobody got a lock' "wait_until 10 contains '$T/out.mine' granted"
	views() { "$@" "$T/bin/zkflock" list -n -o LOCK,COMMAND,PATH | awk '/mine|theirs/ { sub(/.*\//, "", $1); print $1, $2, $3 }' | sort; }
	assertEquals 'nobody' $'mine.lock lock '"$T/views/s/mine.lock"$'\ntheirs.lock - -' "$(views "${AS[@]}")"
	as $OTHER views
	assertEquals 'somebody else' $'mine.lock - -\ntheirs.lock - -' "$(views "${AS[@]}")"
	as 0 views
	assertEquals 'root' $'mine.lock lock '"$T/views/s/mine.lock"$'\ntheirs.lock lock '"$T/views/s/theirs.lock" "$(views "${AS[@]}")"
}

# One user with all the connections and locks that he can get; the others notice nothing.
test_a_user_has_a_limit_and_others_do_not_notice() {
	local i pids=()
	[ "$(id -u)" = 0 ] || { skip 'not root'; return; }
	shared_host crowded 'user_connections 16' 'user_locks 16'
	chmod 777 "$T/crowded/s"
	as $NOBODY crowded
	"${AS[@]}" "$T/bin/hostile" "$T/crowded/run/socket" own.lock waiting 20 >"$T/out.waiting" 2>&1 &
	assertTrue 'connected' "wait_until 10 contains '$T/out.waiting' 'refused 4 of 20'"
	assertEquals 'one more' ENOLCK "$("${AS[@]}" "$T/bin/lock" more.lock 2>"$T/out.more")"
	assertContains 'and why' "$(cat "$T/out.more")" "uid $NOBODY has 16 connections, and user_connections allows no more"
	as $OTHER crowded
	assertEquals 'another user' granted "$("${AS[@]}" "$T/bin/lock" another.lock)"
	assertEquals 'root' granted "$(try crowded root.lock)"
	assertEquals 'said once' 1 "$(grep -c 'server limit uid=65534 user_connections=16' "$T/crowded/run/log")"
	kill $! # timeout(1), which passes it on
	as $NOBODY crowded
	wait_until 10 user_granted n.lock
	assertEquals 'when they are gone' 0 $?
	# Who says nothing makes room for his own next ones.
	"${AS[@]}" "$T/bin/hostile" "$T/crowded/run/socket" own.lock silent 20 >"$T/out.silent" 2>&1 &
	wait_until 10 contains "$T/out.silent" 'connected 20'
	assertEquals 'beside his own silent ones' granted "$("${AS[@]}" "$T/bin/lock" n2.lock)"
	kill $!
	# Locks: kept ones are given back to make room, held ones are not.
	for i in {1..40}; do "${AS[@]}" "$T/bin/lock" "once.$i.lock"; done >"$T/out.once" 2>&1
	assertEquals 'one after the other' '40 granted' "$(sort "$T/out.once" | uniq -c | sed 's/^ *//')"
	"${AS[@]}" "$PYTHON" -c '
import fcntl, os, sys
held = []
for i in range(40):
    f = open(f"many.{i}.lock", "w")
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(f)
    except OSError as e:
        sys.exit(f"{len(held) <= 16 and len(held) > 8} {e.errno}")
print(len(held))' >"$T/out.many" 2>&1
	assertEquals 'ENOLCK at the limit' 'True 37' "$(tail -n 1 "$T/out.many")"
	assertContains 'and why' "$(cat "$T/out.many")" 'user_locks allows no more'
	as $OTHER crowded
	assertEquals 'another user' granted "$("${AS[@]}" "$T/bin/lock" another2.lock)"
}
user_granted() { [ "$("${AS[@]}" "$T/bin/lock" "$1" 2>/dev/null)" = granted ]; }

# Out of descriptors: it waits for better times instead of turning in circles, and says so once.
test_a_keeper_without_descriptors_rests() {
	local pid before after busy asking
	host poor 'connect_timeout 1s' "credentials $T/secrets/good"
	env "ZKFLOCK_CONF=$T/poor/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/poor/run" \
		prlimit --nofile=64:64 "$BUILD/zkflockd" 2>"$T/poor/run/log" </dev/null &
	wait_until 10 keeper_pid poor >/dev/null
	assertEquals granted "$(wait_for poor a.lock 10)"
	pid=$(keeper_pid poor)
	# They ask how it is and stay: no descriptor comes with that, so the last one is taken by them, and the others stay at the
	# door.
	"$PYTHON" - "$T/poor/run/socket" "$(sed -n 's/^#define ZKF_WIRE_MAGIC \(0x[0-9a-f]*\)u.*/\1/p' "$TESTS/../keeper/wire.h")" \
		>"$T/out.asking" 2>&1 <<-'END' &
		import socket, struct, sys, time
		asking = []
		for i in range(80):
		    asking.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
		    asking[-1].connect(sys.argv[1])
		    asking[-1].send(struct.pack('=IBBBBiiqqQQ', int(sys.argv[2], 16), 10, 0, 0, 0, 0, -1, 0, 0, 0, 0))
		time.sleep(60)
	END
	asking=$!
	assertTrue 'said' "wait_until 10 grep -q 'server accept error=\"Too many open files\"' '$T/poor/run/log'"
	# Beside a process that does turn in circles: how much that gets depends on what else the machine has to do.
	bash -c 'while :; do :; done' &
	busy=$!
	before=$(ticks_of "$pid")
	sleep 2 # time is the subject
	after=$(ticks_of "$pid")
	assertTrue "ticks in 2 s: $((after - before)), of a busy process $(ticks_of $busy)" \
		"[ $((after - before)) -lt $(($(ticks_of $busy) / 4 + 2)) ]"
	end "$busy"
	assertEquals 'once' 1 "$(grep -c 'server accept' "$T/poor/run/log")"
	kill "$asking"
	assertEquals 'afterwards' granted "$(wait_for poor b.lock 10)"
}

ticks_of() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

# A user's own mount namespace shows him, and the keeper, any path that he likes.
test_a_path_that_a_user_has_made_up() {
	local made=(unshare -Urm sh -c)
	[ "$(id -u)" = 0 ] || { skip 'not root'; return; }
	shared_host paths
	as $NOBODY paths
	"${AS[@]}" unshare -Urm true 2>/dev/null || { skip 'no user namespaces for users'; return; }
	chmod 700 "$T/paths/s"
	assertEquals 'he can not open it' '' "$("${AS[@]}" -C / cat "$T/paths/s/first.lock" 2>/dev/null)"
	chmod 755 "$T/paths/s"
	assertContains 'a file of his own in its place' "$("${AS[@]}" "${made[@]}" "mount -t tmpfs none $T/paths/s/private &&
		exec $T/bin/hostile $T/paths/run/socket $T/paths/s/private/made-up.lock ask")" 'a mount namespace that a user has made'
	assertEquals 'nothing was taken' 0 "$(ZKCAT_AUTH='cluster:s3cret word' zkcat count /zkflock/locks/s%2Fprivate%2Fmade-up.lock)"
	assertEquals 'a file that is the same for all' covered \
		"$("${AS[@]}" "${made[@]}" "exec $T/bin/hostile $T/paths/run/socket $T/paths/s/private/real.lock ask")"
	assertEquals 'a namespace of root'"'"'s' granted "$(unshare -m sh -c 'mount -t tmpfs -o mode=777 none '"$T/paths/s/private"' &&
		"$@"' sh "${AS[@]}" "$T/bin/lock" private/service.lock)"
}

# ---- the environment of a program that gains privileges --------------------------------------------------------------

# capable NUMBER - have we that capability?
capable() { [ $((0x$(sed -n 's/^CapEff:\t//p' /proc/$$/status) >> $1 & 1)) = 1 ]; }

# setuid_dir - a directory from which a set-user-ID program gains something; 1: there is none
setuid_dir() {
	local try
	for try in "$T" /tmp /var/tmp; do
		case ,$(findmnt -nro OPTIONS -T "$try"), in *,nosuid,*) continue ;; esac
		S=$(mktemp -d "$try/zkflock-setuid.XXXXXX") && chmod 755 "$S" && return 0
	done
	return 1
}

# The loader ignores LD_PRELOAD there, so the program is linked with the library.
test_a_program_that_gains_privileges_believes_no_environment() {
	local S evil plain secure
	[ "$(id -u)" = 0 ] || { skip 'not root'; return; }
	chmod 711 "$T"
	setuid_dir || { skip 'every file system is mounted nosuid'; return; }
	cp "$BUILD/libzkflock.so" "$S"
	"${CC:-cc}" -o "$S/plain" "$TESTS/probes/lock.c" -Wl,--no-as-needed,-rpath,"$S" "$S/libzkflock.so" -pthread || fail 'not linked'
	cp "$S/plain" "$S/secure"
	chown 1 "$S/secure"
	chmod 4755 "$S/secure"
	install -m 666 /dev/null "$S/file"
	evil=(-E "ZKFLOCK_CONF=$T/evil.conf" -E "ZKFLOCK_RUNTIME_DIR=$T/evil" -E "XDG_RUNTIME_DIR=$T/evil" -E ZKFLOCK_LOG=error)
	for i in plain secure; do
		timeout 20 strace -f -o "$S/$i.trace" -s 200 -u nobody "${evil[@]}" "$S/$i" "$S/file" >"$S/$i.out" 2>&1
	done
	plain=$(grep -c "$T/evil" "$S/plain.trace")
	secure=$(grep -v execve "$S/secure.trace" | grep -c "$T/evil")
	assertTrue "an ordinary one does ($plain)" "[ $plain -gt 0 ]"
	assertEquals 'one that gains privileges does not' 0 "$secure"
	assertTrue 'but goes by the system'"'"'s' "grep -q '\"/etc/zkflock.conf\"' '$S/secure.trace'"
	assertEquals 'nor does it say anything' '' "$(grep zkflock: "$S/secure.out")"
	rm -r "$S"
}

# A keeper that such a program starts is not its caller's to stop, nor is it ended by his limits.
test_a_keeper_that_gains_privileges_is_nobody_elses() {
	local guard keeper limits=()
	[ "$(id -u)" = 0 ] || { skip 'not root'; return; }
	capable 24 && limits=(prlimit --fsize=0 --cpu=100)
	host gains "credentials $T/secrets/good"
	unshare -m sh -c 'mount -t tmpfs none /run && cp "$0" /run/conf && mount -t tmpfs none /etc && mv /run/conf /etc/zkflock.conf &&
		exec "$@"' "$T/gains/zkflock.conf" "${limits[@]}" setpriv --ruid 65534 --euid 0 "$BUILD/zkflockd" \
		</dev/null >"$T/out.gains" 2>&1 &
	guard=$!
	assertTrue "started: $(cat "$T/out.gains")" "wait_until 10 [ -s /proc/$guard/root/run/zkflock/session ]"
	keeper=$(cat "/proc/$guard/root/run/zkflock/pid")
	assertEquals 'its user' $'Uid:\t0\t0\t0\t0' "$(grep Uid: "/proc/$keeper/status")"
	[ ${#limits[@]} = 0 ] || assertEquals 'its limits' 2 "$(grep -cE '^Max (cpu time|file size) +unlimited' "/proc/$keeper/limits")"
	kill "$guard"
	assertTrue 'it ends' "wait_until 5 gone $guard"
}

# ---- TLS -------------------------------------------------------------------------------------------------------------

# recipe WORDS - the example of zkflockd(8), TLS, whose first line has these WORDS
recipe() {
	sed 's/\\-/-/g' "$TESTS/../man/zkflockd.8" |
		awk -v word="$1" '/^\.SS/ { tls = /^\.SS TLS/ } /^\.E[XE]/ { first = /^\.EX/; found = 0; next }
			tls && first { found = $0 ~ word; first = 0 } found'
}

# The recipe of zkflockd(8): stunnel before the server and on the host.
test_a_session_through_tls() {
	local i tls=$((RANDOM % 9000 + 31000)) near=$((RANDOM % 9000 + 41000)) stunnels=()
	command -v stunnel >/dev/null || { skip 'no stunnel (Debian: stunnel4)'; return; }
	mkdir "$T/tls"
	for i in server client; do
		openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$i" \
			-keyout "$T/tls/$i.key" -out "$T/tls/$i.crt" 2>/dev/null
		cat "$T/tls/$i.key" "$T/tls/$i.crt" >"$T/tls/$i.pem"
		chmod 600 "$T/tls/$i.pem"
	done
	{
		printf '%s\n' 'foreground = yes' 'pid ='
		recipe 'on zk1' | sed "s,= 2281,= 127.0.0.1:$tls,; s,127.0.0.1:2181,127.0.0.1:$ZK_PORT,
			s,/etc/stunnel/zk1.pem,$T/tls/server.pem,; s,/etc/stunnel/hosts.pem,$T/tls/client.crt,"
	} >"$T/tls/server.conf"
	{
		printf '%s\n' 'foreground = yes' 'pid ='
		recipe 'on a host' | sed "s,127.0.0.1:2181,127.0.0.1:$near,; s,zk1:2281,127.0.0.1:$tls,
			s,/etc/stunnel/host.pem,$T/tls/client.pem,; s,/etc/stunnel/zk1.pem,$T/tls/server.crt,"
	} >"$T/tls/client.conf"
	for i in server client; do
		stunnel "$T/tls/$i.conf" >"$T/tls/$i.log" 2>&1 </dev/null &
		stunnels+=($!)
	done
	ENSEMBLE=127.0.0.1:$near host tls "credentials $T/secrets/good"
	assertTrue "stunnel: $(cat "$T"/tls/*.log)" "wait_until 10 grep -q 'Configuration successful' '$T/tls/client.log'"
	hold tls tls.lock || fail "no lock through TLS: $(tail -n 3 "$T/tls/client.log")"
	assertEquals 'excludes who comes without' busy "$(try alpha tls.lock)"
	assertEquals 'not in the clear' '' "$(ZK_PORT=$tls zk_command srvr | grep -a Mode)"
	i=(timeout 15 openssl s_client -quiet -ign_eof -connect "127.0.0.1:$tls" -CAfile "$T/tls/server.crt")
	assertEquals 'not without a certificate' '' "$(echo srvr | "${i[@]}" 2>/dev/null | grep Mode)"
	assertEquals 'but with it' 'Mode: standalone' \
		"$(echo srvr | "${i[@]}" -cert "$T/tls/client.crt" -key "$T/tls/client.key" 2>/dev/null | grep Mode)"
	end "$holder"
	keeper_stop tls
	end "${stunnels[@]}"
}

# Servers that take no digest, met when the connection is made anew: no session is ended by it, and it is said once in ten
# seconds, not in a loop.  The last test: it leaves such a server behind.
test_servers_that_take_no_credentials() {
	local pid
	hold alpha nodigest.lock || { fail 'alpha got no lock'; return; }
	pid=$(keeper_pid alpha)
	zk_stop
	JAVA_TOOL_OPTIONS=-Dzookeeper.DigestAuthenticationProvider.enabled=false zk_start || return
	assertTrue 'said' "wait_until 10 grep -q 'session refused error=\"ZooKeeper refuses the credentials' '$T/alpha/run/log'"
	assertEquals 'for who must not wait' ENOLCK "$(try alpha nodigest2.lock 2>"$T/out.nodigest")"
	assertContains "$(cat "$T/out.nodigest")" 'ZooKeeper refuses the credentials'
	assertEquals 'once' 1 "$(grep -c 'session refused' "$T/alpha/run/log")"
	assertEquals 'the session is not given up' 0 "$(grep -c 'session expired' "$T/alpha/run/log")"
	assertEquals 'the same keeper' "$pid" "$(keeper_pid alpha)"
	end "$holder"
}

. shunit2

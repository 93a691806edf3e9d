#!/bin/bash
# tests/92_packages_test.sh - what is installed: make install, the tarball, the Debian packages, the units for systemd
# modes: cluster
# early
# limit: 300
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
. "$(dirname "$0")/lib.sh"
cd "$TESTS/.." || exit
version=$(sed -n 's/^VERSION := //p' Makefile)
unset MAKEFLAGS MAKELEVEL

# run_make ARGUMENT... - the build under test; what it prints goes to $T/make
run_make() { make --no-print-directory BUILD="$BUILD" "$@" >"$T/make" 2>&1 || { tail -n 20 "$T/make" && return 1; }; }
sanitized() { [ "${BUILD#*build-}" != "$BUILD" ]; }
files_below() { (cd "$1" && find . -type f -printf '%P\n' | sort); }

# ---- make install, make dist ----------------------------------------------------------------------------------------

test_install_and_uninstall() {
	local d=$T/installed library files
	run_make install DESTDIR="$d" || fail 'make install'
	library=$(cd "$d" && find . -name libzkflock.so)
	files=$(files_below "$d")
	assertEquals 'the library, where the loader looks for $LIB' "./usr/local/lib/$("${CC:-cc}" -print-multiarch)/libzkflock.so" "$library"
	assertContains "$files" usr/local/sbin/zkflockd
	assertContains "$files" usr/local/lib/systemd/system/zkflock.service
	assertContains "$files" etc/zkflock.conf
	assertEquals 'every page' "$(cd man && printf '%s\n' *)" "$(find "$d/usr/local/share/man" -type f -printf '%f\n' | sort)"
	assertEquals 'nothing is left to be replaced' '' "$(grep -r '@[A-Z]*@' "$d/usr/local/lib/systemd" "$d/etc")"
	assertEquals "zkflock $version" "$("$d/usr/local/bin/zkflock" --version)"
	assertEquals "zkflockd $version" "$("$d/usr/local/sbin/zkflockd" --version)"
	echo '# mine' >>"$d/etc/zkflock.conf"
	run_make install DESTDIR="$d" || fail 'make install, again'
	run_make uninstall DESTDIR="$d" || fail 'make uninstall'
	assertEquals 'what was changed stays' etc/zkflock.conf "$(files_below "$d")"
	run_make install uninstall DESTDIR="$d-2" || fail 'make install uninstall'
	assertEquals 'nothing stays' '' "$(files_below "$d-2")"
}

# Where it is installed is in the binaries: another PREFIX makes anew what has to know, and nothing else.
test_another_prefix() {
	local objects="$T/prefix"
	sanitized && skip 'the same objects' && return
	cp -a "$BUILD/pic" "$BUILD/obj" "$BUILD/places" "$T/" && mkdir "$objects" && mv "$T/pic" "$T/obj" "$T/places" "$objects"
	make --no-print-directory BUILD="$objects" PREFIX=/elsewhere all >"$T/make" 2>&1 || fail 'make PREFIX=/elsewhere'
	assertContains "$(grep ' preload/start.c' "$T/make")" '/elsewhere/sbin'
	assertContains "$(grep ' cli/run.c' "$T/make")" '/elsewhere/lib'
	assertTrue 'few objects were made' "[ $(grep -c ' -c -o' "$T/make") -le 5 ]"
}

test_the_tarball() {
	run_make dist DISTDIR="$T/dist" || fail 'make dist'
	run_make dist DISTDIR="$T/dist-again" || fail 'make dist, again'
	assertTrue 'the same bytes' "cmp '$T/dist/zkflock-$version.tar.gz' '$T/dist-again/zkflock-$version.tar.gz'"
	mkdir "$T/unpacked"
	tar -xzf "$T/dist/zkflock-$version.tar.gz" -C "$T/unpacked"
	assertEquals 'one directory' "zkflock-$version" "$(ls "$T/unpacked")"
	make --no-print-directory -C "$T/unpacked/zkflock-$version" dist DISTDIR="$T/dist-of-dist" >"$T/make" 2>&1 || fail 'make dist in it'
	assertEquals 'the tarball of what is in the tarball has the same files' \
		"$(tar -tzf "$T/dist/zkflock-$version.tar.gz" | grep -v '/\.git')" \
		"$(tar -tzf "$T/dist-of-dist/zkflock-$version.tar.gz" | grep -v '/\.git')"
	sed -i "1s/$version/9.9.9/" "$T/unpacked/zkflock-$version/NEWS"
	make -C "$T/unpacked/zkflock-$version" dist DISTDIR="$T/dist-of-dist" >"$T/make" 2>&1
	assertNotEquals 'another version in NEWS is refused' 0 $?
	assertTrue 'with a reason' "grep -q 'dist: NEWS does not begin with zkflock $version' '$T/make'"
	sed -i "1s/9.9.9/$version/" "$T/unpacked/zkflock-$version/NEWS"
}

# ---- Debian packages -------------------------------------------------------------------------------------------------

# Made in the unpacked tarball.  The objects of this build are taken over, which saves a compilation; a source or a header
# that the tarball lacks is missed all the same.  LINTIAN=1 asks lintian, too, which takes its time.
test_deb() {
	local tree=$T/unpacked/zkflock-$version objects
	sanitized && skip 'a sanitizer is not for packages' && return
	command -v dpkg-shlibdeps >/dev/null || { skip 'no dpkg-shlibdeps'; return; }
	objects=$tree/build/deb-$(dpkg --print-architecture)
	mkdir -p "$objects" && cp -r "$BUILD/pic" "$BUILD/obj" "$objects" # made now: newer than the sources, whatever their commit's time is
	# What depends on which header is known for the objects where they were made: say it of those here.
	find "$objects" -name '*.d' -exec sed -i "s,^[^ ]*/\(obj\|pic\)/,${objects#"$tree/"}/\1/," {} +
	make --no-print-directory -C "$tree" deb DISTDIR="$T/debs" >"$T/make" 2>&1 || { fail 'make deb' && tail "$T/make"; return; }
	assertEquals 'two packages' 2 "$(find "$T/debs" -name "*_${version}_*.deb" | wc -l)"
	assertEquals 'conffiles' /etc/zkflock.conf "$(dpkg-deb -I "$T/debs"/zkflock_*.deb conffiles)"
	assertContains "$(dpkg-deb -f "$T/debs"/zkflock_*.deb Depends)" libzookeeper-mt2
	assertEquals 'side by side' same "$(dpkg-deb -f "$T/debs"/libzkflock_*.deb Multi-Arch)"
	assertEquals 'nobody is named as owner' '' "$(dpkg-deb -c "$T/debs"/zkflock_*.deb | grep -v root/root)"
	if [ "$LINTIAN" ]; then
		assertEquals 'lintian' '' "$(lintian --allow-root --fail-on none "$T/debs"/*.deb 2>&1 | grep -E '^[EW]:')"
	fi
}

# Into a copy of this system that is thrown away: an overlay over the root, in namespaces of its own.  What a package leaves
# behind is what is left in the overlay.
test_deb_installed_removed_purged() {
	[ -e "$T/debs" ] || { skip 'no packages'; return; }
	[ "$(id -u)" = 0 ] || { skip 'a changed root needs root'; return; }
	[ ! -e /var/lib/dpkg/info/zkflock.list ] || { skip 'zkflock is installed here'; return; }
	mkdir -p "$T/chroot/up" "$T/chroot/work" "$T/chroot/root"
	unshare --mount --propagation private mount -t overlay overlay \
		-o "index=off,lowerdir=/,upperdir=$T/chroot/up,workdir=$T/chroot/work" "$T/chroot/root" 2>/dev/null ||
		{ skip 'no overlay file system'; return; }
	mkdir -p "$T/chroot/up/debs" "$T/chroot/up/report"
	cp "$T/debs"/*.deb "$T/chroot/up/debs"
	cp "$PROBES/lock" "$T/chroot/up/debs"
	cat >"$T/chroot/up/debs/session" <<-'END'
		exec 2>&1 </dev/null
		cd /debs || exit
		lock() { LD_PRELOAD='/usr/$LIB/libzkflock.so' ZKFLOCK_LOG=error timeout 20 ./lock "$@"; }
		say() { echo "$*" >>/report/report; }
		dpkg_() { dpkg --force-unsafe-io "$@" || say "dpkg $1 failed"; }
		rm -f /var/lib/man-db/auto-update # or every dpkg indexes all pages
		dpkg_ -i ./*.deb
		say "installed: $(dpkg-query -W -f '${db:Status-Status} ' zkflock libzkflock)"
		say "enabled: $(readlink /etc/systemd/system/sockets.target.wants/zkflock.socket)"
		say "runs: $(ls /run/zkflock 2>&1 | wc -l) $(pgrep -c zkflockd)"
		say "version: $(zkflock --version), $(/usr/sbin/zkflockd --version)"
		say "unconfigured: $(lock /debs/any)"
		printf '%s\n' "ensemble $1" 'tick_time 500ms' 'session_timeout 20s' 'map /debs s/%r' >>/etc/zkflock.conf
		say "mapped: $(zkflock check /debs/job | sed -n 's/^ *lock *//p')"
		LD_PRELOAD='/usr/$LIB/libzkflock.so' ./lock -h /debs/job >/debs/out &
		until grep -q . /debs/out; do read -rt 0.1 <>/debs/nap; done
		say "locked: $(cat /debs/out)"
		say "by run: $(timeout 20 zkflock run flock -n /debs/other echo granted)"
		before=$(cat /run/zkflock/pid)
		dpkg_ -i ./zkflock_*.deb # an upgrade, for dpkg
		for i in $(seq 100); do
			after=$(cat /run/zkflock/pid 2>/dev/null)
			[ "$after" ] && [ "$after" != "$before" ] && [ -S /run/zkflock/socket ] && break
			read -rt 0.1 <>/debs/nap
		done
		say "another keeper: $([ "$after" != "$before" ] && echo yes)"
		say "still held: $(lock /debs/job) $(zkflock list | grep -c ' held ')"
		kill %1
		dpkg_ -r zkflock libzkflock
		say "removed: $(ls -d /usr/bin/zkflock /usr/sbin/zkflockd /usr/lib/*/libzkflock.so /run/zkflock 2>/dev/null)"
		say "ended: $(pgrep -c zkflockd)"
		say "configuration: $(grep -c '^ensemble' /etc/zkflock.conf)"
		dpkg_ -P zkflock libzkflock
		say "purged: $(ls -d /etc/zkflock* 2>/dev/null)"
		say done
	END
	mkfifo "$T/chroot/up/debs/nap"
	# shellcheck disable=SC2016 # for the inner shell
	timeout -k 5 120 unshare --mount --propagation private --pid --fork --kill-child sh -c '
		mount -t overlay overlay -o "index=off,lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root" &&
		mount -t proc proc "$1/root/proc" && mount --rbind /dev "$1/root/dev" && mount -t tmpfs tmpfs "$1/root/run" &&
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$1/root" \
			/bin/bash /debs/session "$2"' sh "$T/chroot" "127.0.0.1:$ZK_PORT" >"$T/session" 2>&1
	assertEquals 'the whole story' "$(cat <<-END
		installed: installed installed 
		enabled: /lib/systemd/system/zkflock.socket
		runs: 1 0
		version: zkflock $version, zkflockd $version
		unconfigured: granted
		mapped: s/job
		locked: granted
		by run: granted
		another keeper: yes
		still held: busy 1
		removed: 
		ended: 0
		configuration: 1
		purged: 
		done
	END
	)" "$(cat "$T/chroot/up/report/report")" || cat "$T/session"
	assertEquals 'nothing is left' '' "$(cd "$T/chroot/up" && find . \( -name '*zkflock*' -o -type c \) -print |
		grep -vE '^\./(debs|report|tmp|dev|var/lib/dpkg/info/.*-new|var/log|var/lib/man-db/auto-update)')"
	assertEquals 'nor in what dpkg knows' '' "$(grep -s zkflock "$T/chroot/up/var/lib/dpkg/status")"
}

# ---- systemd ---------------------------------------------------------------------------------------------------------

test_the_units() {
	command -v systemd-analyze >/dev/null || { skip 'no systemd-analyze'; return; }
	mkdir "$T/units"
	cp conf/zkflock.socket "$T/units"
	sed "s,@SBINDIR@/zkflockd,$BUILD/zkflockd,; s,@BINDIR@/zkflock,$BUILD/zkflock,; /^Documentation/d" conf/zkflock.service.in \
		>"$T/units/zkflock.service"
	sed -i '/^Documentation/d' "$T/units/zkflock.socket"
	assertEquals 'systemd finds no fault' '' "$(systemd-analyze verify "$T/units/zkflock.service" "$T/units/zkflock.socket" 2>&1 |
		grep zkflock)"
}

# supervisor HOST - plays systemd: listens on the host's socket, starts the keeper when somebody comes, and writes down what
# it is told; $supervisor is its pid
supervisor() {
	env "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" "$PYTHON" - "$T/$1" "$BUILD/zkflockd" <<-'END' \
		2>"$T/$1/log" &
		import os, select, socket, sys
		base, keeper = sys.argv[1:]
		path = base + "/run/socket"
		listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		if os.path.exists(path): os.unlink(path)
		listener.bind(path); os.chmod(path, 0o666); listener.listen(100)
		told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
		told.bind(base + "/notify")
		out = open(base + "/told", "w", buffering=1)
		child = starts = 0
		while starts < 10:
		    ready = select.select([told] + ([] if child else [listener]), [], [], 0.05)[0]
		    if told in ready: out.write(told.recv(1000).decode() + "\n")
		    if child and os.waitpid(child, os.WNOHANG)[0]:
		        child = 0
		        out.write("ended\n")
		    if listener in ready and not child:
		        starts += 1
		        child = os.fork()
		        if not child:
		            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=base + "/notify")
		            os.dup2(listener.fileno(), 3); os.set_inheritable(3, True)
		            os.execv(keeper, [keeper])
	END
	supervisor=$!
	wait_until 10 test -e "$T/$1/told" || fail "no supervisor on $1"
}
told() { contains "$T/$1/told" "$2"; }

# The keeper is started by who comes first, says when it is ready, and leaves the socket to its owner.
test_socket_activation() {
	local inode
	SESSION_TIMEOUT=30s host active
	supervisor active
	inode=$(stat -c %i "$T/active/run/socket")
	assertNull 'no keeper yet' "$(keeper_pid active)"
	hold active job.lock || fail 'the first one is served'
	assertTrue 'ready was told' 'wait_until 5 told active READY=1'
	assertTrue 'and more' "wait_until 5 told active 'STATUS=connected to ZooKeeper'"
	assertEquals busy "$(try beta job.lock)"
	keeper_stop active
	assertTrue 'the end was told' 'wait_until 5 told active STOPPING=1'
	assertTrue 'it has ended' 'wait_until 5 told active ended'
	assertEquals 'the socket is still there' "$inode" "$(stat -c %i "$T/active/run/socket")"
	assertEquals 'the holder goes on holding' busy "$(try beta job.lock)"
	assertEquals 'and the next keeper knows it' busy "$(try active job.lock)"
	kill -KILL "$holder"
	assertEquals 'free' granted "$(wait_for beta job.lock 5)"
	keeper_stop active
	end "$supervisor"
}

# A program had started a keeper before the supervisor came: the supervised one takes over, and no lock is lost.
test_a_keeper_started_by_a_program_is_followed() {
	local first inode
	SESSION_TIMEOUT=30s host early
	hold early job.lock || return
	first=$(keeper_pid early)
	supervisor early
	inode=$(stat -c %i "$T/early/run/socket")
	assertEquals 'the next one comes to the new socket' granted "$(try early another.lock)"
	assertTrue 'the first keeper has gone' "wait_until 5 gone $first"
	assertEquals 'the new socket is still there' "$inode" "$(stat -c %i "$T/early/run/socket")"
	assertEquals 'held all the time' busy "$(try beta job.lock)"
	kill -KILL "$holder"
	assertEquals 'free' granted "$(wait_for beta job.lock 5)"
	keeper_stop early
	end "$supervisor"
}

# What is passed must be what programs connect to.
test_a_wrong_socket_is_refused() {
	local said
	host wrong
	# shellcheck disable=SC2016 # for python
	said=$(ZKFLOCK_CONF=$T/wrong/zkflock.conf ZKFLOCK_RUNTIME_DIR=$T/wrong/run timeout 10 "$PYTHON" -c '
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); s.bind(sys.argv[1]); s.listen(1); os.dup2(s.fileno(), 3); os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])' "$T/wrong/stream" "$BUILD/zkflockd" 2>&1)
	assertEquals 'status' 2 $?
	assertContains "$said" 'LISTEN_FDS: allowed is one socket that listens, SOCK_SEQPACKET'
	# What was meant for another process, and was handed down, is none of ours.
	LISTEN_PID=1 LISTEN_FDS=1 ZKFLOCK_CONF=$T/wrong/zkflock.conf ZKFLOCK_RUNTIME_DIR=$T/wrong/run "$BUILD/zkflockd" \
		</dev/null >"$T/out.wrong" 2>&1 &
	assertTrue "of another process: $(cat "$T/out.wrong")" "wait_until 10 test -S '$T/wrong/run/socket'"
	assertTrue 'it ends' 'keeper_stop wrong'
}

# With no more capabilities than the unit leaves it, root's keeper serves another user's private files, tells who holds
# them, knows the owner of a group, and stops the user's processes when the lease is over.
test_the_capabilities_of_the_unit() {
	local bound run out
	[ "$(id -u)" = 0 ] || { skip 'needs root'; return; }
	bound=$(sed -n 's/^CapabilityBoundingSet=//p' conf/zkflock.service.in | tr ' ' '\n' | sed 's/^CAP_/+/' | tr 'A-Z\n' 'a-z,')
	SESSION_TIMEOUT=4s host caps "map $T/caps/s/group group"
	mkdir "$T/caps/s/group"
	cp "$PROBES/lock" "$BUILD/libzkflock.so" "$T/caps"
	chmod 711 "$T" "$T/caps"
	chmod 755 "$T/caps/run" "$T/caps/libzkflock.so"
	chown -R 65534:65534 "$T/caps/s"
	chmod 700 "$T/caps/s"
	env "ZKFLOCK_CONF=$T/caps/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/caps/run" setpriv --no-new-privs \
		"--bounding-set=-all,${bound%,}" "$BUILD/zkflockd" --on-demand </dev/null >/dev/null 2>&1 &
	wait_until 10 test -e "$T/caps/run/socket"
	run=(env "LD_PRELOAD=$T/caps/libzkflock.so" "ZKFLOCK_CONF=$T/caps/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/caps/run"
		ZKFLOCK_LOG=error setpriv --reuid=65534 --regid=65534 --clear-groups)
	assertNotEquals 'it has few' '000001ffffffffff' "$(sed -n 's/^CapEff:.//p' "/proc/$(keeper_pid caps)/status")"
	assertEquals 'a group: its owner is known' both "$("${run[@]}" timeout 20 perl -e '
		umask 077; open(A, ">", "$ARGV[0]/a"); open(B, ">", "$ARGV[0]/b");
		flock(A, 2) or die "a: $!"; flock(B, 2 | 4) or die "b: $!"; print "both"' "$T/caps/s/group" 2>&1)"
	out=$T/out.caps
	(umask 077 && exec "${run[@]}" "$T/caps/lock" -w -h "$T/caps/s/job.lock") >"$out" 2>&1 &
	holder=$!
	assertTrue 'locked' "wait_until 20 contains '$out' granted"
	assertEquals 'it is private' 600 "$(stat -c %a "$T/caps/s/job.lock")"
	assertEquals 'not for another host' busy "$(try beta job.lock)"
	assertTrue 'who holds it is known' "ZKFLOCK_RUNTIME_DIR=$T/caps/run $BUILD/zkflock list | grep -qE '^lock +$holder .* (held|recalled) '"
	kill -STOP "$zk_pid"
	assertTrue 'stopped' "wait_until 10 grep -q 'pid=$holder action=SIGSTOP error=0' '$T/caps/run/log'"
	kill -CONT "$zk_pid"
	kill -KILL "$holder"
	assertEquals 'free' granted "$(wait_for beta job.lock 10)"
	keeper_stop caps
	chmod 700 "$T"
}

. shunit2

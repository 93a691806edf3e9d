#!/bin/bash
# tests/94_other_abis_test.sh - the library for another libc (musl) and another word size (i386), with this machine's keeper
# modes: cluster
#
# Library and program are built here, by `musl-gcc` and `gcc -m32`; without them the tests are skipped (`make check-musl
# check-32` installs them).  Where the kernel runs no programs of 32 bits, qemu-i386 does, if it is there.
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
SESSION_TIMEOUT=12s
. "$(dirname "$0")/lib.sh"
cd "$TESTS/.." || exit
unset MAKEFLAGS MAKELEVEL

# abi NAME CC [PROBE] - build library and programs in $T/NAME-build with the keeper beside them; the host NAME runs them;
# false: skip
abi() {
	local out=$T/$1-build
	printf 'int main(void) { return 0; }\n' >"$T/try.c"
	if ! $2 -o "$T/try" "$T/try.c" 2>/dev/null; then
		skip "no $2"
		return 1
	fi
	emulator=()
	if ! "$T/try" 2>/dev/null; then
		if ! command -v qemu-i386 >/dev/null || ! qemu-i386 "$T/try"; then
			skip "programs of $2 do not run here"
			return 1
		fi
		emulator=(qemu-i386 -E "LD_PRELOAD=$out/libzkflock.so")
	fi
	make --no-print-directory BUILD="$out" CC="$2" CFLAGS=-O1 DEVELOPER=1 MULTIARCH= "$out/libzkflock.so" "$out/probes/lock" \
		${3:+"$out/probes/$3"} >"$T/make" 2>&1 || { fail "build with $2" && tail -n 20 "$T/make"; return 1; }
	ln -s "$BUILD/zkflockd" "$out/zkflockd"
	host "$1"
	there=$1
	there_env=(env -C "$T/$1/s" "ZKFLOCK_CONF=$T/$1/zkflock.conf" "ZKFLOCK_RUNTIME_DIR=$T/$1/run" ZKFLOCK_LOG=error)
	[ ${#emulator[@]} -gt 0 ] || there_env+=("LD_PRELOAD=$out/libzkflock.so")
	there_env+=("${emulator[@]}")
	there_out=$out
	# The emulator knows no clone(2) of the kind by which the library starts a keeper.
	[ ${#emulator[@]} = 0 ] || assertEquals granted "$(try "$1" start.lock)"
	return 0
}

# try_there FILE [lock options] - as try, by a program of the other kind
try_there() {
	local file=$1
	shift
	timeout -k 1 $((10 * PATIENCE)) "${there_env[@]}" "$there_out/probes/lock" "$@" "$file" 2>&1
}

# hold_there FILE [lock options] - as hold
hold_there() {
	local file=$1
	shift
	spawned_out=$T/out.$BASHPID.$((++spawned_count))
	"${there_env[@]}" "$there_out/probes/lock" -w -h "$@" "$file" </dev/null >"$spawned_out" 2>&1 &
	holder=$!
	wait_until 20 contains "$spawned_out" granted && return 0
	fail "hold $file $*: $(cat "$spawned_out")"
	return 1
}

# both_ways KIND - a program there and one of this machine's kind exclude each other, on one host and on two
both_ways() {
	local file=$1.lock
	hold_there "$file" -k "$1" || return
	assertEquals "$1: another host" busy "$(try beta "$file" -k "$1")"
	assertEquals "$1: another program of the host" busy "$(try "$there" "$file" -k "$1")"
	kill -KILL "$holder"
	assertEquals "$1: freed by its end" granted "$(wait_for beta "$file" 10 -k "$1")"
	hold beta "$file" -k "$1" || return
	assertEquals "$1: held elsewhere" busy "$(try_there "$file" -k "$1")"
	kill -KILL "$holder"
	assertEquals "$1: free" granted "$(try_there "$file" -k "$1" -w)"
}

# What the page says needs no keeper: with its socket away, a lock that the host keeps is granted all the same, and what
# another host has taken away is not.
by_the_page() {
	assertEquals 'kept' granted "$(try_there kept.lock)"
	mv "$T/$there/run/socket" "$T/$there/run/away"
	assertEquals 'by the page alone' granted "$(try_there kept.lock)"
	mv "$T/$there/run/away" "$T/$there/run/socket"
	assertEquals granted "$(wait_for beta kept.lock 10)"
	hold beta kept.lock || return
	assertEquals 'not any more' busy "$(try_there kept.lock)"
	kill -KILL "$holder"
}

# all_of_it KIND...
all_of_it() {
	local kind
	for kind; do both_ways "$kind"; done
	by_the_page
	hold_there big.lock -k posix -r 2000000000,100 || return
	assertEquals 'beside it' granted "$(try beta big.lock -k posix -r 2000000100,1)"
	assertEquals 'its last byte' busy "$(try beta big.lock -k posix -r 2000000099,1)"
	kill -KILL "$holder"
}

test_musl() {
	abi musl musl-gcc || return
	assertEquals 'musl alone' libc.so "$(readelf -d "$there_out/libzkflock.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')"
	all_of_it flock posix
}

test_32_bits() {
	local wide
	abi i386 'gcc -m32' actor64 || return
	assertContains "$(readelf -h "$there_out/libzkflock.so")" ELF32
	assertEquals 'exported' 'fcntl fcntl64 flock lockf lockf64' \
		"$(nm -D --defined-only "$there_out/libzkflock.so" | awk '$2 == "T" || $2 == "W" { print $3 }' | sort | tr '\n' ' ' | sed 's/ $//')"
	all_of_it flock posix ofd lockf
	# Beyond 2 GiB: fcntl64 and lockf64 only.
	new_channel wide
	"${there_env[@]}" "$there_out/probes/actor64" "$T/actors/wide.in" "$T/actors/wide.out" </dev/null >/dev/null 2>&1 &
	wide=$!
	expect_answer wide ready 20
	expect wide 'open 0 rw huge.lock' ok
	expect wide 'setlk 0 wr 6000000000 100' ok
	assertEquals 'its last byte' busy "$(try beta huge.lock -k posix -r 6000000099,1)"
	assertEquals 'beside it' granted "$(try beta huge.lock -k posix -r 6000000100,1)"
	assertEquals 'not where 32 bits would be' granted "$(try beta huge.lock -k posix -r 1705032704,100)"
	kill -KILL "$wide"
}

. shunit2

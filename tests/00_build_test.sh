#!/bin/bash
# tests/00_build_test.sh - what was built: symbols, dependencies, hardening
# modes: native
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
. "$(dirname "$0")/lib.sh"
lib=$BUILD/libzkflock.so

# The public face: these five, whatever else the library has inside.
test_exported_symbols() {
	assertEquals 'fcntl fcntl64 flock lockf lockf64' \
		"$(nm -D --defined-only "$lib" | awk '$2 == "T" || $2 == "W" { print $3 }' | sort | tr '\n' ' ' | sed 's/ $//')"
}

# A named version node would leave programs on libc's fcntl@GLIBC_2.2.5 without a word.
test_symbols_have_no_version() {
	assertEquals '' "$(nm -D --defined-only "$lib" | grep '@')"
}

# case B19: libc alone, no fortify symbols, no symbol newer than Debian 12's glibc
test_dependencies_of_the_library() {
	assertEquals 'libc.so.6' "$(readelf -d "$lib" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^ld-linux' | tr '\n' ' ' | sed 's/ $//')"
	assertEquals '' "$(nm -D --undefined-only "$lib" | grep -E '_chk(@|$)')"
	assertEquals '' "$(nm -D --undefined-only "$lib" | sed -n 's/.*@GLIBC_\(2\.[0-9]*\).*/\1/p' | awk -F. '$2 > 36')"
}

# The program's malloc may be what has called us.
test_the_library_does_not_allocate() {
	assertEquals '' "$(nm -D --undefined-only "$lib" | grep -wE 'malloc|calloc|realloc|free|printf|fprintf|exit|abort' | grep -v stack_chk)"
}

# Calls of the client library that abort, hang, or use what is freed (multi; the synchronous ones; zoo_set_servers,
# zoo_get_current_server): the keeper has none of them.
test_the_keeper_keeps_to_the_asynchronous_calls() {
	local call
	for call in $(nm -D --undefined-only "$BUILD/zkflockd" | awk '$2 ~ /^zoo_/ { print $2 }'); do
		case $call in
		zoo_acreate | zoo_adelete | zoo_aset | zoo_async | zoo_awget | zoo_awget_children) ;;
		zoo_add_auth) ;; # asynchronous too
		zoo_client_id | zoo_recv_timeout | zoo_set_debug_level | zoo_set_servers_resolution_delay) ;;
		*) fail "the keeper calls $call" ;;
		esac
	done
	# What the library makes must not be inherited by anybody: see keeper/cloexec.c.
	assertEquals 'pipe socket' "$(nm -D --defined-only "$BUILD/zkflockd" | awk '$3 ~ /^(pipe|socket)$/ { print $3 }' | sort |
		tr '\n' ' ' | sed 's/ $//')"
}

test_hardening() {
	local binary
	for binary in zkflockd zkflock libzkflock.so; do
		assertTrue "$binary: relro" "readelf -lW '$BUILD/$binary' | grep -q GNU_RELRO"
		assertTrue "$binary: now" "readelf -dW '$BUILD/$binary' | grep -qE 'BIND_NOW|FLAGS.*NOW'"
		assertEquals "$binary: no executable stack" '' "$(readelf -lW "$BUILD/$binary" | grep 'GNU_STACK.*E ')"
		assertTrue "$binary: position independent" "readelf -hW '$BUILD/$binary' | grep -q 'Type:.*DYN'"
	done
}

test_preloading_does_no_harm() {
	assertEquals hello "$(LD_PRELOAD=$lib ZKFLOCK_LOG=debug /bin/echo hello 2>&1)"
}

. shunit2

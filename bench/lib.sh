# bench/lib.sh - what the benchmarks share: the tests' server and hosts, the peers, results
#
# Only counts and ratios of one run are worth comparing; times are this machine's at this moment.  Each benchmark prints its
# results, one a line, separated by tabs:   SECTION  WHAT  WAY  VALUE  UNIT  RATIO  AIM
# RATIO is to the first way of the same section and what; AIM is a text, with "met" or "missed" before it.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # used by the benchmarks; tests/lib.sh sets
BENCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset ZKF_RESULTS # these servers and hosts are ours, whoever calls
# shellcheck source=tests/lib.sh
. "$BENCH/../tests/lib.sh"

fail() { echo "$*" >&2; }

TOOLS=$BUILD/bench
LOOP=$TOOLS/loop
jar() { printf '/usr/share/java/%s.jar:' "$@"; }
CLASSPATH=$TOOLS/classes:$(jar curator-recipes curator-framework curator-client zookeeper zookeeper-jute guava slf4j-api \
	slf4j-nop)
declare -A PEER_IN=() PEER_OUT=() PEER_PID=()

# least NUMBER... - what the machine does when nothing else disturbs
least() { printf '%s\n' "$@" | sort -n | head -n 1; }

# quantile PERCENT NUMBER... - quantile 50 is the median
quantile() {
	local percent=$1
	shift
	printf '%s\n' "$@" | sort -n | awk -v p="$percent" '{ v[NR] = $1 } END { i = int(NR * p / 100 + 0.5); print v[i < 1 ? 1 : i] }'
}
median() { quantile 50 "$@"; }

# newer TARGET SOURCE - must TARGET be made?
newer() { [ ! -e "$1" ] || [ "$2" -nt "$1" ]; }

# tools - compile what is missing or old; what needs other people's packages only if they are there
tools() {
	local name flags
	mkdir -p "$TOOLS/classes"
	for name in loop handoff spawn client; do
		flags=
		case $name in client) flags='-DTHREADED -lzookeeper_mt' ;; esac
		newer "$TOOLS/$name" "$BENCH/$name.c" || continue
		# shellcheck disable=SC2086 # words
		"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -o "$TOOLS/$name.$$" "$BENCH/$name.c" $flags &&
			mv "$TOOLS/$name.$$" "$TOOLS/$name" || exit 2
	done
	if newer "$TOOLS/empty.so" "$BENCH/empty.c"; then
		"${CC:-cc}" -O2 -shared -fPIC -o "$TOOLS/empty.so" "$BENCH/empty.c" || exit 2
	fi
	have_curator && newer "$TOOLS/classes/Curator.class" "$BENCH/Curator.java" &&
		javac -d "$TOOLS/classes" -cp "$CLASSPATH" "$BENCH/Curator.java"
	return 0
}
have_curator() { [ -e /usr/share/java/curator-recipes.jar ] && command -v javac >/dev/null; }
have_kazoo() { $PYTHON -c 'import kazoo' 2>/dev/null; }

# bench_start [NAME...] - build the tools, start a server and hosts; everything ends with the script
bench_start() {
	local name
	if ! { [ -e "$BUILD/libzkflock.so" ] && [ -x "$BUILD/zkflockd" ]; }; then
		echo "nothing in $BUILD; run make" >&2
		exit 2
	fi
	tools
	trap 'bench_end' EXIT
	trap 'exit 130' INT TERM
	# shellcheck disable=SC2119
	zk_start || exit 2
	for name; do host "$name"; done
}

bench_end() {
	local name
	for name in "${!PEER_PID[@]}"; do peer_stop "$name"; done
	oneTimeTearDown
}

# result SECTION WHAT WAY VALUE UNIT [RATIO [AIM]]
result() { printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" "${6-}" "${7-}"; }

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b ? a / b : 0 }'; }

# verdict A OP B TEXT - "met TEXT" or "missed TEXT"; OP is <= or >=
verdict() {
	awk -v a="$1" -v op="$2" -v b="$3" -v text="$4" \
		'BEGIN { print ((op == "<=" ? a + 0 <= b + 0 : a + 0 >= b + 0) ? "met" : "missed"), text }'
}

# ---- peers: programs that are told what to do line by line ----------------------------------------------------------

# peer_start NAME CMD... - start one and wait until it is ready
peer_start() {
	local name=$1 in out
	shift
	mkfifo "$T/peer.$name.in" "$T/peer.$name.out"
	exec {in}<>"$T/peer.$name.in" {out}<>"$T/peer.$name.out"
	"$@" <"$T/peer.$name.in" >"$T/peer.$name.out" 2>>"$T/peer.log" {in}>&- {out}>&- &
	PEER_PID[$name]=$! PEER_IN[$name]=$in PEER_OUT[$name]=$out
	peer_hear "$name" 60
}
curator_start() { peer_start "$1" java -Xmx256m -XX:+UseSerialGC -cp "$CLASSPATH" Curator "127.0.0.1:$ZK_PORT" 6000; }
kazoo_start() { peer_start "$1" $PYTHON "$BENCH/kazoo_peer.py" "127.0.0.1:$ZK_PORT" 6000; }

peer_tell() { echo "$2" >&"${PEER_IN[$1]}"; }
# peer_hear NAME SECONDS - its next line, in HEARD
peer_hear() {
	read -r -t "$2" -u "${PEER_OUT[$1]}" HEARD && return 0
	echo "no answer of $1: $(tail -n 3 "$T/peer.log")" >&2
	exit 1
}
# peer_ask NAME LINE [SECONDS]
peer_ask() { peer_tell "$1" "$2" && peer_hear "$1" "${3:-120}"; }
peer_stop() {
	kill -KILL "${PEER_PID[$1]}" 2>/dev/null
	wait "${PEER_PID[$1]}" 2>/dev/null
	unset "PEER_PID[$1]"
}

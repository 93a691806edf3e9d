# tests/lib_ensemble.sh - three servers on loopback, and links that can be cut; to be read after lib.sh
#
# Server I is reached by clients on port $(client_port I), or through the link cI on port $(link_port I).  What server I
# says to server J goes through the links qIJ (following a leader) and eIJ (elections), so that `cut_off I` makes a
# partition: server I runs, and hears nobody.  Links are tests/probes/proxy.c's.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # used by the test files; lib.sh's

TICK_MS=${TICK_MS:-250}
declare -A SERVERS=() STOPPED=() # pid by number; those that were sent SIGSTOP
proxy_pid='' PORTS=''

client_port() { echo $((PORTS + $1)); }
link_port() { echo $((PORTS + 10 + $1)); }
quorum_port() { echo $((PORTS + 20 + $1)); }
election_port() { echo $((PORTS + 30 + $1)); }
# quorum_link FROM TO, election_link FROM TO - where FROM finds TO
quorum_link() { echo $((PORTS + 40 + 4 * $1 + $2)); }
election_link() { echo $((PORTS + 60 + 4 * $1 + $2)); }

# Hosts in LINKED_HOSTS have links of their own, NAME1 to NAME3, for host_ensemble NAME.
LINKED_HOSTS=()
# host_link NAME I - where the host finds server I
host_link() {
	local index
	for index in "${!LINKED_HOSTS[@]}"; do
		[ "${LINKED_HOSTS[index]}" != "$1" ] || echo $((PORTS + 80 + 4 * index + $2))
	done
}
host_ensemble() { echo "127.0.0.1:$(host_link "$1" 1),127.0.0.1:$(host_link "$1" 2),127.0.0.1:$(host_link "$1" 3)"; }

# proxy_start LINK... - see tests/probes/proxy.c
proxy_start() {
	mkfifo "$T/proxy.in" "$T/proxy.out" 2>/dev/null
	exec {proxy_out}<>"$T/proxy.out"
	ANSWER=
	env -u ZKF_TAG "$PROBES/proxy" "$T/proxy.in" "$T/proxy.out" "$@" </dev/null >"$T/proxy.log" 2>&1 &
	proxy_pid=$!
	read -r -t 10 ANSWER <&"$proxy_out"
	[ "$ANSWER" = ready ] && return 0
	proxy_stop
	return 1
}

proxy_stop() {
	[ "$proxy_pid" ] || return 0
	kill -KILL "$proxy_pid" 2>/dev/null
	wait "$proxy_pid" 2>/dev/null
	proxy_pid=
	exec {proxy_out}>&-
}

# proxy COMMAND NAME... - the answer goes to $ANSWER
proxy() {
	printf '%s\n' "$*" 1<>"$T/proxy.in"
	read -r -t 10 ANSWER <&"$proxy_out" || ANSWER='no answer'
	[ "$ANSWER" != 'no such link' ] && [ "$ANSWER" != failed ]
}

# server_config I - its zoo.cfg
server_config() {
	local other
	printf '%s\n' "tickTime=$TICK_MS" initLimit=20 "syncLimit=${SYNC_LIMIT:-8}" maxSessionTimeout=60000 "dataDir=$T/zk$1" \
		"clientPort=$(client_port "$1")" clientPortAddress=127.0.0.1 admin.enableServer=false maxClientCnxns=0 \
		'4lw.commands.whitelist=*' "server.$1=127.0.0.1:$(quorum_port "$1"):$(election_port "$1")"
	for other in 1 2 3; do
		[ "$other" = "$1" ] ||
			echo "server.$other=127.0.0.1:$(quorum_link "$1" "$other"):$(election_link "$1" "$other")"
	done
}

# server_start I - without waiting for it; ZK_FLAGS go to java
server_start() {
	mkdir -p "$T/zk$1"
	echo "$1" >"$T/zk$1/myid"
	server_config "$1" >"$T/zk$1/zoo.cfg"
	# shellcheck disable=SC2086 # several, or none
	env -u ZKF_TAG java -Xmx96m -Xshare:auto -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
		-Dznode.container.checkIntervalMs=1000 -Dzookeeper.preAllocSize=512 -Dzookeeper.cnxTimeout=1000 \
		-Dzookeeper.root.logger=WARN,CONSOLE $ZK_FLAGS -cp /etc/zookeeper/conf:/usr/share/java/zookeeper.jar \
		org.apache.zookeeper.server.quorum.QuorumPeerMain "$T/zk$1/zoo.cfg" </dev/null >>"$T/zk$1/log" 2>&1 &
	SERVERS[$1]=$!
	unset "STOPPED[$1]"
}

# server_signal I SIGNAL - STOP, CONT, KILL, TERM
server_signal() {
	kill "-$2" "${SERVERS[$1]}" 2>/dev/null
	case $2 in
	STOP) STOPPED[$1]=1 ;;
	CONT) unset "STOPPED[$1]" ;;
	esac
}

# server_stop I [SIGNAL] - and wait for its end; its data stay for the next server_start
server_stop() {
	[ "${SERVERS[$1]}" ] || return 0
	server_signal "$1" "${2:-KILL}"
	wait_until 10 gone "${SERVERS[$1]}" || kill -KILL "${SERVERS[$1]}" 2>/dev/null
	wait "${SERVERS[$1]}" 2>/dev/null
	unset "SERVERS[$1]" "STOPPED[$1]"
}

# server_mode I - leader, follower, or nothing: does not serve
server_mode() {
	[ "${SERVERS[$1]}" ] && [ -z "${STOPPED[$1]}" ] || return 1
	ZK_PORT=$(client_port "$1") zk_command srvr 2>/dev/null | sed -n 's/^Mode: //p'
}

# quorum_of N - do N servers serve, one of them as leader?  Sets LEADER, FOLLOWERS
quorum_of() {
	local i mode
	LEADER='' FOLLOWERS=()
	for i in 1 2 3; do
		mode=$(server_mode $i)
		[ "$mode" = leader ] && LEADER=$i
		[ "$mode" = follower ] && FOLLOWERS+=("$i")
	done
	[ "$LEADER" ] && [ $((1 + ${#FOLLOWERS[@]})) -ge "$1" ]
}

# ensemble_start - three servers and their links; sets ENSEMBLE, what clients are configured with
ensemble_start() {
	local try i j links
	for try in 1 2 3; do
		PORTS=$((RANDOM % 9000 + 21000))
		links=()
		for i in "${LINKED_HOSTS[@]}"; do
			for j in 1 2 3; do links+=("$i$j=zk:$(host_link "$i" $j):$(client_port $j)"); done
		done
		for i in 1 2 3; do
			links+=("c$i=zk:$(link_port $i):$(client_port $i)")
			for j in 1 2 3; do
				[ $i = $j ] && continue
				links+=("q$i$j=$(quorum_link $i $j):$(quorum_port $j)"
					"e$i$j=swap:$(election_link $i $j):$(election_port $j):$(election_port $i):$(election_link $j $i)")
			done
		done
		proxy_start "${links[@]}" && break
	done
	[ "$proxy_pid" ] || { fail "no proxy: $(cat "$T/proxy.log")" && return 1; }
	for i in 1 2 3; do server_start $i; done
	ENSEMBLE=127.0.0.1:$(client_port 1),127.0.0.1:$(client_port 2),127.0.0.1:$(client_port 3)
	wait_until 40 quorum_of 3 && return 0
	fail 'no ensemble could be started'
	tail -n 20 "$T"/zk?/log
	return 1
}

# ensemble_whole - heal, continue and start whatever a test has left broken
ensemble_whole() {
	local i
	proxy heal '*'
	for i in 1 2 3; do
		if [ "${STOPPED[$i]}" ]; then server_signal $i CONT; fi
		if [ -z "${SERVERS[$i]}" ] || gone "${SERVERS[$i]}"; then server_stop $i && server_start $i; fi
	done
	wait_until 40 quorum_of 3
}

# cut_off I, rejoin I - server I and the others can't hear each other; clients of each still can
cut_off() { proxy freeze "[qe]$1?" && proxy freeze "[qe]?$1"; }
rejoin() { proxy heal "[qe]$1?" && proxy heal "[qe]?$1"; }

ensemble_stop() {
	local i
	for i in 1 2 3; do server_stop $i KILL; done
	proxy_stop
}

eval "$(declare -f oneTimeTearDown | sed 's/^oneTimeTearDown/common_tear_down/')"
oneTimeTearDown() {
	for name in "${HOSTS[@]}"; do
		[ -e "$T/$name/run/pid" ] && keeper_stop "$name"
	done
	ensemble_stop
	common_tear_down
}

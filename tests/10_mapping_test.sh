# tests/10_mapping_test.sh - the configuration's grammar, path -> rule -> lock name -> znode, and the tool's view of it
#
# No server and no keeper: pure functions, by way of tests/probes/mapping_probe.c and `zkflock check` and `run`.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC1003 # words that end in a backslash are meant so
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROBE=$PROBES/mapping_probe
TOP=$(cd "$TESTS/.." && pwd)

oneTimeSetUp() {
	if ! { [ -x "$PROBE" ] && [ -x "$BUILD/zkflock" ]; }; then
		echo "nothing to test: no zkflock or probes/mapping_probe in $BUILD; run make all probes"
		return 1
	fi
	mkdir -p "$T/c"
	printf 'map %s names/%%r\n' "$T/c" >"$T/zkflock.conf"
}

# ---- helpers ---------------------------------------------------------------------------------------------------------

DEFAULTS='ensemble= root=/zkflock session=10000 tick=2000 connect=5000 keep=60000 credentials= connections=4096 locks=4096'

wrong='' # what a test has found so far

# same MESSAGE EXPECTED ANSWER - assertEquals for tables, where it would take most of the time: it starts processes
same() { [ "$2" = "$3" ] || wrong+=$'\n'"$1: expected '$2', but was '$3'"; }

# has MESSAGE PART ANSWER - assertContains for tables
has() { [[ $3 == *"$2"* ]] || wrong+=$'\n'"$1: expected '$2' in '$3'"; }

# verdict - a test's one assertion
verdict() {
	assertEquals '' "$wrong"
	wrong=
}

# parse TEXT - TEXT with printf's escapes
parse() { printf '%b' "$1" | "$PROBE" parse; }

# setting TEXT WORD - TEXT is understood, and the line of settings has WORD
setting() {
	local answer
	answer=$(parse "$1")
	has "'$1'" " $2 " " ${answer%%$'\n'*} "
}

# rules TEXT LINE... - the rules that TEXT has become
rules() {
	local text=$1 answer
	shift
	answer=$(printf '%s\n' "$DEFAULTS" "$@")
	same "'$text'" "${answer#*$'\n'}" "$(parse "$text" | tail -n +2)"
}

# refused TEXT LINE WORD... - refused at LINE with a message that has each WORD, and says what is allowed
refused() {
	local text=$1 line=$2 answer word
	answer=$(parse "$text")
	shift 2
	same "line of '$text'" "$line" "${answer%%:*}"
	for word in "$@" '; allowed '; do
		has "'$text'" "$word" "$answer"
	done
}

# matched TEXT PATH LINE
matched() { same "'$2' in '$1'" "$3" "$(printf '%b' "$1" | "$PROBE" match "$2")"; }

# check PATH... - run the tool
check() { ZKFLOCK_CONF=$T/zkflock.conf "$BUILD/zkflock" check "$@"; }

# field NAME PATH - one line of what the tool says of a path
field() { check "$2" | sed -n "s/^  $1 *//p"; }

# ---- settings --------------------------------------------------------------------------------------------------------

test_an_empty_file_means_the_defaults() {
	local text
	for text in '' '\n\n' '# comment' ' \t # comment\n' '\r\n' '#\r'; do
		same "'$text'" "$DEFAULTS" "$(parse "$text")"
	done
	verdict
}

test_settings_are_understood() {
	setting 'ensemble zk1:2181' ensemble=zk1:2181
	setting 'ensemble zk-1.e_a.org:1,10.0.0.1:65535,[::1]:2181' \
		'ensemble=zk-1.e_a.org:1,10.0.0.1:65535,[::1]:2181'
	setting 'root /a/b-c' root=/a/b-c
	setting 'root /' 'root= session=10000'
	setting 'root /zookeepers' root=/zookeepers
	setting 'session_timeout 600000ms' session=600000
	setting 'session_timeout\t10m # the longest' session=600000
	setting 'session_timeout 1s\r\ntick_time 500ms\r\n' 'session=1000 tick=500'
	setting 'tick_time 100ms' tick=100
	setting '  tick_time\t\t3s  ' tick=3000
	setting 'connect_timeout 10m' connect=600000
	setting 'keep 0' keep=0
	setting 'keep 0s' keep=0
	setting 'keep 24h' keep=86400000
	setting 'credentials /etc/zkflock.secret # it' credentials=/etc/zkflock.secret
	setting 'user_connections 16\nuser_locks 1000000' 'connections=16 locks=1000000'
	setting 'tick_time 60s\nsession_timeout 120s' 'session=120000 tick=60000'
	verdict
}

test_bad_settings_are_refused() {
	refused 'ensembl zk1:2181' 1 "unknown setting 'ensembl'" \
		ensemble root session_timeout tick_time connect_timeout keep metrics_file credentials user_connections user_locks map
	refused 'Keep 1s' 1 "unknown setting 'Keep'"
	refused 'keep' 1 'keep without a value'
	refused 'keep # 1s' 1 'keep without a value'
	refused '\n#\nkeep 1s 2s' 3 "unexpected '2s'"
	refused 'ensemble a:1, b:2' 1 "empty entry in 'a:1,'"
	refused 'keep 1s\ntick_time 1s\nkeep 2s' 3 'keep is set at line 1'
	refused '\nroot /a\n\nroot /a' 4 'root is set at line 2'
	refused 'k\303\244se 1' 1 "'k\303\244se'"
	verdict
}

test_bad_durations_are_refused() {
	refused 'keep 10' 1 "keep '10' has no unit" 'ms, s, m and h'
	refused 'session_timeout 1' 1 'has no unit'
	refused 'keep ten' 1 'not a duration' 'ms, s, m, h'
	refused 'keep 10d' 1 'not a duration'
	refused 'keep 10S' 1 'not a duration'
	refused 'keep -1s' 1 'not a duration'
	refused 'keep 1.5s' 1 'not a duration'
	refused 'keep s' 1 'not a duration'
	refused 'keep 10 s' 1 'has no unit'
	refused 'session_timeout 999ms' 1 'out of range' '1s to 10m'
	refused 'session_timeout 11m' 1 'out of range' '1s to 10m'
	refused 'session_timeout 0' 1 'out of range'
	refused 'tick_time 99ms' 1 'out of range' '100ms to 60s'
	refused 'tick_time 61s' 1 'out of range'
	refused 'connect_timeout 99ms' 1 'out of range' '100ms to 10m'
	refused 'keep 25h' 1 'out of range' '0 to 24h'
	refused 'credentials secret' 1 "'secret' is not an absolute path"
	refused 'credentials /' 1 'not an absolute path of a file'
	refused 'credentials /a\\\\040b' 1 'has a backslash'
	refused 'credentials /a\ncredentials /b' 2 'credentials is set at line 1'
	refused 'user_locks 15' 1 'user_locks' '16 to 1000000'
	refused 'user_locks 16s' 1 'user_locks' '16 to 1000000'
	refused 'user_connections 1000001' 1 'user_connections' '16 to 1000000'
	refused 'user_connections 99999999999999999999999' 1 'user_connections' '16 to 1000000'
	refused 'user_connections -1' 1 'user_connections' '16 to 1000000'
	refused 'keep 86400001ms' 1 'out of range'
	refused 'keep 18446744073709551617ms' 1 'out of range'
	refused 'keep 99999999999999999999999999h' 1 'out of range'
	verdict
}

test_bad_metrics_files_are_refused() {
	refused 'metrics_file' 1 'metrics_file without a value'
	refused 'metrics_file metrics' 1 "'metrics' is not absolute"
	refused 'metrics_file /var/' 1 "'/var/' ends with a '/'"
	refused 'metrics_file /a\\\\040b' 1 'has a backslash'
	refused 'metrics_file /a b' 1 "unexpected 'b'"
	refused 'metrics_file /a\nmetrics_file /a' 2 'metrics_file is set at line 1'
	refused "metrics_file /$(printf '%01000d' 0)" 1 'too long' '1000 bytes'
	has 'the longest' metrics_file= "$(parse "metrics_file /$(printf '%0999d' 0)")"
	verdict
}

test_times_must_fit_each_other() {
	refused 'session_timeout 3s' 1 'session_timeout 3000ms' 'twice tick_time 2000ms' 'at least 4000ms'
	refused 'session_timeout 3s\n#\ntick_time 1501ms\nkeep 0' 3 'session_timeout 3000ms'
	refused 'tick_time 6s\n\nsession_timeout 11999ms' 3 'at least 12000ms'
	refused '\ntick_time 6s' 2 'session_timeout 10000ms'
	setting 'session_timeout 4s' session=4000
	verdict
}

test_bad_ensembles_are_refused() {
	refused 'ensemble zk1' 1 "no port in 'zk1'" host:port
	refused 'ensemble [::1]' 1 'no port'
	refused 'ensemble zk1:' 1 'bad port' '1 to 65535'
	refused 'ensemble zk1:0' 1 'bad port'
	refused 'ensemble zk1:65536' 1 'bad port'
	refused 'ensemble zk1:999999' 1 'bad port'
	refused 'ensemble zk1:21x' 1 'bad port'
	refused 'ensemble zk1:1,,zk2:1' 1 'empty entry'
	refused 'ensemble zk1:1,zk2' 1 "no port in 'zk2'"
	refused 'ensemble :2181' 1 'bad host'
	refused 'ensemble ::1:2181' 1 'bad host' brackets
	refused 'ensemble [zk1]:2181' 1 'bad host'
	refused 'ensemble []:2181' 1 'bad host'
	refused 'ensemble zk;1:2181' 1 'bad host'
	refused 'ensemble zk1:2181/chroot' 1 "a path in 'zk1:2181/chroot'" root
	verdict
}

test_bad_roots_are_refused() {
	refused 'root zkflock' 1 "root 'zkflock' is not absolute"
	refused 'root /zkflock/' 1 'ends with'
	refused 'root /a//b' 1 'empty component'
	refused 'root /a/../b' 1 "'..' component"
	refused 'root /.' 1 "'.' or"
	refused 'root /\303\244' 1 'not ASCII'
	refused 'root /zookeeper' 1 "ZooKeeper's own"
	refused 'root /zookeeper/quota' 1 "ZooKeeper's own"
	refused "root /$(printf '%0200d' 0)" 1 'too long' '200 bytes'
	verdict
}

test_control_characters_are_refused_everywhere() {
	refused 'keep 1s\n# com\0001ment' 2 "control character '\\001'"
	refused '\n\nmap /a b\0000' 3 "control character '\\000'"
	refused 'map /a \0033[31m' 1 "'\\033'"
	refused 'keep 1s\rtick_time 1s\r' 1 "'\\015'"
	refused 'keep 1s\0177' 1 "'\\177'"
	verdict
}

# ---- rules -----------------------------------------------------------------------------------------------------------

test_rules_are_understood() {
	rules 'map /srv/a jobs/%r' '1 /srv/a jobs/%r freeze wait 60000'
	rules '\n map\t/srv/a/ one # group' '2 /srv/a one group freeze wait 60000'
	rules 'map / %p' '1 / %p freeze wait 60000'
	rules 'map /a -' '1 /a - excluded freeze wait 60000'
	rules 'map /a \\055' '1 /a \055 group freeze wait 60000'
	rules 'map /a 100%%' '1 /a 100%% group freeze wait 60000'
	rules 'map /a \\045r' '1 /a \045r group freeze wait 60000'
	rules 'map /a x#y' '1 /a x#y group freeze wait 60000'
	rules 'map /a .%r/..x/...' '1 /a .%r/..x/... freeze wait 60000'
	rules 'map /.../.a/a. x' '1 /.../.a/a. x group freeze wait 60000'
	rules 'map /a %p%r' '1 /a %p%r freeze wait 60000'
	rules 'map /a a on_loss=kill unavailable=local keep=1h' '1 /a a group kill local 3600000'
	rules 'map /a a keep=0 unavailable=fail on_loss=warn #x' '1 /a a group warn fail 0'
	rules 'map /a a unavailable=fail\nkeep 1s\nmap /b b keep=2s\nmap /ab c' \
		'1 /a a group freeze fail 1000' '3 /b b group freeze wait 2000' '4 /ab c group freeze wait 1000'
	verdict
}

test_bad_rules_are_refused() {
	refused 'map' 1 'map without a prefix' 'map PREFIX NAME'
	refused 'map /a' 1 'map without a lock name'
	refused 'map /a # b' 1 'map without a lock name'
	refused 'map a b' 1 "prefix 'a' is not absolute"
	refused 'map "/a" b' 1 'not absolute'
	refused 'map /a//b c' 1 'empty component'
	refused 'map // c' 1 'empty component'
	refused 'map /a// c' 1 'empty component'
	refused 'map /a/./b c' 1 "'.' or '..'"
	refused 'map /a/.. c' 1 "'.' or '..'"
	refused 'map /\\056\\056/b c' 1 "'.' or '..'"
	refused "map /$(printf '%04095d' 0) c" 1 'too long' '4095 bytes'
	refused 'map /a b c' 1 "'c' is not an option" on_loss= unavailable= keep= '\040'
	refused 'map /a b colour=red' 1 "'colour=red' is not an option"
	refused 'map /a b keep' 1 "'keep' is not an option"
	refused 'map /a b on_loss=' 1 "on_loss '' is unknown" freeze kill warn
	refused 'map /a b on_loss=Kill' 1 'is unknown'
	refused 'map /a b on_loss=warn#' 1 "on_loss 'warn#' is unknown"
	refused 'map /a b unavailable=no' 1 "unavailable 'no' is unknown" wait fail local
	refused 'map /a b keep=5' 1 'has no unit'
	refused 'map /a b keep=25h' 1 'out of range'
	refused 'map /a b keep=1s on_loss=warn keep=1s' 1 "option 'keep' is given twice"
	refused 'map /a - keep=1s' 1 "option 'keep=1s' after '-'"
	verdict
}

test_bad_lock_names_are_refused() {
	refused 'map /a b%q' 1 'bad % in lock name' %r %p %b %d '%1 to %9' %%
	refused 'map /a b%' 1 'bad %'
	refused 'map /a %R' 1 'bad %'
	refused 'map /a /b' 1 "'/b' begins or ends with a '/'"
	refused 'map /a b/' 1 'begins or ends'
	refused 'map /a b//%r' 1 'empty component'
	refused 'map /a ../%r' 1 "'.' or '..'"
	refused 'map /a %r/.' 1 "'.' or '..'"
	refused 'map /a .' 1 "'.' or '..'"
	refused 'map /a a\\012b' 1 'control character'
	refused 'map /a %p%r%p' 1 'too long' '8192 bytes'
	refused "map /a %p%r$(printf '%03d' 0)" 1 'too long'
	refused "map /a $(printf '%08193d' 0)" 1 'too long'
	rules "map /a %p%r$(printf '%02d' 0)" "1 /a %p%r00 freeze wait 60000"
	verdict
}

test_parts_of_the_path_in_names() {
	rules 'map /a %b' '1 /a %b freeze wait 60000'
	rules 'map /a %d/%b' '1 /a %d/%b freeze wait 60000'
	rules 'map /a %d' '1 /a %d group freeze wait 60000'
	rules 'map /home/*/app app-%1' '1 /home/*/app app-%1 group freeze wait 60000'
	rules 'map /home/*/app %1/%r' '1 /home/*/app %1/%r freeze wait 60000'
	rules 'map /*/*/*/*/*/*/*/*/* %9%8%7%6%5%4%3%2%1%b' \
		'1 /*/*/*/*/*/*/*/*/* %9%8%7%6%5%4%3%2%1%b freeze wait 60000'
	rules 'map /a/\\052/b x%r' '1 /a/\052/b x%r freeze wait 60000'
	rules 'map /a/* -' '1 /a/* - excluded freeze wait 60000'
	refused 'map /a x%1' 1 'a number that the prefix has no'
	refused 'map /a/*/b x%2' 1 'a number that the prefix has no'
	refused 'map /a/*/b x%0' 1 'bad %'
	refused 'map /a/x*/b x' 1 "'*' that is not a whole component" '\052'
	refused 'map /a/*x/b x' 1 "'*' that is not a whole component"
	refused 'map /a/** x' 1 "'*' that is not a whole component"
	refused 'map /*/*/*/*/*/*/*/*/*/* x' 1 'more than nine'
	refused 'map /a/*/b/%1/.. x' 1 "'.' or '..'"
	refused 'map /a %d%b%r%r' 1 'too long' '8192 bytes'
	rules 'map /a/* %p%1%d%b' '1 /a/* %p%1%d%b freeze wait 60000'
	refused 'map /a/* %p%p%1' 1 'too long'
	verdict
}

test_bad_escapes_are_refused() {
	refused 'map /a\\b c' 1 'bad escape in prefix' '\\' '\ooo'
	refused 'map /a\\04 c' 1 'bad escape in prefix'
	refused 'map /a\\400 c' 1 'bad escape'
	refused 'map /a\\000 c' 1 'bad escape'
	refused 'map /a\\057b c' 1 'bad escape' 'not 057'
	refused 'map /a c\\' 1 'bad escape in lock name'
	refused 'map /a c\\08x' 1 'bad escape in lock name'
	verdict
}

test_a_prefix_is_mapped_once() {
	refused 'map /a b\n\nmap /a c' 3 "prefix '/a' is mapped at line 1 already"
	refused '#\nmap /a/ b\nmap /b c\nmap /a -' 4 'at line 2'
	refused 'map /a\\040b b\nmap /\\141\\040b c' 2 'at line 1'
	refused 'map / b\nmap / c' 2 'at line 1'
	refused 'map /a/*/c b\nmap /a/*/c c' 2 'at line 1'
	rules 'map /a/*/c b\nmap /a/\\052/c c' '1 /a/*/c b group freeze wait 60000' \
		'2 /a/\052/c c group freeze wait 60000'
	verdict
}

test_long_words_are_cut_in_messages() {
	refused "map /a b $(printf '%0400d' 0)" 1 "0...' is not an option"
	refused "$(printf '\\0377%.0s' {1..400})" 1 "\\377...'; allowed are ensemble" 'and map'
	verdict
}

# ---- path -> rule ----------------------------------------------------------------------------------------------------

RULES='map /srv/legacy/tmp -
map /srv a/%r
map /srv/legacy b
map /srv/legacy/tmp/keep c
map /with\\040space d/%r
map /back\\\\slash e/%r'

test_the_longest_prefix_wins() {
	matched "$RULES" /srv/x 2
	matched "$RULES" /srv/legacy/x/y 3
	matched "$RULES" /srv/legacy/tmp/x 1
	matched "$RULES" /srv/legacy/tmp/keep/x 4
	matched "$RULES" /etc/passwd none
	matched "$RULES\nmap / all" /etc/passwd 7
	matched "$RULES\nmap / all" / 7
	matched "$RULES\nmap / all" /srv/x 2
	verdict
}

test_a_prefix_ends_at_a_slash() {
	matched "$RULES" /srv 2
	matched "$RULES" /srv/ 2
	matched "$RULES" /srvx none
	matched "$RULES" /sr none
	matched "$RULES" / none
	matched "$RULES" /srv/legacyx 2
	matched "$RULES" /srv/legacy 3
	matched "$RULES" /srv/legacy/tmpx 3
	verdict
}

STARS='map /home/*/.cache/app app-%1
map /home/*/.cache -
map /home/bob/*/app bob
map /home/*/mail/* m-%1-%2
map /home/alice a/%r
map /*/x x
map /home/*/\\052/app literal'

test_a_star_is_one_component() {
	matched "$STARS" /home/alice/.cache/app/f 1
	matched "$STARS" /home/alice/.cache/app 1
	matched "$STARS" /home/alice/.cache/application 2
	matched "$STARS" /home/alice/.cache/f 2
	matched "$STARS" /home/alice/f 5
	matched "$STARS" /home/carol/f none
	matched "$STARS" /home//mail/x none
	matched "$STARS" /home/carol/mail/x/y/z 4
	matched "$STARS" /home/carol/mail none
	matched "$STARS" /home/x 6
	matched "$STARS" /home/x/y/z 6
	matched "$STARS" '/home/x/*/app' 7
	matched "$STARS" '/home/*/*/app/z' 7
	verdict
}

# More components first; then the one that is literal where, from the left, they differ first.
test_the_order_of_prefixes_with_stars() {
	local a='/home/bob/*/app' b='/home/*/.cache/app'
	matched "map $a a\nmap $b b" /home/bob/.cache/app/f 1
	matched "map $b b\nmap $a a" /home/bob/.cache/app/f 2
	matched "map $b b\nmap $a a" /home/eve/.cache/app/f 1
	matched 'map /*/*/* a\nmap /srv/mail b' /srv/mail/x 1
	matched 'map /*/mail a\nmap /srv/* b\nmap /srv/mail c' /srv/mail/x 3
	matched 'map /*/mail a\nmap /srv/* -\nmap /* c' /srv/mail/x 2
	matched 'map / a\nmap /* b' / 1
	matched 'map / a\nmap /* b' /x 2
	verdict
}

test_escapes_match_the_byte_itself() {
	matched "$RULES" '/with space/x' 5
	matched "$RULES" '/with\040space/x' none
	matched "$RULES" '/back\slash/x' 6
	matched "$RULES" '/back\\slash/x' none
	# Escapes are longer than what they stand for: the longest prefix is that of the path, not that of the text.
	matched 'map /\\141 a\nmap /a/b b' /a/b/c 2
	verdict
}

test_what_the_kernel_prints_for_no_file_is_not_mapped() {
	matched 'map / all' 'pipe:[1]' none
	matched 'map / all' '(unreachable)/srv' none
	matched 'map / all' '' none
	verdict
}

test_a_broken_text_may_mean_a_path() {
	local text path expected
	while IFS='|' read -r text path expected; do
		same "'$path' in '$text'" "$expected" "$(printf '%b' "$text" | "$PROBE" may "$path")"
	done <<-'END'
		map /srv/mail m/%r bad=1|/srv/mail/x|yes
		map /srv/mail/|/srv/mail|yes
		mpa /srv/mail/ x|/srv/mail/y|yes
		# map /srv/mail m|/srv/mail/x|no
		keep 1 # /srv/mail|/srv/mail/x|no
		map /srv/mail m|/etc/passwd|no
		map /srv/mail m|/srv/mai|no
		map "/srv/my mail" m|/srv/my mail/x|yes
		map /srv/{mail,spool} m|/srv/spool/x|yes
		map /srv/*/x m|/srv/spool/x|yes
		map /srv/a\\040b m|/srv/a b|yes
		map /srv//mail m|/srv/mail/x|yes
		map /srv/./mail m|/srv/mail/x|yes
		map /srv/mail, m|/srv/mail/x|yes
		map /srv/a\rmap /srv/b c\r|/srv/b/x|yes
		root /\nmap /srv x%q|/etc/passwd|no
		root /\nmap /srv x%q|/srv/x|yes
		map / x%q|/etc/passwd|yes
		metrics_file /srv/m\nmap /a x%q|/srv/m/x|no
		map /srv jobs/%r bad|/etc|no
	END
	same 'an empty text' no "$("$PROBE" may /a </dev/null)"
	verdict
}

test_the_suffix_of_a_deleted_file_is_no_part_of_its_name() {
	same 'unlinked' /a/b "$("$PROBE" deleted '/a/b (deleted)' 0)"
	same 'it is its name' '/a/b (deleted)' "$("$PROBE" deleted '/a/b (deleted)' 1)"
	same 'once' '/a/b (deleted)' "$("$PROBE" deleted '/a/b (deleted) (deleted)' 0)"
	same 'no suffix' /a/b "$("$PROBE" deleted /a/b 0)"
	same 'nothing else' ' (deleted)' "$("$PROBE" deleted ' (deleted)' 0)"
	verdict
}

test_damaged_files_are_refused_sanely() {
	same 'damaged copies' sane "$(sed 's/^#\([a-z]\)/\1/' "$TOP/conf/zkflock.conf" | "$PROBE" mutate 50000)"
	verdict
}

# ---- lock name -> znode ----------------------------------------------------------------------------------------------

test_names_are_encoded() {
	local name expected
	while IFS='|' read -r name expected; do
		printf -v name '%b' "$name"
		same "'$name'" "names%2F$expected" "$(field znode "$T/c/$name")"
	done <<-'END'
		plain|plain
		aZ09._-+,=@:|aZ09._-+,=@:
		a b|a%20b
		a%20b|a%2520b
		a%2Fb|a%252Fb
		...|...
		zookeeper|zookeeper
		~tilde|%7Etilde
		\303\244|%C3%A4
		a\nb|a%0Ab
		a\tb|a%09b
		\0377|%FF
		\0177|%7F
		"'*$!|%22%27%2A%24%21
	END
	verdict
}

# named PREFIX NAME PATH LOCK - the lock name of PATH below $T/p by one rule; prefix and path are below $T/p
named() {
	mkdir -p "$(dirname "$T/p$3")"
	printf 'map %s %s\n' "$T/p$1" "$2" >"$T/named.conf"
	same "$2 of $3 below $1" "$4" \
		"$(ZKFLOCK_CONF=$T/named.conf "$BUILD/zkflock" check "$T/p$3" | sed -n 's/^  lock *//p')"
}

test_parts_of_the_path_become_names() {
	named /srv x/%r /srv/a/b/f x/a/b/f
	named /srv x/%b /srv/a/b/f x/f
	named /srv x/%d /srv/a/b/f x/a/b
	named /srv %d/%b /srv/a/b/f a/b/f
	# directly below the prefix, and the prefix itself
	named /srv x/%d /srv/f x/.
	named /srv %d/%b /srv/f ./f
	named /srv x/%d /srv x/.
	named /srv x/%b /srv x/srv
	named /srv/job.lock %b /srv/job.lock job.lock
	named '/home/*/app' app-%1 /home/alice/app/f app-alice
	named '/home/*/*/app' %2+%1/%r /home/alice/x/app/d/f x+alice/d/f
	named '/home/*' %1/%d/%b '/home/a b/f' 'a b/./f'
	named '/home/*' %1 '/home/%1' %1
	named /srv 100%%-%b '/srv/%d' 100%-%d
	verdict
}

# Only names without a constant part can be ZooKeeper's own.
test_reserved_names_are_encoded() {
	printf 'map %s %%r\n' "$T/c" >"$T/bare.conf"
	local conf=$T/bare.conf name expected
	for name in .:%2E zookeeper:%7Aookeeper zookeeperx:zookeeperx ...:...; do
		expected=${name#*:}
		same "$name" "$expected" \
			"$(ZKFLOCK_CONF=$conf "$BUILD/zkflock" check "$T/c/${name%:*}" | sed -n 's/^  znode *//p')"
	done
	verdict
}

test_encoding_is_one_to_one_and_short() {
	local long deep names=() name znodes i
	mkdir -p "$T/c/a"
	printf -v long '%0255d' 0
	deep=$T/c
	for ((i = 0; i < 15; i++)); do deep+=/${long:0:250}; done
	deep+=/${long:0:$((3990 - ${#deep}))}
	mkdir -p "$deep" || { fail 'no deep directory'; return; }
	for name in 'a b' 'a%20b' 'a%2520b' 'a%2Fb' 'a/b' a+b ä $'\xc3' $'\xff' $'a\nb' $'a\tb' 'a\012b' 'a\tb' ... .... \
		zookeeper Zookeeper '~' '%7E' "$long" "${long:1}" "${long:1}1" "1${long:1}" "${long:1:112}" \
		"${long:1:113}"; do
		names+=("$T/c/$name")
	done
	names+=("$deep" "$deep/${long:0:10}" "$deep/${long:0:9}1")
	znodes=$(check "${names[@]}" | sed -n 's/^  znode *//p')
	same 'each has one' "${#names[@]}" "$(wc -l <<<"$znodes")"
	same 'no two are the same' '' "$(sort <<<"$znodes" | uniq -d)"
	same 'none is longer' '' "$(awk 'length > 120' <<<"$znodes")"
	same 'nothing but what ZooKeeper takes' '' "$(grep -vE '^[A-Za-z0-9._+,=@:%~-]+$' <<<"$znodes")"
	same 'a name of 120 stays' "names%2F${long:1:112}" "$(field znode "$T/c/${long:1:112}")"
	verdict
}

test_a_cut_name_ends_with_its_hash() {
	local name=names/ long hash
	printf -v long '%0150d' 0
	hash=$(printf '%s' "$name$long" | sha256sum)
	same 'a long name' "names%2F${long:0:79}~${hash:0:32}" "$(field znode "$T/c/$long")"
	# 87 bytes before the hash, and no escape is cut in two.
	printf -v long '%77s%150d' ' ' 0
	long=${long// /%}
	has 'a cut name' '%25~' "$(field znode "$T/c/$long")"
	same 'whole escapes only' '' "$(field znode "$T/c/$long" | grep -E '%.?~')"
	verdict
}

# ---- the tool --------------------------------------------------------------------------------------------------------

test_check_shows_the_rule() {
	local out
	mkdir -p "$T/c/d" "$T/c/g/a b"
	printf '%s\n' "map $T/c jobs/%r" "map $T/c/d -" '#' "map $T/c/g/a\\040b g%%/\\040 keep=2m" >"$T/check.conf"
	ln -sfn "$T/c/g" "$T/link"
	out=$(ZKFLOCK_CONF=$T/check.conf "$BUILD/zkflock" check "$T/link/a b/new")
	same 'exit status' 0 $?
	has 'what it says' "$T/c/g/a b/new" "$out"
	has 'what it says' "rule      $T/check.conf:4: map $T/c/g/a\\040b g%%/\\040" "$out"
	has 'what it says' 'kind      group' "$out"
	has 'what it says' 'lock      g%/ ' "$out"
	has 'what it says' 'znode     g%25%2F%20' "$out"
	has 'what it says' 'keep=120000ms' "$out"
	has 'what it says' 'warning   a group:' "$out"
	out=$(ZKFLOCK_CONF=$T/check.conf "$BUILD/zkflock" check "$T/c" "$T/c/d/x" /)
	same 'some are not mapped' 1 $?
	has 'what it says' 'lock      jobs/.' "$out"
	has 'what it says' "$T/check.conf:2: map $T/c/d -" "$out"
	has 'what it says' 'not mapped: the rule excludes it' "$out"
	has 'what it says' 'not mapped: no rule' "$out"
	verdict
}

# all LINE... - what check --all says of a configuration of these lines, its name cut off
all() {
	printf '%b\n' "$@" >"$T/all.conf"
	ZKFLOCK_CONF=$T/all.conf "$BUILD/zkflock" check --all | sed "s|$T/||g"
}

test_check_all_prints_the_effective_table() {
	local out
	mkdir -p "$T/all.conf.d"
	printf 'map /b -\nkeep 5s\n' >"$T/all.conf.d/10-b.conf"
	printf '#\nmap /c c on_loss=kill\n' >"$T/all.conf.d/9-c.conf"
	printf 'nonsense\n' >"$T/all.conf.d/9-c.conf.dpkg-old"
	printf 'nonsense\n' >"$T/all.conf.d/.hidden.conf"
	out=$(all 'ensemble zk1:2181' 'map /a a/%r keep=1s' 'root /' \
		'metrics_file /var/lib/zkflock/metrics.prom')
	same 'all' 'all.conf:1: ensemble zk1:2181
all.conf:3: root /
default: session_timeout 10000ms
default: tick_time 2000ms
default: connect_timeout 5000ms
all.conf.d/10-b.conf:2: keep 5000ms
all.conf:4: metrics_file /var/lib/zkflock/metrics.prom
default: credentials (none)
default: user_connections 4096
default: user_locks 4096
all.conf:2: map /a a/%r on_loss=freeze unavailable=wait keep=1000ms
all.conf.d/10-b.conf:1: map /b -
all.conf.d/9-c.conf:2: map /c c on_loss=kill unavailable=wait keep=5000ms
  warning   a group: the name has none of %r, %p and %b, so files below the prefix share one lock' "$out"
	rm -r "$T/all.conf.d"
	ZKFLOCK_CONF=$T/all.conf "$BUILD/zkflock" check --all "$T" >"$T/out" 2>&1
	same 'with a path' 64 $?
	all >/dev/null
	same 'an empty one' 0 $?
	verdict
}

# A link in a prefix: the kernel prints another path, and the rule never matches.  Whoever asks is told, before the first lock.
test_a_prefix_that_goes_through_a_link() {
	local out
	mkdir -p "$T/links/real/sub"
	ln -sfn real "$T/links/link"
	out=$(all "map $T/links/link/sub a/%r" "map $T/links/real/not/there b/%r" "map $T/links/link/*/x c/%r%1" \
		"map $T/links/link/later d/%r")
	has 'the prefix' "all.conf:1: links/link/sub goes through a symbolic link" "$out"
	has 'what to write' 'meets no file: write links/real/sub' "$out"
	has 'before a pattern' 'all.conf:3: links/link/*/x goes through a symbolic link, so the rule meets no file: write links/real' "$out"
	has 'not there yet' 'so the rule meets no file: write links/real/later' "$out"
	same 'these only' 3 "$(grep -c symbolic <<<"$out")"
	out=$(ZKFLOCK_CONF=$T/all.conf "$BUILD/zkflock" check "$T/links/link/sub/file")
	same 'not mapped' 1 $?
	has 'why' "all.conf:1: $T/links/link/sub goes through a symbolic link" "$out"
	out=$(ZKFLOCK_CONF=$T/all.conf "$BUILD/zkflock" doctor 2>&1)
	has 'doctor' "write $T/links/real/sub in its place" "$out"
	verdict
}

# warns WORD... - a configuration of the lines before -- makes check --all say each WORD, and with none nothing
warns() {
	local lines=() out word
	while [ "$1" != -- ]; do lines+=("$1") && shift; done
	shift
	out=$(all "${lines[@]}" | grep '^  warning')
	for word; do has "${lines[*]}" "$word" "$out"; done
	[ $# -gt 0 ] || same "${lines[*]}" '' "$out"
}

test_check_all_warns() {
	warns 'map /a a/%r' 'map /b b/%r' 'map /c -' 'map /*/d d/%p' --
	warns 'map /a %d' -- 'a group:'
	warns 'map /a %b' -- '%b without %d'
	warns 'map /a %d/%b' --
	warns 'map /*/a x/%r' -- 'no %1 in the name'
	warns 'map /*/a x/%1/%r' --
	warns 'map /a s/%r' 'map /b s/%r' -- 'a group with all.conf:2' 'a group with all.conf:1'
	warns 'map /a s' 'map /b s' -- 'a group with all.conf:2' 'a group with all.conf:1'
	warns 'map /a s/%r' 'map /b s/x/%r' -- 'a group with'
	warns 'map /a s/%r' 'map /b s%r' -- 'a group with'
	warns 'map /a s/%b/x' 'map /b s/y/%r' -- 'a group with'
	warns 'map /a %d/%b' 'map /b s/%b/y' -- 'a group with'
	warns 'map /a %d/%b/x' 'map /b s/%d/%b/y' --
	warns 'map /a s/%b' 'map /b s/x/%b' -- '%b without'
	same 'a component has no slash' '' "$(all 'map /a s/%b' 'map /b s/x/%b' | grep 'a group with')"
	warns 'map /a s/%r' 'map /b s/x' -- 'do NOT exclude each other'
	warns 'map /a/*/c x/%p' 'map /a/b/* y/%p' -- 'covered by all.conf:2 too; there the other wins' \
		'covered by all.conf:1 too; there this rule wins'
	warns 'map /a/*/c x/%p' 'map /a/b/c y/%p' --
	warns 'map /a/*/c x/%p' 'map /a/b/d y/%p' --
	warns 'map /a/*/c x/%p' 'map /a/b/*/d y/%p' --
	verdict
}

# ---- several files ---------------------------------------------------------------------------------------------------

# dropped NAME TEXT - a file beside the main one
dropped() {
	mkdir -p "$T/many.conf.d"
	printf '%b' "$2" >"$T/many.conf.d/$1"
}

many() { ZKFLOCK_CONF=$T/many.conf "$BUILD/zkflock" check "${@:---all}" 2>&1 | sed "s|$T/||g"; }

test_errors_name_the_file_they_are_in() {
	printf 'keep 1s\nmap /a a\n' >"$T/many.conf"
	dropped 10.conf '\n\nmap /b\n'
	same 'a bad line' \
		'many.conf.d/10.conf:3: map without a lock name; allowed is: map PREFIX NAME [option=value...]' "$(many)"
	dropped 10.conf '#\nmap /a x'
	same 'a prefix of the main file' "many.conf.d/10.conf:2: prefix '/a' is mapped in 'many.conf' at line 2 already; \
allowed is one map for a prefix" "$(many)"
	dropped 10.conf 'map /b x'
	dropped 20.conf 'map /b x\n'
	has 'a prefix of another file' "many.conf.d/20.conf:1: prefix '/b' is mapped in '10.conf' at line 1" "$(many)"
	dropped 20.conf 'keep 2s\n'
	has 'a setting of another file' "20.conf:1: keep is set in 'many.conf' at line 1 already" "$(many)"
	dropped 20.conf 'tick_time 6s\n'
	has 'times that do not fit' 'many.conf.d/20.conf:1: session_timeout 10000ms is less' "$(many)"
	rm "$T/many.conf.d/20.conf"
	ln -s nowhere "$T/many.conf.d/20.conf"
	has 'a link to nowhere' 'many.conf.d/20.conf: No such file' "$(many)"
	rm "$T/many.conf.d/20.conf"
	mkdir "$T/many.conf.d/20.conf"
	has 'a directory' 'many.conf.d/20.conf: Is a directory' "$(many)"
	rm -r "$T/many.conf.d"
	verdict
}

test_files_are_read_in_byte_order() {
	local name i=0
	printf '' >"$T/many.conf"
	for name in z.conf a.conf B.conf 10.conf 9.conf $'\xff.conf' a.b.conf 'a b.conf'; do
		dropped "$name" "map /$((++i)) x$i/%r"
	done
	same 'order' '10.conf 9.conf B.conf a b.conf a.b.conf a.conf z.conf '$'\xff''.conf' \
		"$(many | sed -n 's|^many.conf.d/\(.*\):1: map.*|\1|p' | paste -sd' ')"
	rm -r "$T/many.conf.d"
	verdict
}

test_the_bounds_of_the_files() {
	local i
	printf '' >"$T/many.conf"
	for ((i = 0; i < 64; i++)); do dropped "$i.conf" "map /$i x$i/%r"; done
	same '64 files' 64 "$(many | grep -c ' map ')"
	dropped 64.conf ''
	has '65 files' 'many.conf.d: more than 64 files' "$(many)"
	rm -r "$T/many.conf.d"
	head -c 1048576 /dev/zero | tr '\0' '\n' >"$T/many.conf"
	same '1 MiB' 9 "$(many | wc -l)"
	dropped 1.conf 'a'
	has 'a byte more' 'many.conf.d/1.conf: more than 1 MiB' "$(many)"
	rm -r "$T/many.conf.d"
	for ((i = 0; i < 4096; i++)); do echo "map /$i/x -"; done >"$T/many.conf"
	same '4096 rules' 4096 "$(many | grep -c ' map ')"
	dropped 1.conf '\nmap /a b'
	has 'a rule more' 'many.conf.d/1.conf:2: more rules than fit; allowed are 4096' "$(many)"
	rm -r "$T/many.conf.d"
	verdict
}

test_check_follows_a_dangling_link() {
	ln -sfn not-yet "$T/c/dangling"
	same 'where it points to' names/not-yet "$(field lock "$T/c/dangling")"
	ln -sfn loop "$T/c/loop"
	check "$T/c/loop" >/dev/null
	same 'a loop is not mapped' 1 $?
	verdict
}

test_a_broken_configuration_stops_the_tool() {
	local out
	printf 'keep 1s\nmap /a\n' >"$T/bad.conf"
	out=$(ZKFLOCK_CONF=$T/bad.conf "$BUILD/zkflock" check / 2>&1)
	same 'check' 2 $?
	same 'its message' \
		"$T/bad.conf:2: map without a lock name; allowed is: map PREFIX NAME [option=value...]" "$out"
	out=$(ZKFLOCK_CONF=$T/bad.conf "$BUILD/zkflock" run true 2>&1)
	same 'run' 125 $?
	has 'what it says' "$T/bad.conf:2: " "$out"
	out=$(ZKFLOCK_CONF=$T/none.conf "$BUILD/zkflock" check / 2>&1)
	same 'no file' 2 $?
	has 'what it says' "$T/none.conf: No such file" "$out"
	verdict
}

# Any library does: what is preloaded is not the subject.
test_run_preloads_the_library_beside_it() {
	local library tool="$T/bin/zkflock" out
	library=$(ldd "$BUILD/zkflock" | awk '$1 ~ /^libmd/ { print $3 }')
	mkdir -p "$T/bin" "$T/lib"
	cp "$BUILD/zkflock" "$tool"
	run() { ZKFLOCK_CONF=$T/zkflock.conf "$tool" run "$@"; }

	printf 'no library' >"$T/bin/libzkflock.so"
	run true 2>/dev/null
	same 'not a library' 125 $?
	rm "$T/bin/libzkflock.so"
	cp "$library" "$T/lib/libzkflock.so"
	same 'from ../lib' "$T/bin/../lib/libzkflock.so" "$(run printenv LD_PRELOAD)"
	cp "$library" "$T/bin/libzkflock.so"
	same 'from its own directory' "$T/bin/libzkflock.so" "$(run -- printenv LD_PRELOAD)"
	same 'before what is there' "$T/bin/libzkflock.so:$library" "$(LD_PRELOAD=$library run printenv LD_PRELOAD)"
	same 'log level' error "$(run printenv ZKFLOCK_LOG)"
	same 'log level that is set' debug "$(ZKFLOCK_LOG=debug run printenv ZKFLOCK_LOG)"
	# shellcheck disable=SC2016
	same 'arguments' '--help|a b||--|' "$(run sh -c 'printf "%s|" "$@"' sh --help 'a b' '' --)"
	run sh -c 'exit 7'
	same 'its exit status' 7 $?
	run "$T/none" 2>/dev/null
	same 'not found' 127 $?
	run no-such-command-anywhere 2>/dev/null
	same 'not found in PATH' 127 $?
	run "$T/zkflock.conf" 2>/dev/null
	same 'not executable' 126 $?
	run "$T" 2>/dev/null
	same 'a directory' 126 $?
	run 2>/dev/null
	same 'no command' 125 $?
	printf 'echo shell' >"$T/script" && chmod +x "$T/script"
	same 'a script without #!' shell "$(run "$T/script" 2>&1)"
	printf '#! /bin/sh -e\necho $-' >"$T/script"
	has 'a script' e "$(run "$T/script" 2>&1)"
	verdict
}

test_tools_say_when_no_keeper_answers() {
	local out
	mkdir -p "$T/run"
	out=$(ZKFLOCK_RUNTIME_DIR=$T/run "$BUILD/zkflock" list 2>&1)
	same 'exit status' 3 $?
	has 'message' "no keeper answers in $T/run: No such file or directory; a keeper starts with the first cluster lock" "$out"
	out=$(ZKFLOCK_RUNTIME_DIR=$T/run "$BUILD/zkflock" reload 2>&1)
	same 'reload: exit status' 3 $?
	has 'reload: message' "no keeper answers in $T/run: No such file" "$out"
	verdict
}

test_the_example_is_right() {
	same 'as it is' "$DEFAULTS" "$("$PROBE" parse <"$TOP/conf/zkflock.conf")"
	same 'with every comment mark taken away' \
		'ensemble=zk1:2181,zk2:2181,zk3:2181 root=/zkflock session=10000 tick=2000 connect=5000 keep=60000 credentials=/etc/zkflock.secret connections=4096 locks=4096' \
		"$(sed 's/^#\([a-z]\)/\1/' "$TOP/conf/zkflock.conf" | "$PROBE" parse | head -n 1)"
	same 'its rules' 6 "$(sed 's/^#\([a-z]\)/\1/' "$TOP/conf/zkflock.conf" | "$PROBE" parse | grep -c '^[0-9]* /')"
	verdict
}

# shellcheck source=/dev/null
. shunit2

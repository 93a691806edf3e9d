#!/bin/bash
# tests/91_manual_test.sh - the manual: what the code knows stands in a page, and the pages can be read
# modes: native
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2154
. "$(dirname "$0")/lib.sh"
cd "$TESTS/.." || exit

# plain FILE - a page as text, without markup: \- is a minus, and a macro's arguments stand together as they are printed
plain() { sed 's/\\f[BIRP]//g; s/\\-/-/g; s/\\&//g; s/\\e/\\/g; s/" *"//g; s/"//g' "$1"; }

# paragraph PAGE WORD - from the .TP whose tag begins with WORD to the next one that is not below it
paragraph() {
	plain "$1" | awk -v word="$2" '
		/^\.RS/ { depth++ }
		/^\.RE/ { depth-- }
		/^\.S[HS]/ { found = 0 }
		/^\.TP/ && !depth { found = 0; tag = 1; next }
		tag { tag = 0; split($2, w, "="); found = w[1] == word }
		found'
}

# The words that the parser compares with.
settings() {
	echo map
	sed -n '/_setting_names\[\] = {/,/;/p; /option_names\[\] = {/,/;/p' mapping/*.c | grep -o '"[a-z_]*"' | tr -d '"' | sort -u
}

# needs TEXT WORD LABEL - adds to $missing what does not stand in a text
needs() { [[ $1 == *"$2"* ]] || missing+="$3: $2"$'\n'; }

test_every_setting_is_explained_whole() {
	local name part text count=0 missing='' example
	example=$(<conf/zkflock.conf)
	for name in $(settings); do
		((++count))
		text=$(paragraph man/zkflock.conf.5 "$name")
		for part in Type: Default: Example:; do
			needs "$text" "$part" "zkflock.conf(5), $name"
		done
		[[ $text != *'Type: duration'* ]] || needs "$text" Range: "zkflock.conf(5), $name"
		needs "$example" "$name" conf/zkflock.conf
	done
	assertEquals 'nothing is missing' '' "$missing"
	assertTrue "settings were found: $count" "[ $count -ge 9 ]"
}

# section PAGE HEADING - from the first of these .SS to the next heading
section() { plain "$1" | awk -v heading=".SS $2" '/^\.S[HS]/ { found = $0 == heading && !seen; seen = seen || found } found'; }

# options - those of a text that --help prints on standard input; of letters that stand together, as in [-fy], each
options() { grep -oE '(^|[ [,|])--?[a-zA-Z][a-z-]*' | tr -d ' [,|' | sed '/^--/!s/[a-zA-Z]/\n-&/2g' | sort -u; }

# needs_option TEXT OPTION LABEL - as needs; not what an option's name only begins with
needs_option() { [[ $1 =~ (^|[^a-zA-Z-])"$2"($|[^a-zA-Z-]) ]] || missing+="$3: $2"$'\n'; }

# What --help tells of must stand in the page, below its verb; the options of who stand below list.
test_every_option_and_verb_stands_in_a_page() {
	local verb option text count=0 missing='' verbs
	verbs=$("$BUILD/zkflock" nonsense 2>&1 | sed 's/.*allowed are//; s/,//g')
	for verb in $verbs; do
		needs "$("$BUILD/zkflock" --help)" $'\n'"  $verb " 'zkflock --help'
		text=$(section man/zkflock.1 "zkflock $verb")
		needs "$text" "zkflock $verb" 'zkflock(1)'
		[ "$verb" != who ] || text+=$(section man/zkflock.1 'zkflock list')
		for option in $("$BUILD/zkflock" "$verb" --help | options); do
			((++count))
			needs_option "$text" "$option" "zkflock(1), $verb"
		done
	done
	assertEquals 'nothing is missing' '' "$missing"
	assertTrue "verbs and options were found: $verbs, $count" "[ $(wc -w <<<"$verbs") -ge 10 ] && [ $count -ge 40 ]"
	text=$(plain man/zkflockd.8)
	count=0 missing=''
	for option in $("$BUILD/zkflockd" --help | options); do
		((++count))
		needs_option "$text" "$option" 'zkflockd(8)'
	done
	assertEquals 'nothing of the keeper is missing' '' "$missing"
	assertTrue "the keeper's options were found: $count" "[ $count -ge 4 ]"
}

test_every_variable_stands_in_a_page() {
	local name count=0 missing='' pages
	pages=$(cat man/*)
	for name in $(grep -ohE 'getenv\("[A-Z_]+"\)|ZKFLOCK_[A-Z_]+' preload/*.c keeper/*.c cli/*.c mapping/*.c | grep -oE '[A-Z_]{3,}' |
		grep -vE '^ZKFLOCK_(FAULT|TEST)_' | sort -u); do
		((++count))
		needs "$pages" "$name" man
	done
	assertEquals 'nothing is missing' '' "$missing"
	assertTrue "variables were found: $count" "[ $count -ge 6 ]"
}

test_the_pages_render() {
	local page
	for page in man/*; do
		if command -v mandoc >/dev/null; then
			assertEquals "$page: mandoc" '' "$(mandoc -Tlint -W warning "$page" 2>&1)"
		fi
		if command -v groff >/dev/null; then
			assertEquals "$page: groff" '' "$(groff -t -man -ww -z -Tutf8 "$page" 2>&1)"
		fi
	done
	command -v mandoc >/dev/null || command -v groff >/dev/null || skip 'neither mandoc nor groff'
}

test_what_refers_to_something_finds_it() {
	local file
	for file in $(grep -oE '\]\([a-zA-Z/.]+[0-9]?\)' README.md | tr -d ']()'); do
		assertTrue "README.md: $file" "[ -e '$file' ]"
	done
}

# A recipe whose rule is one lock of many files by mistake would lock a database as a whole.
test_the_recipes_rules_are_of_files() {
	local out rules
	rules=$(sed -n '/^\.SH RECIPES/,/^\.SH THREATS/p' man/zkflock.7 | plain /dev/stdin | grep -oE '^map [^ ]+ +[^ ]+')
	assertTrue "rules: $rules" "[ $(wc -l <<<"$rules") -ge 3 ]"
	echo "$rules" >"$SHUNIT_TMPDIR/recipes.conf"
	out=$(ZKFLOCK_CONF=$SHUNIT_TMPDIR/recipes.conf "$BUILD/zkflock" check --all 2>&1)
	assertEquals "$out" 0 $?
	assertNotContains "$out" 'a group'
}

. shunit2

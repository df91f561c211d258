# SPDX-License-Identifier: LGPL-2.1-or-later
# Running tests and counting them, for check.  What did not run to its end counts as a failure.  Sourced
# after lib.sh, not run; scripts/test-tally tests it.

passed=0 failed=0 skipped=0
tally() {
	passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# The number in front of a word in a line: "12 passed, 1 failed".
count() {
	local n
	n=$(grep -oE "[0-9]+ $2" <<<"$1" | head -n 1 | cut -d' ' -f1)
	echo "${n:-0}"
}

# The sum of the numbers behind "Ok:" and the like.  count_log LOG WORDS, WORDS an extended regular expression.
count_log() {
	awk -v words="^($2): *[0-9]" '$0 ~ words {n += $NF} END {print n + 0}' <<<"$1"
}

# Counts; failures that a program's exit status tells of, and its counts do not, are one.
# tally_run STATUS PASSED FAILED SKIPPED
tally_run() {
	local bad=$3
	[ "$1" -eq 0 ] || [ "$3" -gt 0 ] || bad=1
	[ $(($2 + bad + $4)) -gt 0 ] || bad=1
	tally "$2" "$bad" "$4"
}

# Builds; a failed build is one failed test.  setup NAME [OPTION...], with CC in the environment.
setup() {
	local dir=$1
	shift
	(build "$dir" "$@") && return 0
	tally 0 1 0
	return 1
}

# The cmocka programs and replayed corpora of a build, all or those named.  meson_tests DIR [TEST...]
meson_tests() {
	local log=$1/meson-logs/testlog.txt out status
	rm -f "$log"
	meson test -C "$@" --no-rebuild --print-errorlogs 2>&1 | sed '/^ninja:/d'
	status=${PIPESTATUS[0]}
	out=$(sed -n '/^Ok:/,$p' "$log" 2>/dev/null)
	tally_run "$status" "$(count_log "$out" 'Ok|Expected Fail')" \
		"$(count_log "$out" 'Fail|Unexpected Pass|Timeout')" "$(count_log "$out" Skipped)"
}

# pytest on folders.  pytests BINARY ARGUMENT...
pytests() {
	local log line status program=$1
	shift
	log=$(mktemp)
	TORPOR=$program /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider "$@" 2>&1 </dev/null | tee "$log"
	status=${PIPESTATUS[0]}
	line=$(grep -E '^[0-9]+ (passed|failed|skipped|error|deselected)|^=+ .*(passed|failed|error|skipped)' "$log" | tail -n 1)
	tally_run "$status" "$(count "$line" passed)" "$(($(count "$line" failed) + $(count "$line" error)))" \
		"$(count "$line" skipped)"
	rm -f "$log"
}

# A script that is one test: 0 passed, 77 skipped.  single NAME COMMAND...
single() {
	local name=$1 rc
	shift
	"$@" </dev/null
	rc=$?
	case $rc in
	0) tally 1 0 0 ;;
	77) tally 0 0 1 ;;
	*) say "FAILED: $name"; tally 0 1 0 ;;
	esac
}

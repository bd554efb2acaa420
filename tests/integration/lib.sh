# SPDX-License-Identifier: Apache-2.0
# Shared by the integration tests: TAP, a cluster of real processes in a directory of its own, and its end whatever happens.
# A test file sets nothing, sources this, calls check/exits/refused with sentences as names, and ends with tap_end.
# Nothing here waits for time where there is an event: `await` polls what another process shows of itself, and has an end.
# shellcheck shell=bash
set -u

ROS2_SRC=${ROS2_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
ROS2_BIN=${ROS2_BIN:-$ROS2_SRC/build/dev/bin}
ROS2_TESTBIN=${ROS2_TESTBIN:-$ROS2_BIN/../tests}
export ROS2_BIN PATH="$ROS2_BIN:$ROS2_TESTBIN:$PATH"
unset ROS2CTL_CONTEXT ROS2CTL_CONTROLLER ROS2_AGENT ROS2_CERT ROS2_KEY ROS2_CA
unset http_proxy https_proxy grpc_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
dir=$(mktemp -d "${TMPDIR:-/tmp}/ros2-it.XXXXXX")
tap_n=0
tap_failed=0
jobs_started=()
mounted=()

# With -e, no input at all is a failure, too: jq 1.6 lets it pass, and a command that said nothing would be what was expected.
jq() {
	local said rc
	case $1 in
	--*) command jq "$@" ;;
	-*e*)
		said=$(command jq "$@")
		rc=$?
		[ -n "$said" ] || return $((rc ? rc : 4))
		printf '%s\n' "$said"
		return $rc
		;;
	*) command jq "$@" ;;
	esac
}

# A process that a test started itself is named by pid and start time: a pid may be used again.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

tap_cleanup() {
	local f job
	trap '' INT TERM
	exec 2>/dev/null # what the shell says of those it kills
	for job in "${jobs_started[@]}"; do
		if [ "$(start_time "${job%:*}")" = "${job#*:}" ]; then
			kill -CONT "${job%:*}" 2>/dev/null
			kill -KILL "${job%:*}" 2>/dev/null
		fi
	done
	if [ -d "$dir/run" ]; then
		"$ROS2_SRC/tools/dev-cluster" down --dir "$dir" --bin "$ROS2_BIN" >/dev/null 2>&1
	fi
	if [ "$tap_failed" -gt 0 ]; then
		for f in "$dir"/logs/*.log; do
			[ -f "$f" ] && { echo "# --- $(basename "$f")"; tail -n "${ROS2_LOG_LINES:-20}" "$f" | sed 's/^/# /'; }
		done
	fi
	for f in "${mounted[@]}"; do umount -l "$f"; done
	if [ -n "${ROS2_KEEP:-}" ]; then
		echo "# kept: $dir"
	else
		rm -rf "$dir"
	fi
}
trap tap_cleanup EXIT
trap 'exit 130' INT TERM

tap() { # ok|not, NAME
	tap_n=$((tap_n + 1))
	if [ "$1" = ok ]; then
		echo "ok $tap_n - $2"
	else
		tap_failed=$((tap_failed + 1))
		echo "not ok $tap_n - $2"
	fi
}

tap_skip() { # NAME REASON
	tap_n=$((tap_n + 1))
	echo "ok $tap_n - $1 # SKIP $2"
}

# bad NAME WORDS: a failure, what was expected, and the end of what the command said.
bad() {
	tap not "$1"
	echo "# $2"
	grep -hE -A10 'Direct leak|ERROR: |runtime error|WARNING: ThreadSanitizer' "$dir/out" "$dir/err" "$dir"/sanitizer.* 2>/dev/null | head -n 30 | sed 's/^/# /'
	tail -n 12 "$dir/out" "$dir/err" 2>/dev/null | sed 's/^/# /'
	return 1
}

# check NAME COMMAND...: it ends with 0.
check() {
	local name=$1 rc
	shift
	"$@" >"$dir/out" 2>"$dir/err"
	rc=$?
	[ $rc -eq 0 ] || { bad "$name" "exit $rc of: $*"; return 1; }
	tap ok "$name"
}

# exits CODE NAME PATTERN COMMAND...: it ends with CODE and says PATTERN (extended regular expression).
exits() {
	local code=$1 name=$2 pattern=$3 rc
	shift 3
	"$@" >"$dir/out" 2>"$dir/err" </dev/null
	rc=$?
	[ $rc -eq "$code" ] || { bad "$name" "exit $rc, expected $code, of: $*"; return 1; }
	cat "$dir/out" "$dir/err" | grep -Eq -- "$pattern" || { bad "$name" "exit $rc, but no /$pattern/, of: $*"; return 1; }
	tap ok "$name"
}

# refused NAME PATTERN COMMAND...: it fails by its own decision (no crash, no timeout), and says PATTERN.
refused() {
	local name=$1 pattern=$2 rc
	shift 2
	"$@" >"$dir/out" 2>"$dir/err" </dev/null
	rc=$?
	if [ $rc -eq 0 ] || [ $rc -ge 124 ] || ! cat "$dir/out" "$dir/err" | grep -Eq -- "$pattern"; then
		bad "$name" "exit $rc, expected a refusal with /$pattern/, of: $*"
		return 1
	fi
	tap ok "$name"
}

# says PATTERN COMMAND...: for use in check.
says() {
	local pattern=$1
	shift
	"$@" >"$dir/said" 2>&1
	grep -Eq -- "$pattern" "$dir/said" || { cat "$dir/said"; echo "no /$pattern/ in it"; return 1; }
}

# says_not PATTERN COMMAND...: the command succeeds and does not say PATTERN.
says_not() {
	local pattern=$1
	shift
	"$@" >"$dir/said" 2>&1 || { cat "$dir/said"; return 1; }
	! grep -E -- "$pattern" "$dir/said"
}

skip_all() {
	echo "1..0 # SKIP $1"
	exit 77
}

# Under ThreadSanitizer everything takes several times as long, and its shadow counts as memory of the process: bounds of time and
# growth are wider there by this factor. What they mean is judged in the other builds.
tsan_factor=1
ldd "$(command -v ros2-agent)" 2>/dev/null | grep -q libtsan && tsan_factor=6

# What a sanitizer has to say of any process of the test goes into files of $dir, where tap_end looks.
for v in ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS; do
	export "$v=${!v:+${!v}:}log_path=$dir/sanitizer"
done
unset v
sanitizers_silent() {
	cluster down || return 1
	[ -z "$(compgen -G "$dir/sanitizer.*")" ] || { cat "$dir"/sanitizer.*; return 1; }
}

tap_end() {
	talk_end
	[ ! -d "$dir/run" ] || check "the processes end well, and no sanitizer had anything to say" sanitizers_silent
	echo "1..$tap_n"
	[ "$tap_failed" -eq 0 ]
	exit $?
}

now_ms() {
	local t=${EPOCHREALTIME/[.,]/}
	echo $((t / 1000))
}

# SECONDS of `await`, `ended` and `ends_with` are what a machine as ours needs at most. One that is busy, or slower, gets so many times
# of it: the limit is there for what hangs, and says nothing about speed.
patience=8

# set_pace: how much slower this machine is now than an idle one, 1 to 8, seen from five starts of a program. Times that are themselves
# what is tested (a limit, the life of a certificate) are multiplied by $pace, so that there is time to do something within them.
set_pace() {
	local from i
	from=$(now_ms)
	for i in 1 2 3 4 5; do ros2ctl version >/dev/null 2>&1; done
	pace=$((($(now_ms) - from) / 150 + 1))
	[ $pace -le 8 ] || pace=8
	echo "# times are multiplied by $pace"
}

# await SECONDS COMMAND...: until it succeeds; for states of another process that have no event to wait for.
await() {
	local end=$((SECONDS + patience * $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		read -r -t 0.1 <> <(:) || true
	done
}

# pause SECONDS: for the few tests about time itself.
pause() { read -r -t "$1" <> <(:) || true; }

# start NAME COMMAND...: in the background; its output in $dir/NAME.out, its pid in $pid.
start() {
	local name=$1
	shift
	"$@" >"$dir/$name.out" 2>&1 </dev/null &
	pid=$!
	jobs_started+=("$pid:$(start_time $pid)")
}

# start_as NAME TENANT COMMAND...: with a tenant's identity; no shell stands between, so that signals arrive.
start_as() {
	local name=$1 who=$2
	shift 2
	start "$name" env ROS2_CERT="$dir/$who/tls.crt" ROS2_KEY="$dir/$who/tls.key" ROS2_CA="$dir/$who/infra-bundle.pem" "${give_way[@]}" "$@"
}

# neighbour COMMAND...: what it starts as a tenant takes the processor time that nobody else wants. For a load that only must not notice what
# is done to others: it asks as fast as it can, and the rest of the test would wait for it. Never for who is revoked or lost under load, and
# started before these: behind a load on a machine of one processor it would take minutes to begin.
give_way=()
neighbour() {
	local give_way=(nice -n 5)
	"$@"
}

# ended PID SECONDS: waits for a process of `start`; returns its exit code, or 124 when it goes on.
ended() {
	timeout $((patience * $2)) tail -s 0.05 --pid="$1" -f /dev/null || return 124
	wait "$1"
}

# small_disk DIR SIZE: a file system of that size at DIR, where that is allowed.
small_disk() {
	mkdir -p "$1"
	mount -t tmpfs -o "size=$2,mode=0700" tmpfs "$1" 2>/dev/null || return 1
	mounted+=("$1")
}

# ---- clusters ----
cluster() { "$ROS2_SRC/tools/dev-cluster" "$@" --dir "$dir" --bin "$ROS2_BIN"; }
process() { cut -d' ' -f1 <"$dir/run/$1.pid"; } # NAME: its pid

# A cluster without policies.
cluster_bare() { # AGENTS
	cluster up --agents "${1:-1}" >"$dir.up" 2>&1 || { sed 's/^/# /' "$dir.up"; rm -f "$dir.up"; tap not "the cluster starts"; tap_end; }
	rm -f "$dir.up"
	# shellcheck disable=SC1091
	. "$dir/env"
	mkdir -p "$dir/policies"
}

# A cluster with the example policies and certificates for alpha and beta.
cluster_up() { # AGENTS
	local f
	cluster_bare "${1:-1}"
	for f in "$ROS2_SRC"/examples/policies/*.yaml; do
		sed "s|\${ROS2_DATA}|$dir/data|g" "$f" >"$dir/policies/$(basename "$f")"
	done
	check "the example policies apply" ros2ctl apply -f "$dir/policies" || tap_end
	tenant_cert alpha trainer
	tenant_cert beta server
}

tenant_cert() { # TENANT NAME [OPTIONS]
	local tenant=$1 name=$2
	shift 2
	ros2ctl tenant cert --dir "$ROS2_TD" --id "spiffe://ros2.test/tenant/$tenant/$name" --out "$dir/$tenant" "$@" 2>/dev/null
}

# as TENANT COMMAND...: with that tenant's identity in the environment of libros2.
as() {
	local who=$1
	shift
	ROS2_CERT=$dir/$who/tls.crt ROS2_KEY=$dir/$who/tls.key ROS2_CA=$dir/$who/infra-bundle.pem "$@"
}

# audited [OPTIONS OF audit query]: at least one such record is in the log. For await.
audited() { ros2ctl audit query "$@" -o json --limit 5 | grep -q '"seq"'; }

# audit_names_all: every record there is names who, what, on which object, with which result. For check.
audit_names_all() {
	ros2ctl audit query -o json --limit 100000 >"$dir/said" || return 1
	jq -e '[.items[] | select(.actor == "" or .role == "" or .objectKind == "" or .objectName + .objectUid == "" or
		.result == "" or .status == "")] as $bad | $bad[:5][], ((.items | length > 5) and $bad == [])' "$dir/said" | tail -n 20 |
		tee /dev/stderr | tail -n 1 | grep -qx true
}

# known NAME KEY: the value of a key in the ready line of a process.
known() { sed -n "s/.*\"$2\" *: *\"\{0,1\}\([^\",}]*\).*/\1/p" "$dir/run/$1.json"; }

# ---- load and raw clients ----
# load NAME TENANT [OPTIONS OF ros2-bench]: verified I/O in the background on a file NAME of the namespace `data`; returns
# when the engine has bytes of it and a session moves data. Ends by `load_end NAME`.
load() {
	local name=$1 tenant=$2
	shift 2
	start_as "$name" "$tenant" ros2-bench run --namespace data --file "$name" --rw randrw --verify --size 4MiB --bs 16k --depth 8 \
		--time 600s --warmup 0s -o json -q "$@"
	eval "pid_$name=$pid"
	await 60 load_moves "$name" "$tenant" || { bad "the load $name runs" "it said: $(tail -n 3 "$dir/$name.out")"; return 1; }
}
load_moves() { # NAME TENANT: the file changes
	local file=$dir/data/$2/$1 before
	[ "$(stat -c %s "$file" 2>/dev/null || echo 0)" -ge 4194304 ] || return 1
	before=$(stat -c %.9Y "$file")
	pause 0.1
	[ "$(stat -c %.9Y "$file")" != "$before" ]
}
# sessions_of TENANT, reads_anew TENANT SESSIONS: a session that is not among those has read. A load only writes until its file is laid
# out, so a mixed one that reads is under way; sessions of loads before it may still be listed.
sessions_of() { ros2ctl get sessions --tenant "$1" -o json | jq -c '[.items[].sessionUid]'; }
reads_anew() {
	ros2ctl get sessions --tenant "$1" -o json | jq -e --argjson before "$2" 'any(.items[]; .readBytes > 0 and (.sessionUid | IN($before[]) | not))'
}
load_pid() { local v=pid_$1; echo "${!v}"; }

# load_end NAME: asks it to end; exit code of ros2-bench, its report in $dir/NAME.out.
load_end() {
	kill -TERM "$(load_pid "$1")" 2>/dev/null
	ended "$(load_pid "$1")" 60
}
# The report of a load: stdout is JSON, what follows it is an error in words.
report() { jq -r "$2" < <(sed '/^ros2-bench:/d' "$dir/$1.out"); } # NAME FILTER
unharmed() { # NAME: ends well, verified something, lost nothing
	load_end "$1" || { echo "exit $?"; cat "$dir/$1.out"; return 1; }
	report "$1" 'if .error == null and .verified_blocks > 0 then "good" else . end' | tee "$dir/said" | grep -qx good ||
		{ cat "$dir/said"; return 1; }
}

# ends_with NAME STATUS [SECONDS]: the load ends by itself, with that named error.
ends_with() {
	local rc
	ended "$(load_pid "$1")" "${3:-10}"
	rc=$?
	[ $rc -eq 1 ] || { echo "exit $rc"; tail -n 5 "$dir/$1.out"; return 1; }
	grep -q "ros2-bench: $2: " "$dir/$1.out" || { tail -n 5 "$dir/$1.out"; return 1; }
}

# raw TENANT ARGUMENTS: the client that does not keep the rules; its last line is in $dir/raw.
raw() {
	local who=$1
	shift
	if [ "$who $1" = "$talks call" ]; then
		asked "${@:2}"
		return
	fi
	as "$who" ros2-raw "$@" >"$dir/raw.all" 2>&1
	local rc=$?
	tail -n 1 "$dir/raw.all" >"$dir/raw"
	return $rc
}
# talk TENANT: until talk_end, or for another one, its calls go over one connection of one process. For what has a time to keep, as a
# session without a data connection (10 s): on a machine that is busy, starts of programs take it. Not in subshells.
talks=''
talk() {
	[ "$talks" != "$1" ] || return 0
	talk_end
	coproc CALLS { as "$1" ros2-raw calls 2>"$dir/raw.err"; }
	talks=$1 talk_pid=$CALLS_PID talk_to=${CALLS[1]} talk_from=${CALLS[0]}
}
talk_end() {
	[ -n "$talks" ] || return 0
	talks=''
	exec {talk_to}>&- {talk_from}<&-
	wait "$talk_pid" 2>/dev/null
	return 0
}
asked() { # METHOD FIELDS: of who talks
	local line sent
	: >"$dir/raw"
	trap '' PIPE # it may have ended already
	echo "$*" >&"$talk_to" 2>/dev/null
	sent=$?
	trap - PIPE
	[ $sent -eq 0 ] && read -r -t $((patience * 20)) line <&"$talk_from" && echo "$line" | tee "$dir/raw" >"$dir/raw.all"
}
raw_field() { jq -r ".$1 // empty" "$dir/raw"; }
# answers STATUS TENANT METHOD [FIELDS]: a call of tenant.proto is answered with this named error (or one of A|B).
answers() {
	local want=$1 tenant=$2
	shift 2
	raw "$tenant" call "$@"
	raw_field status | grep -Eqx -- "$want" || { cat "$dir/raw.all"; return 1; }
}

# health_agent STATUS, health_controller STATUS: what grpc.health.v1 says of its disk (1 SERVING, 2 NOT_SERVING).
health_agent() {
	raw alpha call Health.Check service=ros2.agent.disk
	grep -q "\"status\":$1" "$dir/raw" || { cat "$dir/raw.all"; return 1; }
}
health_controller() {
	ROS2_CERT=$ROS2_TD/admin/tls.crt ROS2_KEY=$ROS2_TD/admin/tls.key ROS2_CA=$ROS2_TD/admin/infra-bundle.pem \
		ros2-raw call Health.Check service=ros2.controller.store server=controller agent="$ROS2_CONTROLLER" >"$dir/raw" 2>&1
	grep -q "\"status\":$1" "$dir/raw" || { cat "$dir/raw"; return 1; }
}

# scrape PROCESS: its page of metrics. metric PROCESS SAMPLE: the value of one sample.
http() { # PORT METHOD PATH: the whole answer
	timeout $((patience * 5)) bash -c 'exec {fd}<>"/dev/tcp/127.0.0.1/$0" && printf "%s %s HTTP/1.0\r\n\r\n" "$1" "$2" >&$fd && cat <&$fd' "$@" 2>/dev/null
}
scrape() { http "$(known "$1" metrics)" GET /metrics | sed '1,/^\r$/d'; }
metric() { scrape "$1" | awk -v s="$2" 'index($0, s " ") == 1 { print $NF }'; }

# raw_session TENANT NAMESPACE PATH: a session by hand with a file (4 KiB of it written) and a region; sets uid, secret, data, mount, handle,
# key, generation. Its data connection must follow within 10 s.
raw_session() {
	local tenant=$1 before=$talks rc=1
	handle='' key=''
	talk "$tenant"
	if raw "$tenant" call OpenSession protocol=1 transport=1 && [ "$(raw_field status)" = OK ]; then
		uid=$(raw_field sessionUid) secret=$(raw_field secret) data=$(raw_field dataAddress)
		raw "$tenant" call Mount session_uid="$uid" namespace_name="$2" && mount=$(raw_field mount)
		raw "$tenant" call Open session_uid="$uid" mount="$mount" path="$3" flags=7 mode=420 && handle=$(raw_field handle)
		raw "$tenant" call RegisterRegion session_uid="$uid" address=65536 length=65536 access=3 &&
			key=$(raw_field key) generation=$(raw_field generation)
		[ -n "$key" ] && [ -n "$handle" ] && rc=0
	fi
	[ "$before" = "$tenant" ] || talk_end
	[ $rc -eq 0 ] || cat "$dir/raw" "$dir/raw.err"
	return $rc
}

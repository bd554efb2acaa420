#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the soak and its negative controls share: a cluster, clients with their notes, the administrator's history as a
# coprocess, deaths and restarts. What a dead process left behind is looked at before it is started again.
# shellcheck shell=bash
# shellcheck source=../integration/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../integration/lib.sh"

export ASAN_OPTIONS="quarantine_size_mb=8:${ASAN_OPTIONS:-}" # RSS is to be that of the programs
broken=0
fd_slack=3
fd_wait=20
lapses=0
declare -A fd_base rss_base kills
client_pid=()
# tenant agent block-size milliseconds-to-reconnect (4294967295: a session ends with its connection) transport
never=4294967295
clients=("0 0 4096 $never tcp" "0 1 512 3000 shm" "1 0 512 $never shm" "1 1 4096 $never tcp" "2 1 4096 $never tcp" "3 0 4096 3000 tcp")
# Who holds a key for longer than it lasts: tenant agent. Leases of these tenants last 1 s.
holders=("0 0" "2 1")
holder_pid=()

fail() { echo "# broken: $*"; broken=$((broken + 1)); }
chance() { [ $((RANDOM % 100)) -lt "$1" ]; }
pause_ms() { pause "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"; }

# ask COMMAND: the history's answer; what it finds broken is printed and counted.
ask() {
	local line
	echo "$1" >&"${history[1]}"
	while read -r -t 180 -u "${history[0]}" line; do
		case $line in
		FAIL*) fail "${line#FAIL }" ;;
		done*) summary=${line#done }; return ;;
		esac
	done
	fail "the history does not answer to '$1'"
}

path_of() { set -- ${clients[$1]} "$1"; echo "$dir/data/live-$1/c$6"; } # CLIENT

client_start() { # CLIENT
	local i=$1 tenant agent block reconnect over addr
	read -r tenant agent block reconnect over <<<"${clients[i]}"
	addr=ROS2_AGENT_$agent
	[ "$over" = shm ] && over=--shm || over=
	ROS2_AGENT=${!addr} ROS2_CERT=$dir/live-$tenant/tls.crt ROS2_KEY=$dir/live-$tenant/tls.key ROS2_CA=$dir/live-$tenant/infra-bundle.pem \
		ros2-soak-client --notes "$dir/notes/$i" --file "c$i" --id $((i + 1)) --block "$block" --reconnect "$reconnect" $over \
		--pause-ms "${soak_pause_ms:-5}" >>"$dir/logs/client-$i.log" 2>&1 </dev/null &
	client_pid[i]=$!
	jobs_started+=("$!:$(start_time $!)")
}

client_kill() { # CLIENT
	local pid=${client_pid[$1]}
	unset "client_pid[$1]"
	kill -KILL "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	[ $? -eq 137 ] || fail "client $1 had ended by itself: $(tail -n 1 "$dir/logs/client-$1.log")"
}

holder_start() { # HOLDER [OPTIONS]
	local i=$1 tenant agent addr
	shift
	read -r tenant agent <<<"${holders[i]}"
	addr=ROS2_AGENT_$agent
	ROS2_AGENT=${!addr} as "live-$tenant" exec ros2-soak-holder --file "h$i" "$@" >>"$dir/logs/holder-$i.log" 2>&1 </dev/null &
	holder_pid[i]=$!
	jobs_started+=("$!:$(start_time $!)")
}

# Each goes on until a key that was over moved a byte.
holders_look() {
	local i
	for i in "${!holder_pid[@]}"; do
		! kill -0 "${holder_pid[i]}" 2>/dev/null || continue
		fail "holder $i: $(tail -n 1 "$dir/logs/holder-$i.log")"
		unset "holder_pid[i]"
	done
}

# Who stands still for longer than its leases last (1 s), so that they end, and goes on: a client, or a holder.
lapse() {
	local who=("${client_pid[@]}" "${holder_pid[@]}") pid
	pid=${who[RANDOM % ${#who[@]}]}
	kill -STOP "$pid"
	pause_ms $((1200 + RANDOM % 1000))
	kill -CONT "$pid"
	lapses=$((lapses + 1))
}

clients_stop() {
	local i rc
	holders_look
	for i in "${client_pid[@]}" "${holder_pid[@]}"; do kill -TERM "$i" 2>/dev/null; done
	for i in "${!client_pid[@]}"; do
		ended "${client_pid[i]}" 60
		rc=$?
		[ $rc -eq 0 ] || [ $rc -eq 143 ] || fail "client $i ended with $rc: $(tail -n 1 "$dir/logs/client-$i.log")"
	done
	for i in "${!holder_pid[@]}"; do
		ended "${holder_pid[i]}" 60
		rc=$?
		[ $rc -eq 0 ] || [ $rc -eq 143 ] || fail "holder $i ended with $rc: $(tail -n 1 "$dir/logs/holder-$i.log")"
	done
	client_pid=()
	holder_pid=()
}

# Nobody writes to the files of that agent.
files_whole() { # AGENT
	local i tenant agent block
	for i in "${!clients[@]}"; do
		read -r tenant agent block _ <<<"${clients[i]}"
		[ "$agent" = "$1" ] || [ "$1" = all ] || continue
		ros2-soak-client --notes "$dir/notes/$i" --check "$(path_of "$i")" --block "$block" 2>"$dir/said" ||
			fail "$(cat "$dir/said")"
	done
	for i in "${!holders[@]}"; do
		read -r tenant agent <<<"${holders[i]}"
		[ "$agent" = "$1" ] || [ "$1" = all ] || continue
		! grep -qa L "$dir/data/live-$tenant/h$i" 2>/dev/null || fail "the file of holder $i has what was sent too late"
	done
}

epoch() { known controller epoch; }

# process_start NAME [RESTARTS-KILLED]: until it serves; before that it dies so many times at some moment of its start.
process_start() {
	local name=$1 early=${2:-0} starter before
	before=$(epoch)
	[ "$name" != controller ] || ask up
	while [ "$early" -gt 0 ]; do
		cluster start "$name" >/dev/null 2>&1 &
		starter=$!
		pause_ms $((20 + RANDOM % 300))
		cluster stop "$name" --kill >/dev/null 2>&1
		wait $starter 2>/dev/null
		early=$((early - 1))
		kills[start]=$((${kills[start]:-0} + 1))
	done
	if ! cluster status | grep -q "^$name pid"; then
		cluster start "$name" 2>"$dir/said" || fail "$name does not start: $(tail -n 4 "$dir/said")"
	fi
	[ "$name" != controller ] || [ "$(epoch)" -gt "$before" ] || fail "epoch $(epoch) after $before"
}

process_kill() { # NAME
	cluster stop "$1" --kill 2>/dev/null || fail "$1 was gone already: $(tail -n 3 "$dir/logs/$1.log")"
	if [ "$1" = controller ]; then ask down; else ask lost; fi
}

fds() { find "/proc/$(process "$1")/fd" -mindepth 1 2>/dev/null | wc -l; }
rss_kb() { awk '/^VmRSS/ {print $2}' "/proc/$(process "$1")/status"; }

# Everyone at rest: nothing in use, no slot taken, and no more descriptors than at the first rest.
slots_free() { [ "$(metric "$1" 'ros2_agent_slots_taken{reactor="0"}')" = 0 ]; }
fds_back() { [ "$(fds "$1")" -le $((${fd_base[$1]} + fd_slack)) ]; }
slots_at_rest() {
	local name
	for name in dpu-0 dpu-1; do
		await $fd_wait slots_free $name || fail "$name holds $(metric $name 'ros2_agent_slots_taken{reactor="0"}') slots"
	done
}
# Sessions over shared memory: mapped or open at the agent, and connections to its sockets.
shm_mapped() { grep -c 'memfd:ros2-' "/proc/$(process "$1")/maps"; }
shm_open() { find "/proc/$(process "$1")/fd" -lname '*memfd:ros2-*' 2>/dev/null | wc -l; }
shm_connected() { awk -v d="$dir/sock/" 'index($8, d) == 1 && $6 == "03"' /proc/net/unix | wc -l; }
shm_none() { [ "$(shm_mapped "$1")" = 0 ] && [ "$(shm_open "$1")" = 0 ] && [ "$(shm_connected)" = 0 ]; }
shm_at_rest() {
	local name
	for name in dpu-0 dpu-1; do
		await $fd_wait shm_none $name ||
			fail "$name holds shared memory: $(shm_mapped $name) mappings, $(shm_open $name) descriptors; $(shm_connected) connections at both"
	done
	[ "$(find "$dir/sock" -mindepth 2 | wc -l)" -eq 2 ] || fail "sockets of two agents: $(find "$dir/sock" -mindepth 2)"
}
rest() { # WORDS
	local name line=
	ask hold
	ask restore
	clients_stop
	ask settle
	ask idle
	files_whole all
	"${before_counting:-true}"
	for name in controller dpu-0 dpu-1; do
		fd_base[$name]=${fd_base[$name]:-$(fds $name)}
		rss_base[$name]=${rss_base[$name]:-$(rss_kb $name)}
		await $fd_wait fds_back $name || fail "$name holds $(fds $name) descriptors, it was ${fd_base[$name]} at first"
		[ "$(rss_kb $name)" -le $((${rss_base[$name]} * 3 / 2 + 65536 * tsan_factor)) ] || fail "$name grew from ${rss_base[$name]} to $(rss_kb $name) kB"
		line+=" $name $(fds $name) fds $(rss_kb $name) kB,"
	done
	slots_at_rest
	shm_at_rest
	[ "$(stat -c %s "$dir/controller/ros2.db-wal")" -le $((48 << 20)) ] || fail "the write-ahead log has $(stat -c %s "$dir/controller/ros2.db-wal") bytes"
	echo "# at rest ($1):$line $summary"
}
work() {
	local i
	for i in "${!clients[@]}"; do client_start "$i"; done
	for i in "${!holders[@]}"; do holder_start "$i"; done
	ask go
}

# soak_up SEED [OPTIONS OF THE HISTORY]: cluster, tenants, notes; nobody works yet.
soak_up() {
	local seed=$1 i args=()
	shift
	mkdir -p "$dir/sock"
	export ROS2_AGENT_FLAGS="--shm-dir $dir/sock/%n"
	cluster_bare 2
	mkdir -p "$dir/notes"
	printf 'apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: files}\nspec: {type: file, root: %s}\n' "$dir/data" |
		ros2ctl apply -f - >/dev/null || fail "the engine is not applied"
	for i in 0 1 2 3; do tenant_cert live-$i x; done
	for i in "${!clients[@]}"; do args+=(--notes "${clients[i]%% *}=$dir/notes/$i"); done
	coproc history { exec ros2-soak-history --context "$ROS2_TD/admin" --controller "$ROS2_CONTROLLER" --root "$dir/data" \
		--seed "$seed" --journal "$dir/history" "${args[@]}" "$@" 2>>"$dir/logs/history.log"; }
	history_pid=$!
	jobs_started+=("$history_pid:$(start_time $history_pid)")
	ask restore
	# What they try of their transports when they start for the first time holds memory and descriptors of its own.
	for i in 0 1; do await 30 grep -q 'probe: shm' "$dir/logs/dpu-$i.log" || fail "dpu-$i has not probed its transports"; done
}

# A revocation is confirmed, then controller and agent die, and the agent comes back alone: the tenant gets nothing.
# TAMPER runs between death and restart.
revoked_for_good() { # [TAMPER]
	local i
	work
	ask hold
	ask restore
	for i in "${!clients[@]}"; do await 30 moves "$i" || fail "client $i does no I/O"; done
	[ $# -eq 0 ] || "$1" before
	ask revoke
	process_kill controller
	process_kill dpu-0
	[ $# -eq 0 ] || "$1" after
	process_start dpu-0
	await 30 moves 5 || fail "client 5 does no I/O at the restarted agent"
	await 2 moves 0
	ask notes
	process_start controller
}

# What is left when the cluster is down: processes that know its directory, files that nobody owns.
left() { pgrep -f -- "$dir/" | grep -vx $$ | while read -r p; do grep -q '^State:.*Z' "/proc/$p/status" 2>/dev/null || tr '\0' ' ' <"/proc/$p/cmdline"; done; }
stray() { find "$dir/controller" "$dir/agents" "$dir/data" -type f | grep -vE '/(LOCK|ros2\.db(-wal|-shm|-pair)?|reserve|start-reserve|contact|identity\.json|infra-bundle\.pem|revocations|snapshot|snapshot\.pub|tenant-bundle\.pem|tls\.crt|tls\.key|spool/seg-[^/]*|live-[0-3]/[ch][0-9])$'; }

flushes() { ros2-soak-client --notes "$dir/notes/$1" --tally | sed 's/.*flushes=\([0-9]*\).*/\1/'; }
moves() { # CLIENT: writes and flushes now
	local before
	before=$(flushes "$1")
	pause 0.2
	[ "$(flushes "$1")" -gt "$before" ]
}

# The history ends; with 0 when it found nothing.
history_end() {
	local write=${history[1]}
	exec {write}>&-
	ended "$history_pid" 30
}

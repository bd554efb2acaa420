# SPDX-License-Identifier: Apache-2.0
# Sourced by garbage-rpc and garbage-wire: a cluster of two agents, of which dpu-1 is down and taken over, and the program that
# sends garbage. Its TAP lines become ours.
# shellcheck shell=bash
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=16:malloc_context_size=4"
. "$(dirname "${BASH_SOURCE[0]}")/../integration/lib.sh"
cluster_up 2
cluster stop dpu-1

garbage() { # rpc|wire
	local line
	export HOSTILE_DIR="$dir" HOSTILE_TENANT="$ROS2_AGENT"
	HOSTILE_ADMIN=$(known controller admin) HOSTILE_LINK=$(known controller agent) HOSTILE_ENROL=$(known controller enrol)
	HOSTILE_CONTROLLER_PID=$(process controller) HOSTILE_AGENT_PID=$(process dpu-0)
	HOSTILE_AGENT_UID=$(jq -r .agent_uid "$dir/agents/dpu-1/identity.json")
	export HOSTILE_ADMIN HOSTILE_LINK HOSTILE_ENROL HOSTILE_CONTROLLER_PID HOSTILE_AGENT_PID HOSTILE_AGENT_UID
	hostile-garbage "$1" >"$dir/garbage" 2>&1
	local rc=$?
	while IFS= read -r line; do
		case $line in
		"ok "*) tap ok "${line#* - }" ;;
		"not ok "*) tap not "${line#* - }" ;;
		1..*) ;;
		*) echo "# ${line#\# }" ;;
		esac
	done <"$dir/garbage"
	check "the program that sends $1 garbage came to its end" [ $rc -eq 0 ]
}

after_garbage() {
	check "both processes still run" kill -0 "$HOSTILE_CONTROLLER_PID" "$HOSTILE_AGENT_PID"
	check "alpha's verified I/O works" as alpha ros2-bench run --namespace data --file ok --rw randrw --verify --size 1MiB --time 300ms --warmup 0s -q
	check "the log is intact" says '^intact: ' ros2ctl audit verify
	tap_end
}

# SPDX-License-Identifier: Apache-2.0
# steady: what the reactor's thread calls while a load runs: allocator and pthread locks (count_calls.so, preloaded into the agent), futex
# system calls (strace on that thread), and the agent's own count of copied payload.
# shellcheck shell=bash
steady_counts() { od -A n -t u8 -w40 "$dir/counts" | awk '{print $3, $4, $5}'; } # alloc lock tid
steady_session() { # TENANT: copied and read bytes
	ros2ctl get sessions --tenant "$1" -o json | jq -r '[.items[] | [(.copiedBytes // 0), (.readBytes // 0)]] | transpose | map(map(tonumber) | add) | @tsv'
}

# Futex calls of the thread TID within a second. That the trace sees anything shows by the sends in it.
steady_futex() { # TID
	timeout -s INT 1 strace -qq -c -e trace=futex,sendmsg -p "$1" -o "$dir/strace" >/dev/null 2>&1 || true
	awk '$NF == "sendmsg" {seen = 1} $NF == "futex" {n = $4} END {if (seen) print n + 0}' "$dir/strace"
}

steady_one() { # TENANT BS DEPTH SIZE_MIB REP
	local a b pid tid copied read copied2 read2 futex
	ours "$1" randread "$2" "$3" "$4" 7 --no-layout >/dev/null & # longer than all that follows
	pid=$!
	remember $pid
	pause 1.5
	read -r -a a < <(steady_counts)
	read -r copied read < <(steady_session "$1")
	pause 2
	read -r copied2 read2 < <(steady_session "$1")
	read -r -a b < <(steady_counts)
	tid=${b[2]}
	futex=$(steady_futex "$tid")
	wait $pid || true
	sample steady requests "$5" "$(jq -nc --arg t "$1" --argjson bs "$2" --argjson n "$((read2 - read))" '{value: ($n / $bs), engine: $t, bs: $bs}')"
	sample steady alloc "$5" "$(value $((b[0] - a[0])))"
	sample steady lock "$5" "$(value $((b[1] - a[1])))"
	sample steady copied "$5" "$(value $((copied2 - copied)))"
	sample steady futex "$5" "$([ -z "$futex" ] || value "$futex")" "strace saw nothing"
}

group_steady() {
	local who rep=0
	tcp_cluster
	ours ram randread 4096 32 $mem_mib 1 >/dev/null # writes the files
	ours files randread 4096 32 $mem_mib 1 >/dev/null
	cluster "$tcp" stop dpu-0
	LD_PRELOAD=$bin/count_calls.so ROS2_COUNT_FILE=$dir/counts cluster "$tcp" start dpu-0
	ours ram randread 4096 32 $mem_mib 1 >/dev/null
	for who in ram files; do
		steady_one $who 4096 32 $mem_mib $((++rep))
		steady_one $who 1048576 8 $mem_mib $((++rep))
	done
	cluster "$tcp" stop dpu-0
	cluster "$tcp" start dpu-0
}

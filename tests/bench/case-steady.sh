# SPDX-License-Identifier: Apache-2.0
# steady: what the reactor's thread calls while a load runs: allocator and pthread locks (count_calls.so, preloaded into the agent), futex
# system calls (strace on that thread), and the agent's own count of copied payload.
# shellcheck shell=bash
steady_counts() { od -A n -t u8 -w40 "$dir/counts" | awk '{print $3, $4, $5}'; } # alloc lock tid
steady_session() { # TENANT: copied, and read or written bytes
	ros2ctl get sessions --tenant "$1" -o json |
		jq -r '[.items[] | [(.copiedBytes // 0), (.readBytes // 0), (.writeBytes // 0)]] | transpose | map(map(tonumber) | add) | "\(.[0]) \(.[1] + .[2])"'
}

# Futex calls of the thread TID within a second. That the trace sees anything shows by the sends in it.
steady_futex() { # TID
	timeout -s INT 1 strace -qq -c -e trace=futex,sendmsg -p "$1" -o "$dir/strace" >/dev/null 2>&1 || true
	awk '$NF == "sendmsg" {seen = 1} $NF == "futex" {n = $4} END {if (seen) print n + 0}' "$dir/strace"
}

# COPIES: the series the copied bytes belong to: copied (none is allowed), or copies-* (copied bytes per byte moved)
steady_one() { # TENANT RW BS DEPTH SIZE_MIB REP COPIES
	local a b pid tid copied moved copied2 moved2 futex
	ours "$1" "$2" "$3" "$4" "$5" 7 --no-layout >/dev/null & # longer than all that follows
	pid=$!
	remember $pid
	pause 1.5
	read -r -a a < <(steady_counts)
	read -r copied moved < <(steady_session "$1")
	pause 2
	read -r copied2 moved2 < <(steady_session "$1")
	read -r -a b < <(steady_counts)
	tid=${b[2]}
	futex=$(steady_futex "$tid")
	wait $pid || true
	copied=$((copied2 - copied)) moved=$((moved2 - moved))
	sample steady requests "$6" "$(jq -nc --arg t "$1" --arg rw "$2" --argjson bs "$3" --argjson n "$moved" '{value: ($n / $bs), engine: $t, rw: $rw, bs: $bs}')"
	sample steady alloc "$6" "$(value $((b[0] - a[0])))"
	sample steady lock "$6" "$(value $((b[1] - a[1])))"
	if [ "$7" = copied ]; then
		sample steady copied "$6" "$(value "$copied")"
	else
		# what is in flight at either moment is copied and not yet moved: the bars allow 1 % for it
		sample steady "$7" "$6" "$(jq -nc --argjson c "$copied" --argjson m "$moved" 'if $m > 0 then {value: ($c / $m), copied: $c, moved: $m} else {} end')"
	fi
	sample steady futex "$6" "$([ -z "$futex" ] || value "$futex")" "strace saw nothing"
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
		steady_one $who randread 4096 32 $mem_mib $((++rep)) copied
		steady_one $who randread 1048576 8 $mem_mib $((++rep)) copied
	done
	# 4 KiB come with their requests, 1 MiB is pulled; the mem engine stores, which is a copy
	steady_one files randwrite 1048576 8 $mem_mib $((++rep)) copied
	steady_one files randwrite 4096 32 $mem_mib $((++rep)) copies-inline-file
	steady_one ram randwrite 1048576 8 $mem_mib $((++rep)) copies-mem
	steady_one ram randwrite 4096 32 $mem_mib $((++rep)) copies-inline-mem
	cluster "$tcp" stop dpu-0
	cluster "$tcp" start dpu-0
}

# SPDX-License-Identifier: Apache-2.0
# limit-bytes, limit-iops: one tenant that asks for more than it may have, over ten seconds, against its limit; reads, then writes.
# shellcheck shell=bash
limit_mib=256 limit_iops=20000

# limit_sample CASE SERIES REP LIMIT TENANT RW BS DEPTH VALUE: VALUE is the jq of what is limited
limit_sample() {
	sample "$1" "$2" "$3" "$(ours "$5" "$6" "$7" "$8" $((mem_mib / 2)) "$limit_seconds" --no-layout |
		jq -c --argjson l "$4" ".value = $9 / \$l")" "$(ours_words)"
}

group_limits() {
	local rep
	tcp_cluster
	tenant "$tcp" lim-bytes ram <<<"  qos: {read: {bandwidth: ${limit_mib}MiB/s}, write: {bandwidth: ${limit_mib}MiB/s}}"
	tenant "$tcp" lim-iops ram <<<"  qos: {read: {iops: $limit_iops}, write: {iops: $limit_iops}}"
	ours lim-bytes randread 65536 16 $((mem_mib / 2)) 1 >/dev/null # writes the file
	ours lim-iops randread 4096 32 $((mem_mib / 2)) 1 >/dev/null
	# six are the least that resolve a median; each takes ten seconds
	for ((rep = 1; rep <= (reps < 6 ? reps : 6); rep++)); do
		limit_sample limit-bytes ros2 $rep $((limit_mib << 20)) lim-bytes randread 65536 16 .bytes_per_s
		limit_sample limit-bytes write $rep $((limit_mib << 20)) lim-bytes randwrite 65536 16 .bytes_per_s
		limit_sample limit-iops ros2 $rep $limit_iops lim-iops randread 4096 32 .value
		limit_sample limit-iops write $rep $limit_iops lim-iops randwrite 4096 32 .value
	done
}

# SPDX-License-Identifier: Apache-2.0
# limit-bytes, limit-iops: one tenant that asks for more than it may have, over ten seconds, against its limit.
# shellcheck shell=bash
limit_mib=256 limit_iops=20000

group_limits() {
	local rep
	tcp_cluster
	tenant "$tcp" lim-bytes ram <<<"  qos: {read: {bandwidth: ${limit_mib}MiB/s}}"
	tenant "$tcp" lim-iops ram <<<"  qos: {read: {iops: $limit_iops}}"
	ours lim-bytes randread 65536 16 $((mem_mib / 2)) 1 >/dev/null # writes the file
	ours lim-iops randread 4096 32 $((mem_mib / 2)) 1 >/dev/null
	# six are the least that resolve a median; each takes ten seconds
	for ((rep = 1; rep <= (reps < 6 ? reps : 6); rep++)); do
		sample limit-bytes ros2 $rep "$(ours lim-bytes randread 65536 16 $((mem_mib / 2)) "$limit_seconds" --no-layout |
			jq -c --argjson l $((limit_mib << 20)) '.value = .bytes_per_s / $l')" "$(ours_words)"
		sample limit-iops ros2 $rep "$(ours lim-iops randread 4096 32 $((mem_mib / 2)) "$limit_seconds" --no-layout |
			jq -c --argjson l $limit_iops '.value = .value / $l')" "$(ours_words)"
	done
}

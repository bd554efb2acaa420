# SPDX-License-Identifier: Apache-2.0
# shm-4k-d32, shm-1m, shm-file-4k: the same reads over memory shared with the agent, beside the same over tcp, and fio's io_uring on the
# same file.
# shellcheck shell=bash
group_shm() {
	local rep
	tcp_cluster
	ours ram randread 4096 32 $mem_mib 1 >/dev/null # writes the file
	ours files randread 4096 32 $file_mib 1 >/dev/null
	sync -f "$tcp/data"
	for ((rep = 1; rep <= reps; rep++)); do
		sample shm-4k-d32 ros2 $rep "$(ours ram randread 4096 32 $mem_mib "$seconds" --no-layout --transport shm)" "$(ours_words)"
		sample shm-4k-d32 tcp $rep "$(ours ram randread 4096 32 $mem_mib "$seconds" --no-layout --transport tcp)" "$(ours_words)"
		sample shm-1m ros2 $rep "$(ours ram randread 1048576 8 $mem_mib "$seconds" --no-layout --transport shm | mib)" "$(ours_words)"
		sample shm-1m tcp $rep "$(ours ram randread 1048576 8 $mem_mib "$seconds" --no-layout --transport tcp | mib)" "$(ours_words)"
		sample shm-file-4k ros2 $rep "$(ours files randread 4096 32 $file_mib "$seconds" --no-layout --transport shm)" "$(ours_words)"
		sample shm-file-4k tcp $rep "$(ours files randread 4096 32 $file_mib "$seconds" --no-layout --transport tcp)" "$(ours_words)"
		sample shm-file-4k fio $rep "$(fio_file 32)"
	done
}

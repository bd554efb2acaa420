# SPDX-License-Identifier: Apache-2.0
# file-4k, file-4k-d128: reads of files over tcp, beside fio's io_uring on the same file, the raw loop, the raw loop whose server reads the same
# file by io_uring (what any server over TCP is between), and fio's nbd engine on a qemu-nbd that reads the same file past the page cache by
# io_uring: who does the same work by another protocol. A disk gives twice as much in one
# second as in another, so a sample takes one second, ours and fio's follow each other, and there are four times as many of them as
# elsewhere (but with --quick). file-ram-*: the same with the file in a tmpfs, so that nobody waits for a disk, and what our own way costs is what is seen.
# shellcheck shell=bash
file_mib=512
declare -A depth_name=([32]='' [128]=-d128)

# A tenant whose files are in memory. False, and a word, where there is no tmpfs with room for them.
ram_files() {
	local room=0
	[ "$(stat -f -c %T /dev/shm 2>/dev/null)" != tmpfs ] || room=$(df --output=avail -m /dev/shm | tail -n 1)
	if [ "$room" -le $((2 * file_mib)) ]; then
		say "  file-ram-*: SKIP: /dev/shm is no tmpfs with $((2 * file_mib)) MiB to spare"
		return 1
	fi
	ram_dir=$(mktemp -d /dev/shm/ros2-bench.XXXXXX)
	ros2ctl apply -f - >/dev/null <<<"{apiVersion: ros2/v1, kind: Engine, metadata: {name: ram-files}, spec: {type: file, root: $ram_dir}}"
	tenant "$tcp" ram-files ram-files <<<"$tcp_buckets"
	ours ram-files randread 4096 32 $file_mib 1 >/dev/null
}

fio_file() { # DEPTH [FILE]: the file that ours reads
	fio_read --ioengine=io_uring --direct=1 --filename="${2:-$tcp/data/files/bench}" --iodepth="$1" --size="${file_mib}M"
}

file_nbd_up() {
	nbd_serve qemu-nbd qemu-nbd --read-only --format=raw --cache=none --aio=io_uring --persistent --bind=127.0.0.1 --port=@PORT@ \
		--pid-file="$dir/qemu-nbd.pid" --fork "$tcp/data/files/bench"
}

# CASE DEPTH REP TENANT FILE
file_samples() {
	sample "$1" ros2 "$3" "$(ours "$4" randread 4096 "$2" $file_mib "$seconds" --no-layout)" "$(ours_words)"
	sample "$1" fio "$3" "$(fio_file "$2" "$5")"
	sample "$1" raw "$3" "$(raw 4096 "$2")"
	sample "$1" raw-file "$3" "$(raw 4096 "$2" 0 --file "$5")"
}

group_file() {
	local rep depth in_memory='' seconds=1 warmup=300 times=${quick:+1}
	tcp_cluster
	ours files randread 4096 32 $file_mib 1 >/dev/null # writes the file
	sync -f "$tcp/data"
	! ram_files || in_memory=1
	file_nbd_up
	for ((rep = 1; rep <= ${times:-4} * reps; rep++)); do
		for depth in 32 128; do
			file_samples "file-4k${depth_name[$depth]}" $depth $rep files "$tcp/data/files/bench"
			sample "file-4k${depth_name[$depth]}" nbd $rep "$(nbd_read $depth $file_mib)"
			[ -z "$in_memory" ] || [ $rep -gt "$reps" ] ||
				file_samples "file-ram-4k${depth_name[$depth]}" $depth $rep ram-files "$ram_dir/ram-files/bench"
		done
	done
	end_process "$(cat "$dir/qemu-nbd.pid")"
}

# SPDX-License-Identifier: Apache-2.0
# tcp-4k-d32, tcp-4k-d128, tcp-1m: reads through one agent reactor on one connection, checks, leases and buckets on, beside the raw loop
# and fio's nbd engine on `nbdkit memory`.
# shellcheck shell=bash
mem_mib=64

# Buckets are on when a tenant has a rate: one that is never reached.
tcp_buckets='  qos: {read: {bandwidth: 1TiB/s, iops: 100M}, write: {bandwidth: 1TiB/s, iops: 100M}}'

tcp_cluster() {
	tcp=$dir/tcp
	if [ -d "$tcp" ]; then
		# shellcheck disable=SC1091
		. "$tcp/env" # another group may have had a cluster of its own meanwhile
		return
	fi
	ROS2_AGENT_FLAGS="--shm-dir $tcp/sock" cluster_up "$tcp"
	printf 'apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: ram}\nspec: {type: mem, size: %dMiB}\n---\n' $((mem_mib * 4)) >"$tcp/engines.yaml"
	printf 'apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: files}\nspec: {type: file, root: %s}\n' "$tcp/data" >>"$tcp/engines.yaml"
	ros2ctl apply -f "$tcp/engines.yaml" >/dev/null
	tenant "$tcp" ram ram <<<"$tcp_buckets"
	tenant "$tcp" files files <<<"$tcp_buckets"
}

# ours TENANT RW BS DEPTH SIZE_MIB SECONDS [OPTIONS]: {value: operations/s, ...}
ours() {
	local who=$1 rw=$2 way=read
	[[ $rw != *write ]] || way=write
	as "$tcp" "$who" timeout 120 ros2-bench --namespace data --file bench --rw "$rw" --bs "$3" --depth "$4" --jobs 1 --size "${5}MiB" \
		--time "${6}s" --warmup "${warmup}ms" --quiet -o json "${@:7}" 2>"$dir/ours.err" |
		jq -c --arg way "$way" 'select(.error == null) | .[$way] | {value: .operations_per_s, bytes_per_s, p50_us: (.latency_ns.p50 / 1000), p99_us: (.latency_ns.p99 / 1000)}'
}
ours_words() { tail -n 1 "$dir/ours.err"; }

raw() { # BS DEPTH [SPAN_MIB [OPTIONS]]: replies are one buffer, or out of as much memory as ours serves
	timeout 60 "$bin/raw-tcp-bench" --depth "$2" --reply "$1" --span $((${3:-0} << 20)) --time-ms $((seconds * 1000)) "${@:4}" |
		jq -c '{value: .ops_per_s, bytes_per_s, p50_us: .latency_us.p50, p99_us: .latency_us.p99}'
}

fio_read() { # OPTIONS
	# the nbd engine talks on stdout, so the result goes to a file
	timeout 120 fio --name=r --rw=randread --bs=4096 --time_based --runtime="$seconds" --ramp_time="${warmup}ms" \
		--output-format=json --output="$dir/fio.json" "$@" >/dev/null 2>"$dir/fio.err"
	jq -c '.jobs[0].read | {value: .iops, bytes_per_s: .bw_bytes, p50_us: (.clat_ns.percentile."50.000000" / 1000), p99_us: (.clat_ns.percentile."99.000000" / 1000)}' "$dir/fio.json"
}

# nbd_serve NAME COMMAND...: a server on a free port, @PORT@ among its words, that goes to the background when it listens and leaves its
# process in NAME.pid. Sets nbd.
nbd_serve() {
	local name=$1 try _
	shift
	for _ in 1 2 3 4 5 6 7 8; do
		try=$((20000 + RANDOM % 10000))
		"${@//@PORT@/$try}" >"$dir/$name.log" 2>&1 && break
		try=
	done
	[ -n "$try" ] || die "$name does not start: $(cat "$dir/$name.log")"
	remember "$(cat "$dir/$name.pid")"
	nbd=nbd://127.0.0.1:$try
}
nbd_up() {
	nbd_serve nbdkit nbdkit --ipaddr 127.0.0.1 --port @PORT@ --pidfile "$dir/nbdkit.pid" memory "${mem_mib}M"
	# every page written once, as ros2-bench does with its file
	fio --name=fill --ioengine=nbd --uri="$nbd" --rw=write --bs=1M --size="${mem_mib}M" --output="$dir/fill.json" >/dev/null
}
nbd_read() { fio_read --ioengine=nbd --uri="$nbd" --iodepth="$1" --size="${2:-$mem_mib}M"; } # DEPTH [MIB]
mib() { jq -c '.value = .bytes_per_s / 1048576'; }

group_tcp() {
	local rep
	tcp_cluster
	nbd_up
	ours ram randread 4096 32 $mem_mib 1 >/dev/null # writes the file
	for ((rep = 1; rep <= reps; rep++)); do
		sample tcp-4k-d32 ros2 $rep "$(ours ram randread 4096 32 $mem_mib "$seconds" --no-layout)" "$(ours_words)"
		sample tcp-4k-d32 raw $rep "$(raw 4096 32)"
		sample tcp-4k-d32 nbd $rep "$(nbd_read 32)"
		sample tcp-4k-d128 ros2 $rep "$(ours ram randread 4096 128 $mem_mib "$seconds" --no-layout)" "$(ours_words)"
		sample tcp-4k-d128 raw $rep "$(raw 4096 128)"
		sample tcp-4k-d128 raw-span $rep "$(raw 4096 128 $mem_mib)"
		sample tcp-4k-d128 nbd $rep "$(nbd_read 128)"
		sample tcp-1m ros2 $rep "$(ours ram randread 1048576 8 $mem_mib "$seconds" --no-layout | mib)" "$(ours_words)"
		sample tcp-1m raw $rep "$(raw 1048576 8 | mib)"
		sample tcp-1m raw-span $rep "$(raw 1048576 8 $mem_mib | mib)"
	done
	end_process "$(cat "$dir/nbdkit.pid")"
}

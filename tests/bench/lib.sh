# SPDX-License-Identifier: Apache-2.0
# Shared by tests/bench/run and its cases: samples, clusters, the machine. Sourced; the variables are those of `run`.
# shellcheck shell=bash
pids=()
clusters=() ram_dir=

say() { echo "bench: $*" >&2; }
die() { say "$*"; exit 1; }

install_peers() {
	local p missing=
	while read -r p; do
		case "$p" in '' | '#'*) continue ;; esac
		# one line for each architecture that has it
		[[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$p" 2>/dev/null) == "ii "* ]] || missing="$missing $p"
	done < <(cat "$src/tools/packages.txt" "$src/tests/bench/packages.txt")
	[ -n "$missing" ] || return 0
	say "installing$missing"
	apt-get update -qq >&2
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

need_programs() {
	local p
	for p in ros2-bench ros2-agent ros2-controller ros2ctl raw-tcp-bench grant-bench revoke-bench audit-fill bench-report; do
		[ -x "$bin/$p" ] || die "no $p in $bin: build the release preset"
	done
	for p in fio nbdkit qemu-nbd etcd jq strace; do
		command -v $p >/dev/null || die "$p is not installed (tests/bench/packages.txt)"
	done
	fio --enghelp 2>/dev/null | grep -qw nbd || die "this fio has no nbd engine"
}

start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
# remember PID: ended with the run; named by pid and start time, since a pid may be used again.
remember() { pids+=("$1:$(start_time "$1")"); }
end_process() { # PID
	kill "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

cleanup() {
	local p c
	trap '' INT TERM
	for p in "${pids[@]}"; do
		[ "$(start_time "${p%:*}")" != "${p#*:}" ] || end_process "${p%:*}"
	done
	for c in "${clusters[@]}"; do
		cluster "$c" down >/dev/null 2>&1 || true
	done
	rm -rf "$dir" ${ram_dir:+"$ram_dir"}
}

cluster() { # DIR COMMAND...
	local d=$1
	shift
	"$src/tools/dev-cluster" "$@" --dir "$d" --bin "$bin"
}
cluster_up() { # DIR: one agent, one reactor
	clusters+=("$1")
	cluster "$1" up --agents 1 >&2
	# shellcheck disable=SC1091
	. "$1/env"
}

# sample CASE SERIES REP JSON [WORDS]: JSON holds at least {value}; without it the sample failed, and WORDS say how.
sample() {
	if [ -n "$4" ] && jq -e '.value | numbers' >/dev/null 2>&1 <<<"$4"; then
		jq -c --arg c "$1" --arg s "$2" --argjson r "$3" '{case: $c, series: $s, rep: $r} + .' <<<"$4" >>"$samples"
		say "  $1 $2 #$3: $(jq -r '.value * 1000 | round / 1000' <<<"$4")"
	else
		jq -nc --arg c "$1" --arg s "$2" --argjson r "$3" --arg e "${5:-no number}" \
			'{case: $c, series: $s, rep: $r, error: $e}' >>"$samples"
		say "  $1 $2 #$3: FAILED: ${5:-no number}"
	fi
}

# value NUMBER: as JSON.
value() { jq -nc --argjson v "$1" '{value: $v}'; }

# pause SECONDS: lets a load run for a time; nothing is waited for that has an event.
pause() { read -r -t "$1" <> <(:) || true; }

# One tenant with a certificate in DIR/NAME; further lines of its spec on stdin.
tenant() { # CLUSTER NAME ENGINE
	{
		printf 'apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: %s}\nspec:\n' "$2"
		printf '  principals: ["spiffe://ros2.test/tenant/%s/load"]\n  placement: {agents: [dpu-0]}\n' "$2"
		printf '  namespaces: [{name: data, engine: %s, path: %s, access: rw}]\n' "$3" "$2"
		cat
	} | ros2ctl apply -f - >/dev/null
	ros2ctl tenant cert --dir "$1/td" --id "spiffe://ros2.test/tenant/$2/load" --out "$1/$2" >/dev/null 2>&1
}
as() { # CLUSTER TENANT COMMAND...
	local d=$1/$2
	shift 2
	ROS2_CERT=$d/tls.crt ROS2_KEY=$d/tls.key ROS2_CA=$d/infra-bundle.pem "$@"
}

# fdatasync after writes of 2300 bytes, as a small commit does: {p50, p99} in us.
fdatasync_us() { # DIR SECONDS
	fio --name=sync --directory="$1" --size=16m --bs=2300 --rw=write --fdatasync=1 --ioengine=sync --runtime="$2" \
		--time_based --output-format=json 2>/dev/null |
		jq -c '.jobs[0].sync.lat_ns.percentile | {p50: (."50.000000" / 1000 | round), p99: (."99.000000" / 1000 | round)}'
	rm -f "$1"/sync.*
}

# Ticks of all processors, as `stolen all`: stolen is what a hypervisor gave to others while somebody here wanted to run (proc(5)).
cpu_ticks() { awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; print $9, all }' /proc/stat; }
stolen_percent() { # STOLEN ALL: at the begin
	local now
	read -r -a now < <(cpu_ticks)
	awk -v s=$((now[0] - $1)) -v a=$((now[1] - $2)) 'BEGIN { printf("%.1f", a ? 100 * s / a : 0) }'
}

describe_machine() {
	jq -n --arg cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" --argjson cpus "$(nproc)" \
		--arg kernel "$(uname -r)" --arg arch "$(uname -m)" --argjson mem "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)" \
		--arg fs "$(stat -f -c %T "$dir")" --arg disk "$(df --output=source "$dir" | tail -n 1)" \
		--arg load "$(cut -d' ' -f1-3 /proc/loadavg)" --arg date "$(date -u +%FT%TZ)" \
		--arg commit "$(git -C "$src" describe --always --dirty 2>/dev/null || echo unknown)" \
		--arg fio "$(fio --version)" --arg nbdkit "$(nbdkit --version)" --arg qemu "$(qemu-nbd --version | head -n 1)" --arg etcd "$(etcd --version | head -n 1)" \
		--arg tcp "$(cat /proc/sys/net/ipv4/tcp_congestion_control)" \
		--argjson sync "$(fdatasync_us "$dir" 2)" --argjson reps "$reps" --argjson quick "${quick:-0}" --argjson seconds "$seconds" \
		'{cpu: $cpu, cpus: $cpus, arch: $arch, kernel: $kernel, memory_kib: $mem, filesystem: $fs, disk: $disk, fdatasync_us: $sync, tcp: $tcp,
		  load_before: $load, date: $date, commit: $commit, peers: [$fio, $nbdkit, $qemu, $etcd],
		  settings: {reps: $reps, quick: ($quick == 1), seconds_each: $seconds}}'
}

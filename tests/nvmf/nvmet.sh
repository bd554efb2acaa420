# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Linux nvmet as a target, in the guest only: subsystems with namespaces on null_blk that keeps its data, ports over RDMA and
# TCP. Everything goes with the guest.
nvmet=/sys/kernel/config/nvmet
[ -d $nvmet ] || mount -t configfs configfs /sys/kernel/config

null_disk() { # NAME MIB [ATTRIBUTE=VALUE...]: prints its device
	local d=/sys/kernel/config/nullb/$1 a
	mkdir "$d" && echo "$2" >"$d/size" && echo 1 >"$d/memory_backed" && echo 512 >"$d/blocksize" || return 1
	for a in "${@:3}"; do
		echo "${a#*=}" >"$d/${a%%=*}" || return 1
	done
	echo 1 >"$d/power" || return 1
	# named after its directory since 6.1, else after its index
	[ -b "/dev/$1" ] && echo "/dev/$1" || echo "/dev/nullb$(cat "$d/index")"
}
subsystem() { # NQN
	mkdir "$nvmet/subsystems/$1" && echo 1 >"$nvmet/subsystems/$1/attr_allow_any_host"
}
namespace() { # NQN NSID DEVICE
	local n=$nvmet/subsystems/$1/namespaces/$2
	mkdir "$n" && echo "$3" >"$n/device_path" && echo 1 >"$n/enable"
}
listen() { # PORTID rdma|tcp ADDRESS PORT NQN...
	local p=$nvmet/ports/$1 nqn
	mkdir "$p" && echo ipv4 >"$p/addr_adrfam" && echo "$2" >"$p/addr_trtype" && echo "$3" >"$p/addr_traddr" &&
		echo "$4" >"$p/addr_trsvcid" || return 1
	shift 4
	for nqn; do
		ln -s "$nvmet/subsystems/$nqn" "$p/subsystems/$nqn" || return 1
	done
}

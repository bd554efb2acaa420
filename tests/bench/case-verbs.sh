# SPDX-License-Identifier: Apache-2.0
# verbs: what there is to measure without a NIC. Software checks against the stub of libibverbs, natively; what a key for each
# command costs over NVMe/RDMA, in the guest (tests/guest), as counts and as a ratio of emulated times. Both are programs of the
# preset guest (release, with tests).
# shellcheck shell=bash
verbs_checks() { # REP
	local p line
	for p in fabric_checks_cost nvmf_rdma_checks_cost; do
		while read -r -a line; do
			sample checks "${line[0]}" "$1" "$(value "${line[1]}")"
		done < <("$src/build/guest/tests/$p")
	done
}

verbs_rotation() {
	local out=$dir/rotation rc=0 rep=0 v
	"$src/tests/guest/run" --time-limit 400 --modules nvmet-rdma,null_blk -- \
		tests/nvmf/guest_rdma nvmf_rdma_cost 16 40 >"$out" 2>&1 || rc=$?
	if [ $rc -eq 77 ]; then
		say "  rotation: left out: $(tail -n 1 "$out")"
		return
	fi
	sed -n '/^# round /!s/^# /bench:     /p' "$out" >&2 # the table of counts
	while read -r v; do
		sample rotation added $((++rep)) "$(value "$v")"
	done < <(sed -n 's/^# round [0-9]*: added \([-0-9.]*\) of bare$/\1/p' "$out")
	v=$(sed -n 's/^# doorbells added: \([-0-9.]*\) for each command$/\1/p' "$out")
	[ $rc -eq 0 ] || v=
	sample rotation doorbells 1 "$([ -z "$v" ] || value "$v")" "exit $rc: $(tail -n 1 "$out")"
}

group_verbs() {
	local rep
	say "building the preset guest"
	(cd "$src" && cmake --preset guest >/dev/null &&
		ninja -C build/guest fabric_checks_cost nvmf_rdma_checks_cost nvmf_rdma_cost >/dev/null)
	for ((rep = 1; rep <= reps; rep++)); do
		verbs_checks $rep
	done
	verbs_rotation
}

# SPDX-License-Identifier: Apache-2.0
# verbs: what there is to measure without a NIC. Software checks against the stub of libibverbs, natively; what a key for each
# command costs over NVMe/RDMA, in the guest (tests/guest), as counts and as a ratio of instructions. Both are programs of the
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

# Time there is instructions that the guest executes (run --icount).
verbs_rotation() {
	local out=$dir/rotation rc=0 v depth rep
	"$src/tests/guest/run" --icount --time-limit 900 --modules nvmet-rdma,null_blk -- \
		tests/nvmf/guest_rdma bash -c 'nvmf_rdma_cost 16 40 && nvmf_rdma_cost 4 40 && nvmf_rdma_cost 1 40' >"$out" 2>&1 || rc=$?
	if [ $rc -eq 77 ]; then
		say "  rotation: left out: $(tail -n 1 "$out")"
		return
	fi
	sed -n '/^# depth /!s/^# /bench:     /p' "$out" >&2 # the tables of counts
	for depth in 16 4 1; do
		rep=0
		while read -r v; do
			sample rotation added-d$depth $((++rep)) "$(value "$v")"
		done < <(sed -n "s/^# depth $depth round [0-9]*: added \([-0-9.]*\) of bare$/\1/p" "$out")
		v=$(sed -n "s/^# depth $depth doorbells added: \([-0-9.]*\) for each command$/\1/p" "$out")
		[ $rc -eq 0 ] || v=
		sample rotation doorbells-d$depth 1 "$([ -z "$v" ] || value "$v")" "exit $rc: $(tail -n 1 "$out")"
	done
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

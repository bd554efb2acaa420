# SPDX-License-Identifier: Apache-2.0
# The parts of tests/compat/run, in their order. Each begins with what the one before left, or with a cluster of its own.
# shellcheck shell=bash disable=SC2154

# ---- the agents first: not the order that docs/operations.md names, but it must harm nobody ----
wrong_order() {
	local state="old controller, new agent"
	cluster_of "$old" "$new" "$new" 1
	check "$state: it connects" all_connected dpu-0
	check "$state: the new ros2ctl shows everything" every_view "$new"
	check "$state: so does the old one" every_view "$old"
	check "$state: the new client works, verified" await "$long" short_with "$new" alpha 0
	check "$state: so does the old client" short_with "$old" alpha 0
	check "$state: bytes are made zeros" clears 0 zero
	check "$state: and given up" clears 0 trim
	revoked_under_load "$state, shm" "$new" "$new" 0 --transport shm --shm-bytes 4MiB
	revoked_under_load "$state, old client" "$old" "$old" 0
	check "$state: the log is intact, as old and new ros2ctl see it" intact
}

# ---- the controller first, then the agents, one by one ----
rolling() {
	local state n before
	cluster_of "$old" "$old" "$old" 2
	check "all old: both are connected" all_connected dpu-0 dpu-1
	# Two sessions at once leave two idle rights: one that is being closed does not give its own back at once.
	for n in 0 1; do check "all old: alpha works at dpu-$n" await "$long" short_with "$old" alpha $n --jobs 2; done
	mkdir -p "$dir/tree"
	for n in {1..5}; do head -c $((n * 33333)) /dev/urandom >"$dir/tree/f$n"; done
	check "all old: a tree is stored, flushed" with "$old" as alpha ros2-bench put --agent "${agent[1]}" --namespace data -q "$dir/tree" kept
	before=$(ros2ctl get grants --tenant alpha --agent dpu-0 -o json | jq -r '[.items[] | select(.state == "live")][0].grantUid')
	check "all old: a grant is revoked" with "$old" ros2ctl revoke "grant/$before" --reason "before the upgrade"
	with "$old" load steady beta --bs 4k --reconnect "$((long * 8))s" && tap ok "all old: beta's load runs at dpu-0, from here to the end"
	check "all old: what was acknowledged is written down" remember "$old"
	old_schema=$(schema)
	mkdir -m 700 "$dir/backup" && sqlite3 "$dir/controller/ros2.db" ".backup '$dir/backup/ros2.db'"

	# An agent that was replaced while there was no controller has what the old one had: rights from its snapshot, records in its spool.
	n=$(opened)
	cluster stop controller --kill
	check "no controller: alpha works at the old dpu-1" short_with "$old" alpha 1
	check "no controller: a new agent takes the place of dpu-1" replace "$new" dpu-1
	check "no controller: alpha's rights at dpu-1 are what they were" short_with "$old" alpha 1
	check "the new controller takes over the old one's directory" dev "$new" start controller || tap_end
	check "its schema is not an older one" [ "$(schema)" -ge "$old_schema" ]
	check "both agents connect to it" all_connected dpu-0 dpu-1
	check "nothing that was acknowledged is lost" kept exact
	has_records() { [ "$(opened)" -ge $((n + 2)) ]; }
	check "what dpu-1, old and new, had in its spool is in the log" await "$long" has_records
	revoked_before() { ros2ctl get grants --all -o json | jq -e --arg g "$before" '.items[] | select(.grantUid == $g) | .state == "revoked"'; }
	check "a grant that was revoked before is revoked" revoked_before

	state="new controller, old agent"
	check "$state: the old ros2ctl shows everything" every_view "$old"
	check "$state: so does the new one" every_view "$new"
	check "$state: the new client works over tcp, verified" short_with "$new" alpha 0 --transport tcp
	check "$state: what was stored is there" as alpha ros2-bench verify-tree --agent "${agent[0]}" --namespace data -q "$dir/tree" kept
	new_features_of_old_agent
	revoked_under_load "$state, new client" "$new" "$new" 0
	revoked_under_load "$state, old client and ros2ctl" "$old" "$old" 0
	revoked_under_load "new controller, new agent, old client" "$old" "$old" 1
	check "$state: beta's load goes on" await "$long" load_moves steady beta

	state="all new"
	told_late
	check "$state: beta's load has found the new agent" await "$long" load_moves steady beta
	check "$state: what was stored is there" as alpha ros2-bench verify-tree --agent "${agent[0]}" --namespace data -q "$dir/tree" kept
	revoked_under_load "$state, shm" "$new" "$new" 0 --transport shm --shm-bytes 4MiB
	# A client that has no such word says so; one that has it shares memory with the new agent, whatever both have learned since.
	if with "$old" ros2-bench --help | grep -q -- --shm-bytes; then
		check "$state: the old client works over shm, verified" short_with "$old" alpha 0 --transport shm
	else
		refused "$state: the old client knows no shm, and says so" 'transport' short_with "$old" alpha 0 --transport shm
	fi
	check "$state: beta's load, of the old client, was verified from the beginning to the end" unharmed steady
	check "$state: it says that it reconnected" [ "$(report steady .reconnects)" -ge 1 ]
	check "$state: nothing that was acknowledged is lost" kept
	check "$state: the log is intact from its beginning, as old and new ros2ctl see it" intact
}

# A right is withdrawn while dpu-0 is down for its upgrade: the old one never heard of it, the new one does when it connects.
told_late() {
	local g
	check "alpha has a right at the old dpu-0" short_with "$old" alpha 0
	g=$(ros2ctl get grants --tenant alpha --agent dpu-0 -o json | jq -r '[.items[] | select(.state == "live")][0].grantUid')
	cluster stop dpu-0 --kill
	exits 1 "a grant is revoked while dpu-0 is down: no receipt yet, and until when it holds" 'HELD-UNTIL' \
		ros2ctl revoke "grant/$g" --reason "upgrading" --wait 200ms
	check "the new agent takes over dpu-0's directory" start_agent "$new" dpu-0
	check "it connects" all_connected dpu-0
	late() { ros2ctl audit query --action revoke.receipt --object "$g" -o json | jq -e '.items | length > 0'; }
	check "and gives the receipt that the old one owed" await "$long" late
}

# What only the new ones know is done or refused by name; it neither hangs nor ends the session of others.
new_features_of_old_agent() {
	local kind
	over_shm() { short alpha 0 --transport shm --timeout 10s; }
	if over_shm >"$dir/over" 2>&1; then
		tap ok "new client, old agent: shm works"
	else
		check "new client, old agent: shm is refused by name" says '^ros2-bench: UNSUPPORTED: .*(shm|transport)' cat "$dir/over"
	fi
	for kind in zero trim; do
		if clears 0 $kind >"$dir/clears" 2>&1; then
			tap ok "new client, old agent: $kind works"
		else
			check "new client, old agent: $kind is refused by name" says '^ros2-bench: UNSUPPORTED: ' cat "$dir/clears"
		fi
	done
	sed "s|192.0.2.10|127.0.0.1|; s|transport: rdma|transport: tcp|; /keys: perCommand/d; /[sS]ecretRef/d" "$ROS2_SRC/examples/nvmf.yaml" |
		awk 'BEGIN { RS = "---\n"; ORS = "" } /kind: Engine/' >"$dir/flash.yaml"
	cat >>"$dir/flash.yaml" <<-END
		---
		apiVersion: ros2/v1
		kind: Tenant
		metadata: {name: gamma}
		spec:
		  principals: [spiffe://ros2.test/tenant/gamma/x]
		  placement: {agents: [dpu-0]}
		  namespaces: [{name: disk, engine: flash, path: alpha, access: rw}]
		---
		apiVersion: ros2/v1
		kind: Tenant
		metadata: {name: delta}
		spec:
		  principals: [spiffe://ros2.test/tenant/delta/x]
		  placement: {agents: [dpu-0], require: [mr-range]}
		  namespaces: [{name: data, engine: files, path: delta, access: rw}]
	END
	check "new controller, old agent: documents of a newer kind apply" ros2ctl apply -f "$dir/flash.yaml"
	judged() { ros2ctl describe "$1" -o json | jq -e '([.object.rollout[]? | select(.agent == "dpu-0")][0] | (.sentVersion // 0) > 0 and
		(.appliedVersion == .sentVersion or (.failedReason | test("VERSION")))) or any(.object.conditions[]?; .name == "RequirementsUnmet" and .status)'; }
	for kind in engine/flash tenant/gamma tenant/delta; do
		check "new controller, old agent: $kind is applied there, or it is said why not" await 20 judged $kind
	done
	check "new controller, old agent: beside it alpha works" short_with "$new" alpha 0
	for kind in tenant/gamma tenant/delta engine/flash; do check "$kind goes again" ros2ctl delete $kind; done
}

# ---- the way back ----
back() {
	local sum
	cluster stop controller
	if [ "$(schema)" -gt "$old_schema" ]; then
		sum=$(sha256sum <"$dir/controller/ros2.db")
		refused "back: the old controller refuses the newer schema by name" "has schema $(schema), this ros2-controller knows up to $old_schema" \
			timeout $((patience * 10)) "$old/ros2-controller" --config-dir "$ROS2_TD/controller" --data-dir "$dir/controller" \
			--admin-listen 127.0.0.1:0 --agent-listen 127.0.0.1:0 --enrol-listen 127.0.0.1:0
		check "back: and leaves it as it is" [ "$(sha256sum <"$dir/controller/ros2.db")" = "$sum" ]
		check "back: the new one goes on" dev "$new" start controller || tap_end
	else
		check "back: the old controller takes the new one's directory" dev "$old" start controller || tap_end
	fi
	check "back: both agents connect" all_connected dpu-0 dpu-1
	check "back: nothing that was acknowledged is lost" kept
	revoked_under_load "back, new agent" "$old" "$new" 1
	check "back: the old agent takes the new one's directory" replace "$old" dpu-1
	check "back: it connects" all_connected dpu-1
	check "back: alpha works there" await "$long" short_with "$old" alpha 1
	revoked_under_load "back, old agent" "$old" "$old" 1
	check "back: what was stored is there" with "$old" as alpha ros2-bench verify-tree --agent "${agent[1]}" --namespace data -q "$dir/tree" kept
	check "back: the log is intact from its beginning" intact
	# A newer schema than any: the control of what `back` does with a database that both know.
	cluster stop controller
	sqlite3 "$dir/controller/ros2.db" 'PRAGMA user_version=99'
	refused "back: a schema that is newer than either's is refused by name" 'has schema 99, this ros2-controller knows up to' dev "$old" start controller

	# The backup of before the upgrade: the old controller takes it, agents that have served a newer epoch do not, and serve on.
	rm -rf "$dir/controller" && mv "$dir/backup" "$dir/controller"
	check "back: the old controller starts from the backup" dev "$old" start controller
	stale() { grep -q STALE_EPOCH "$dir/logs/controller.log" "$dir/logs/$1.log"; }
	for n in dpu-0 dpu-1; do check "back: $n and the backup part by name" await "$long" stale $n; done
	refused "back: they do not connect" '' connected dpu-1
	check "back: meanwhile dpu-1 serves as before" short_with "$old" alpha 1
}

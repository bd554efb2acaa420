# SPDX-License-Identifier: Apache-2.0
# grants: durable audited grants over mTLS with a long audit log present, beside etcd's LeaseGrant over mTLS: the same client, the same disk,
# the same number in flight. Tenants are new in each repetition, and revoked after it, so that none reaches its cap of grants.
# shellcheck shell=bash
grants_tenants=8 grants_depth=64

# A cluster whose log has $rows records; under --audit-store it is kept between runs.
grants_store() {
	local had
	grants=$dir/grants
	[ -z "$store" ] || grants=$store/rows-$rows
	mkdir -p "$grants"
	if [ ! -f "$grants/filled" ]; then
		cluster_up "$grants"
		cluster "$grants" down
		say "making an audit log of $rows records in $grants"
		timeout 1200 "$bin/audit-fill" --config-dir "$grants/td/controller" --data-dir "$grants/controller" --rows "$rows" >&2
		echo "$rows" >"$grants/filled"
	fi
	cluster_up "$grants"
}

etcd_up() {
	local line=
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$dir/etcd.key" -subj /CN=etcd -out "$dir/etcd.csr" 2>/dev/null
	printf 'subjectAltName=URI:spiffe://ros2.test/controller/etcd,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' >"$dir/etcd.ext"
	openssl x509 -req -in "$dir/etcd.csr" -CA "$grants/td/ca/infra-ca.crt" -CAkey "$grants/td/ca/infra-ca.key" -CAcreateserial \
		-CAserial "$dir/etcd.srl" -days 2 -extfile "$dir/etcd.ext" -out "$dir/etcd.crt" 2>/dev/null
	etcd_port=$((20000 + RANDOM % 10000))
	mkfifo "$dir/etcd.log"
	# default durability: fsync per commit
	etcd --data-dir "$dir/etcd" --listen-client-urls https://127.0.0.1:$etcd_port --advertise-client-urls https://127.0.0.1:$etcd_port \
		--listen-peer-urls http://127.0.0.1:$((etcd_port + 1)) --initial-advertise-peer-urls http://127.0.0.1:$((etcd_port + 1)) \
		--initial-cluster default=http://127.0.0.1:$((etcd_port + 1)) --cert-file "$dir/etcd.crt" --key-file "$dir/etcd.key" \
		--client-cert-auth --trusted-ca-file "$grants/td/ca/infra-ca.crt" --log-level info >"$dir/etcd.log" 2>&1 &
	etcd_pid=$!
	remember $etcd_pid
	exec 8<"$dir/etcd.log"
	until read -r -t 30 line <&8 && [[ $line == *"serving client"* || $line == *"ready to serve"* ]]; do
		kill -0 "$etcd_pid" 2>/dev/null || die "etcd ended: $line"
	done
	cat <&8 >/dev/null &
	remember $!
}

# New tenants of this repetition; their --tenant arguments in $grants_args.
grants_new_tenants() { # PREFIX
	local i uid name
	for ((i = 0; i < grants_tenants; i++)); do
		printf -- '---\napiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: %s-%d}\nspec:\n' "$1" $i
		printf '  principals: ["spiffe://ros2.test/tenant/%s-%d/load"]\n  placement: {agents: [dpu-0]}\n' "$1" $i
		printf '  namespaces: [{name: data, engine: ram, path: %s-%d, access: rw}]\n  sessions: {max: 4096}\n' "$1" $i
	done | ros2ctl apply -f - >/dev/null
	grants_args=()
	while read -r uid name; do
		grants_args+=(--tenant "$uid=spiffe://ros2.test/tenant/$name/load")
	done < <(ros2ctl get tenants -o json | jq -r --arg p "$1-" '.items[] | select(.name | startswith($p)) | "\(.uid) \(.name)"')
}
grants_old_tenants() { # PREFIX: the agent is away, so there is no receipt to wait for
	local i
	for ((i = 0; i < grants_tenants; i++)); do
		ros2ctl revoke "tenant/$1-$i" --reason 'end of the repetition' --wait 1ms >/dev/null 2>&1 || true
	done
}

grant_bench() { # SERVER TARGET [OPTIONS]
	timeout 120 "$bin/grant-bench" --server "$1" --target "$2" --dir "$grants/agents/dpu-0" --server-id spiffe://ros2.test/controller/ \
		--count "$grants_count" --depth $grants_depth "${@:3}" 2>"$dir/grant.err"
}

group_grants() {
	local rep run one target agent_uid
	grants_store
	run=b$(date +%s)
	printf 'apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: ram}\nspec: {type: mem, size: 64MiB}\n' | ros2ctl apply -f - >/dev/null
	agent_uid=$(ros2ctl get agents dpu-0 -o json | jq -r '.items[0].uid')
	target=$(jq -r .agent "$grants/run/controller.json")
	# the load takes the agent's place: its identity, its stream
	cluster "$grants" stop dpu-0
	etcd_up
	for ((rep = 1; rep <= reps; rep++)); do
		sample grants audit-rows $rep "$(ros2ctl audit query --newest --limit 1 -o json | jq -c '{value: .items[0].seq}')"
		grants_new_tenants "$run-$rep"
		one=$(grant_bench ros2 "$target" --agent-uid "$agent_uid" "${grants_args[@]}" || true)
		sample grants ros2 $rep "$(jq -c '. + {value: .grants_per_s}' <<<"$one")" "$(tail -n 1 "$dir/grant.err")"
		sample grants ros2-p99 $rep "$(jq -c '{value: (.p99_us / 1000)}' <<<"$one")"
		grants_old_tenants "$run-$rep"
		one=$(grant_bench etcd 127.0.0.1:$etcd_port || true)
		sample grants etcd $rep "$(jq -c '. + {value: .grants_per_s}' <<<"$one")" "$(tail -n 1 "$dir/grant.err")"
		sample grants etcd-p99 $rep "$(jq -c '{value: (.p99_us / 1000)}' <<<"$one")"
		sample grants fdatasync $rep "$(fdatasync_us "$grants" 1 | jq -c '. + {value: .p50}')"
	done
	end_process "$etcd_pid"
	cluster "$grants" down
}

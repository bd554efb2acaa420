# SPDX-License-Identifier: Apache-2.0
# revoke: a tenant that reads without pause is revoked over one kept connection, reinstated, and so on. First the negative control:
# counted from the command on there must be bytes, or the count after the receipt would say nothing.
# shellcheck shell=bash
group_revoke() {
	local found
	tcp_cluster
	tenant "$tcp" busy ram <<<"$tcp_buckets"
	found=$(as "$tcp" busy timeout 60 "$bin/revoke-bench" --tenant busy --namespace data --tries 10 --control | jq -s 'map(.late_bytes) | add')
	[ "$found" -gt 0 ] || die "revoke: the negative control found no bytes after the command: the count is broken"
	as "$tcp" busy timeout 600 "$bin/revoke-bench" --tenant busy --namespace data --tries $revoke_tries >"$dir/revoke.jsonl" 2>"$dir/revoke.err" ||
		sample revoke receipt 1 '' "$(tail -n 1 "$dir/revoke.err")"
	jq -c '(.try as $t | {receipt: .reply_ms, controller: .receipt_ms, stopped: .last_byte_ms, "late-client": .late_bytes, "late-agent": .late_agent_ms}
		| to_entries[] | {case: "revoke", series: .key, rep: $t, value: .value})' "$dir/revoke.jsonl" >>"$samples"
	sample revoke tries 1 "$(value "$(wc -l <"$dir/revoke.jsonl")")"
	sample revoke busy 1 "$(jq -sc '{value: (map(.busy_bytes) | add), zero: (map(select(.busy_bytes == 0)) | length)}' "$dir/revoke.jsonl")"
}

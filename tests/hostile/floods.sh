# SPDX-License-Identifier: Apache-2.0
# Sourced by what floods (floods, floods-controls, floods-controller, frames, crowd, unpaced): alpha, who works, gamma, who is revoked, beta, who floods,
# and the six things that must hold meanwhile. Alpha's share is what its policy gives it (1 MiB/s each way here, and what a machine that stalls owes it
# of a second: what a sanitized build on busy cores can do with ease), so that the comparison is about isolation and not about who gets the processor.
# (1) Alpha keeps 90 % of what it has alone, verified and without a reconnect (begin_work, worked, keeps_share); (2) a session of its opens, to the
# proof on the data port, in time (in_time open opens); (3) its leases (2 s, on a machine that is busy as many times more) are renewed without a gap (begin_renewals, still_renewed); (4) a
# revocation is confirmed in time (in_time revoke revoked), of the flooder, too; (5) the log grows within its bounds (grown, bounded); (6) memory
# and descriptors of who is flooded (watch) are bounded, and come back (in_flood, comes_back). And every refusal has a name and words, or a metric where no word
# can be sent, that say which cap was hit. FLOOD@shm is that flood over shared memory, and there alpha works and opens sessions over that, too;
# FLOOD@verbs is over verbs, and there alpha's leases are of a session over that, and gamma has one (floods-verbs).
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=16:malloc_context_size=4"
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../integration/lib.sh"
export ROS2_AGENT_FLAGS="--shm-dir $dir/sock-%n --shm-memory 20000000 ${ROS2_AGENT_FLAGS:-}"
over_shm=(transport=shm shm_bytes=2097152)
is_shm() { [[ ${1:-} == *@shm ]]; }
is_verbs() { [[ ${1:-} == *@verbs ]]; }
on() { ! is_shm "$1" && ! is_verbs "$1" || echo "@${1##*@}"; } # FLOOD: @shm, @verbs, or nothing
# of TABLE FLOOD: what is there of it, or of the flood of that name over tcp.
of() {
	local -n rows_of=$1
	echo "${rows_of[$2]-${rows_of[${2%@*}]-}}"
}

# ---- the cluster ----
set_pace
lease_s=$((pace * (tsan_factor > 1 ? 8 : 2))) # renewed every 500 ms
share="  qos:
    read: {bandwidth: ${ALPHA_RATE:-1MiB/s}}
    write: {bandwidth: ${ALPHA_RATE:-1MiB/s}}
    burst: 1s"
beta_iops=${BETA_IOPS:-1000}
limited() { # NAME PRINCIPAL: alpha's document with short leases, and a rate
	sed "s/name: alpha/name: $1/; s,tenant/alpha/trainer,tenant/$1/$2,; s/path: alpha/path: $1/; s/leaseTtl: 30s/leaseTtl: ${lease_s}s/" \
		"$dir/policies/alpha.yaml"
	printf '%s\n' "$share"
}
unbound=''
floods_up() { # AGENTS; where `share` is empty alpha has no rate, and where `unbound` is not, beta none
	local rate="s,read: {bandwidth: 8MiB/s},read: {bandwidth: 8MiB/s\\, iops: $beta_iops},"
	[ -n "$share" ] || rate=''
	[ -z "$unbound" ] || rate='/^  qos:/,$d'
	cluster_up "$1"
	limited alpha trainer >"$dir/alpha2.yaml"
	limited gamma third >"$dir/gamma.yaml"
	# Beta's leases do not end amid a flood: it would only be told so.
	sed -e "$rate" -e "s/leaseTtl: 30s/leaseTtl: 30m/" "$dir/policies/beta.yaml" >"$dir/beta2.yaml"
	check "${share:+alpha has a stated share, beta one of reads, }gamma is there to be revoked" \
		ros2ctl apply -f "$dir/alpha2.yaml" -f "$dir/beta2.yaml" -f "$dir/gamma.yaml"
	tenant_cert gamma third
	mkdir -p "$dir/data/beta" && head -c 4194304 /dev/zero >"$dir/data/beta/flood"
	watch dpu-0
}
# Whose memory and descriptors it is about.
watch() { watched=$(process "$1"); }
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$watched/status"; }
descriptors() { find "/proc/$watched/fd" -mindepth 1 2>/dev/null | wc -l; }

leaf() { # NAME CA URI: a certificate of that authority
	mkdir -p "$dir/$1" && openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$dir/$1/tls.key" -subj / -addext "subjectAltName=URI:$3" -out "$dir/$1/csr" 2>/dev/null
	openssl x509 -req -in "$dir/$1/csr" -CA "$ROS2_TD/ca/$2-ca.crt" -CAkey "$ROS2_TD/ca/$2-ca.key" -copy_extensions copy -days 1 -out "$dir/$1/tls.crt" \
		-extfile <(printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth\n') 2>/dev/null
	cp "$ROS2_TD/admin/infra-bundle.pem" "$dir/$1/"
}
strangers() { # at the controller: who has a certificate of the right authority, and no name there
	leaf as-admin admin spiffe://ros2.test/admin/mallory
	leaf as-agent infra spiffe://ros2.test/tenant/mallory/x
}

# ---- (1) alpha's share ----
declare -A work=()
# begin_work NAME, worked NAME: alpha's verified I/O for two seconds, beside what is done in between; bytes per second in $dir/NAME.rate.
begin_work() {
	local over=(--bs 16k)
	! is_shm "$1" || over+=(--transport shm --shm-bytes 2MiB)
	! is_verbs "$1" || over=(--bs 4k --transport verbs --timeout 60s)
	start_as "work_$1" alpha ros2-bench run --namespace data --file victim --rw randrw --verify --size 1MiB --depth 8 --time "${WORK_TIME:-2s}" --warmup 500ms \
		"${over[@]}" -o json -q
	work[$1]=$pid
}
worked() {
	ended "${work[$1]}" 60 || { cat "$dir/work_$1.out"; return 1; }
	jq -e '.error == null and .reconnects == 0 and .verified_blocks > 0' "$dir/work_$1.out" >/dev/null || { cat "$dir/work_$1.out"; return 1; }
	jq '[.. | objects | .bytes_per_s? // empty] | add' "$dir/work_$1.out" >"$dir/$1.rate"
}
works() { begin_work "$1" && worked "$1"; }
rate() { printf '%.0f' "$(cat "$dir/$1.rate")"; }
alone() { echo "alone$(on "$1")"; }
keeps_share() {
	local all
	all=$(alone "$1")
	[ "$(rate "$1")" -ge $(($(rate "$all") * 90 / 100)) ] || { echo "$(rate "$1") of $(rate "$all")"; return 1; }
}

# ---- (2) sessions, (4) revocations ----
# in_time NAME COMMAND...: it takes no longer than three seconds beyond ten times what it took without a flood.
declare -A took=()
in_time() {
	local name=$1 from ms
	shift
	from=$(now_ms)
	"$@" || return 1
	ms=$(($(now_ms) - from))
	took[$name]=${took[$name]:-$ms}
	[ $ms -lt $((3000 * tsan_factor + 10 * ${took[$name]})) ] || { echo "$ms ms, ${took[$name]} without a flood"; return 1; }
}
opens() { # [FLOOD]: a session of alpha's, until it is proved on the data port; over verbs with a file and a region, and a block from one to the other
	local over=()
	! is_shm "${1:-}" || over=("${over_shm[@]}")
	if is_verbs "${1:-}"; then
		hostile-alpha "$dir" open >"$dir/raw.all" 2>&1
	else
		raw alpha wire "${over[@]}"
	fi
	jq -e 'select(.event == "hello") | .status == "OK"' "$dir/raw.all" >"$dir/said" || { cat "$dir/raw.all"; return 1; }
}
let_in() { # TENANT
	answers OK "$1" OpenSession protocol=1 transport=1 && answers OK "$1" CloseSession session_uid="$(raw_field sessionUid)"
}
revoke() { # TENANT
	ros2ctl revoke "tenant/$1" --reason flood >"$dir/revoke" 2>&1 && grep -q confirmed "$dir/revoke" || { cat "$dir/revoke"; return 1; }
}
# The agent has it when it next hears from the controller.
reinstate() { ros2ctl tenant reinstate "$1" --reason flood && await 10 let_in "$1"; }
revoked() { # [FLOOD]
	local transport=1
	! is_verbs "${1:-}" || transport=2
	answers OK gamma OpenSession protocol=1 transport=$transport && revoke gamma && reinstate gamma
}
# The flooder has nothing any more, however it goes on.
has_nothing() { [ "$(sessions_of beta)" = '[]' ] && answers REVOKED beta OpenSession protocol=1 transport=1; }

# ---- (3) renewals ----
# Alpha's leases: of a session of its own, renewed four times in the time they last, by a process that says when it is asked, and in the end, how it went.
begin_renewals() { # [FLOOD]
	local keeps=(ros2-raw hold namespace=data path=kept renew_ms=500)
	! is_verbs "${1:-}" || keeps=(hostile-alpha "$dir" hold 500)
	mkfifo "$dir/keep" && exec {keep}<>"$dir/keep"
	as alpha exec "${keeps[@]}" <"$dir/keep" >"$dir/keep.out" 2>&1 &
	keeper=$!
	jobs_started+=("$keeper:$(start_time "$keeper")")
	await 10 grep -q '"holding"' "$dir/keep.out"
}
renewed=0
renewals() { grep '"event":"renewals"' "$dir/keep.out"; }
asked_again() { [ "$(renewals | wc -l)" -gt "$1" ]; }
still_renewed() { # since it was asked last: some, and each before the end of its lease
	local before
	before=$(renewals | wc -l)
	echo s >&"$keep"
	await 10 asked_again "$before" && renewals | tail -n 1 | jq -e --argjson before "$renewed" '.renewed > $before and .not_renewed == 0' >"$dir/said" ||
		{ echo "$renewed before"; tail -n 5 "$dir/keep.out"; return 1; }
	renewed=$(renewals | tail -n 1 | jq .renewed)
}
in_time_renewed() { # [LEAST]: at least so many times
	echo q >&"$keep"
	ended "$keeper" 30 || { cat "$dir/keep.out"; return 1; }
	tail -n 1 "$dir/keep.out" | jq -e --argjson least "${1:-40}" '.renewed > $least and .not_renewed == 0 and .untouched' >/dev/null || { tail -n 5 "$dir/keep.out"; return 1; }
}

# ---- (5) the log ----
newest() { ros2ctl audit query --newest --limit 1 -o json | jq '.items[0].seq'; }
# Each record of beta since the flood began, of whatever kind.
rows() { ros2ctl audit query --tenant beta -o json --limit 1000000 | jq '.items | length'; }
# And of whomever: strangers have no tenant.
all_rows() { metric controller ros2_controller_audit_records; }
# Not bounded by anything but the calls of a tenant is what it may do: who is killed and comes again has a record for each session, its file
# and its end, and the controller of each grant.
grown() { # ROWS ALL-ROWS SECONDS SESSIONS: four kinds of refusals at most of beta, two of strangers, and what the others do
	local n=$(($(rows) - $1)) all=$(($(all_rows) - $2)) kind=$((100 + 10 * ($3 + 2)))
	echo "$n records, of all $all" >"$dir/grown"
	[ $n -le $((4 * kind + 5 * $4)) ] && [ $all -le $((6 * kind + 8 * $4)) ] || { echo "$(cat "$dir/grown") more in $3 s with $4 sessions"; return 1; }
}
# Records of beta, of one action: of each flood that it is of at most a hundred, ten for each second, and those that count others.
denials() { ros2ctl audit query --action "$1" --result denied -o json --limit 100000; }
bounded() { # ACTION STATUS FLOODS SECONDS
	local n
	n=$(denials "$1" | jq --arg s "$2" '[.items[] | select(.status == $s and (.aggregate.count // 0 | tonumber) == 0)] | length')
	[ "$n" -gt 50 ] && [ "$n" -le $((100 * $3 + 10 * ($4 + 2 * $3))) ] || { echo "$n records of $1 $2 one by one in $4 s"; return 1; }
}
# Those that are in the log by themselves and those that are counted are together as many as were answered.
all_counted() { # ACTION STATUS FLOOD...
	local n flood due=0
	n=$(denials "$1" | jq --arg s "$2" '[.items[] | select(.status == $s) | (.aggregate.count // 1 | tonumber)] | add // 0')
	for flood in "${@:3}"; do due=$((due + $(jq --arg s "$2" '.answers[$s] // 0' "$dir/flood_$flood.last"))); done
	[ "$n" -ge $due ] || { echo "$n of $due"; return 1; }
}

# ---- (6) memory and descriptors ----
# Of an address a listener has 256 connections and the data port 64; what a sanitized build takes for each, and what else the flood may have, is in this, too.
in_flood() { # RSS DESCRIPTORS [MORE-DESCRIPTORS] [MORE-MIB]
	[ "$(rss)" -le $(($1 + ${4:-128} * 1024 * tsan_factor)) ] && [ "$(descriptors)" -le $(($2 + ${3:-400})) ] ||
		{ echo "$(descriptors) descriptors, $(rss) KiB; before $2, $1"; return 1; }
}
comes_back() { # RSS FDS [MORE-MIB]: but for what the allocator keeps
	[ "$(descriptors)" -le $(($2 + 4)) ] && [ "$(rss)" -le $(($1 + ${3:-64} * 1024 * tsan_factor)) ] || { echo "$(descriptors) descriptors, $(rss) KiB; before $2, $1"; return 1; }
}
no_shm() { [ "$(metric dpu-0 ros2_agent_shm_bytes)" = 0 ]; }
objects() { rdma -j res | jq '[.[] | .pd + .cq + .qp + .mr + .cm_id] | add'; } # at the device, of everybody
no_more_objects() { [ "$(objects)" -le "$1" ] || { echo "$(objects), $1 before"; return 1; }; }

# ---- the flood itself ----
# What of its attempts found the cap, as the flooder was answered: a filter of its report.
declare -A found=([handshakes]='.answers["no handshake"] >= .attempts / 2 - 1' [calls]='.answers.BUSY >= 44 and .answers.BUSY + (.answers.refused // 0) >= 44 * (.attempts - 1)'
	[hellos]='.answers.UNAUTHENTICATED >= .attempts - 1' [opens]='.answers.LIMIT >= .attempts / 2' [memory]='.answers.LIMIT >= .attempts / 2'
	[regions]='.answers.LIMIT >= .attempts / 2' [files]='.answers.LIMIT > 0 and .answers.OK <= 256'
	[tiny]='.answers.OK >= 16 * (.attempts - 1) and .answers.OK <= 1100 * (.seconds + 1)' [violations]='.answers.BAD_KEY >= .attempts * 0.9 - 1'
	[resets]='(.answers.ended // 0) + (.answers["no connection"] // 0) >= .attempts / 4 - 2' [unread]='.answers.asked >= .attempts * 0.9' [halfopen]='.answers.connected >= .attempts * 0.9'
	[wakes]='.answers.woken >= .attempts * 0.9'
	[requests@verbs]='.answers.UNAUTHENTICATED >= 16 * (.attempts - 1)' [hellos@verbs]='.answers.closed >= .attempts * 0.9 - 1'
	[tiny@verbs]=".answers.OK >= 16 * (.attempts - 1) and .answers.OK <= 1.1 * $beta_iops * (.seconds + 1)")
# Of the rate it states it makes half, divided by how much slower this machine is. Tiny requests are held to a quarter by their cap.
declare -A least=([tiny]=0.12)
# Half-open ones: so many that there are more than one address may have before all else that is looked at meanwhile is over, on a quick machine, too.
# Over verbs in an emulated guest: what that has the time for.
declare -A options=([memory]='shm_bytes=6291456' [halfopen]='rate=200' [halfopen@shm]='' [hellos@verbs]='rate=5' [opens@verbs]='rate=50' [regions@verbs]='rate=50'
	[tiny@verbs]='rate=25' [violations@verbs]='rate=50' [unread@verbs]='rate=20')
declare -A flooder=() # processes
declare -A after=()   # the last record before a flood
apart=(${APART:-})    # before a flooder's command
flooding_as=beta
begin() { # FLOOD [OPTIONS]
	local over=()
	! is_shm "$1" || over=("${over_shm[@]}")
	! is_verbs "$1" || over=(transport=verbs)
	after[$1]=$(newest)
	# shellcheck disable=SC2046 # several words
	start_as "flood_$1" "$flooding_as" "${apart[@]}" hostile-flood "${1%@*}" "${@:2}" $(of options "$1") "${over[@]}" seconds=600
	begun "$1"
}
begun() { # FLOOD: the process that was started last
	flooder[$1]=$pid
	check "$1: the flood has begun" await 10 grep -q flooding "$dir/flood_$1.out"
}
reports() { wc -l <"$dir/flood_$1.out"; }
reported() { [ "$(reports "$1")" -gt "$2" ]; }
# slower: than an idle machine, at least 1: set_pace of lib.sh, without its bound.
slower() {
	local from i
	[ -z "${SLOWER:-}" ] || { echo "$SLOWER"; return; }
	from=$(now_ms)
	for i in 1 2 3 4 5; do ros2ctl version >/dev/null 2>&1; done
	echo $((tsan_factor * ((($(now_ms) - from) / 150) + 1)))
}
says_more() { # a report of more than a second: on a quick machine all else is over sooner
	local before
	before=$(reports "$1")
	kill -USR1 "${flooder[$1]}" && await 10 reported "$1" "$before" && tail -n 1 "$dir/flood_$1.out" | jq -e '.seconds > 1'
}
# flooded FLOOD: up to now, before its tenant is revoked.
flooded() {
	local part
	part=$(of least "$1")
	await 10 says_more "$1" || { cat "$dir/flood_$1.out"; return 1; }
	tail -n 1 "$dir/flood_$1.out" >"$dir/flood_$1.now"
	jq -e --argjson slower "$(slower)" ".attempts >= .rate * .seconds * ${part:-0.5} / \$slower and ($(of found "$1"))" \
		"$dir/flood_$1.now" >"$dir/said" || { cat "$dir/flood_$1.now"; return 1; }
}
answered() { # FLOOD: its report, when it is told to end
	kill -TERM "${flooder[$1]}"
	ended "${flooder[$1]}" 30 || { cat "$dir/flood_$1.out"; return 1; }
	tail -n 1 "$dir/flood_$1.out" | jq -e '.attempts > 0' >"$dir/said" || { cat "$dir/flood_$1.out"; return 1; }
	tail -n 1 "$dir/flood_$1.out" >"$dir/flood_$1.last"
	! grep -Eq 'INTERNAL|UNKNOWN' "$dir/flood_$1.out" || { cat "$dir/flood_$1.out"; return 1; }
}
caps_named() { # FLOOD PATTERN: some answer says this
	tail -n 1 "$dir/flood_$1.out" | jq -c '.answers, .words' | tee "$dir/said" | grep -Eq -- "$2" || { cat "$dir/said"; return 1; }
}
# Each answer that names a cap; of one of which no word can be said, none. Handshakes and hellos meet no cap, for each is refused for what it lacks and
# over before the next comes (those that stay are halfopen): the answer says what that is. To a violation it says what was wrong; the cap is in the end of the session.
# What is unread over shm is bounded by its ring: none is refused, and the flooder sees it full.
unproved='--unproved-connections: (an address has at most|there are) [0-9]+ that have proved nothing'
declare -A caps=([handshakes]='no handshake' [calls]='BUSY: too many open at once from this caller: it has 256 calls in flight that keep or give up what it has, and its share of the 1024 is 256 \(fixed\)'
	[hellos]='"UNAUTHENTICATED":"no session waits for this proof' [opens]='"LIMIT":"[^"]*tenant beta: sessions\.max is [0-9]+, and it has [0-9]+ open at this agent'
	[memory]='"LIMIT":"[^"]*shared memory of the tenant.s sessions[^"]*--shm-memory'
	[regions]='"LIMIT":"[^"]*memory\.regions of the tenant: the limit is [0-9]+, [0-9]+ are live' [violations]='BAD_KEY'
	[files]='"LIMIT":"[^"]*open handles of a session: the limit is 256 \(fixed\)'
	[halfopen]="\"LIMIT\":\"[^\"]*$unproved" [unread@shm]='"full":[0-9]'
	[requests@verbs]='"UNAUTHENTICATED":[0-9]' [hellos@verbs]='' [unread@verbs]='"closed":[0-9]')
# The records that must come of a flood: ACTION STATUS REASON. Of tiny, unread and wakes there is none: nothing is refused, and who waits is seen waiting (waited, slots_become_shared).
declare -A logs=([handshakes]='connection.refused UNAUTHENTICATED no certificate that is accepted here'
	[calls]='session.deny BUSY it has 256 calls in flight that keep or give up what it has, and its share of the 1024 is 256 \(fixed\)'
	[resets]='connection.refused LIMIT ^futile-calls: its caller has begun more than 512 calls, and 200 each second \(fixed\)'
	[hellos]='hello.refused UNAUTHENTICATED ^no session waits for this proof' [opens]='session.deny LIMIT ^tenant beta: sessions\.max is 4, and it has 4 open at this agent'
	[memory]='session.deny LIMIT ^shared memory of the tenant.s sessions'
	[files]='file.deny LIMIT ^open handles of a session: the limit is 256 \(fixed\)'
	[regions]='region.deny LIMIT ^memory\.regions of the tenant: the limit is 4, 4 are live' [violations]='session.close VIOLATIONS ^[0-9]+ violations, rkeys\.violations\.limit is 20$'
	[halfopen]="connection.refused LIMIT ^max-connections-per-address of --tenant-connections: the listener has its [0-9]+ connections from this address
hello.refused LIMIT ^$unproved" [halfopen@shm]="hello.refused LIMIT ^$unproved"
	[requests@verbs]='hello.refused UNAUTHENTICATED ^no session waits for this proof' [hellos@verbs]='hello.refused UNAUTHENTICATED ^the first message over verbs is no HELLO'
	[unread@verbs]='session.close PROTOCOL ^the tenant posts no receives for its answers')
logged() { # FLOOD: since it began
	local action status reason
	while read -r action status reason; do
		ros2ctl audit query --action "$action" -o json --limit 1000000 >"$dir/said" || return 1
		jq -e --argjson after "${after[$1]}" --arg s "$status" --arg r "$reason" 'any(.items[]; .seq > $after and .status == $s and (.reason | test($r)))' "$dir/said" >/dev/null ||
			{ echo "no $action $status says $reason:"; jq -c --argjson after "${after[$1]}" '[.items[] | select(.seq > $after) | [.status, .reason]] | unique[:10]' "$dir/said"; return 1; }
	done <<<"$(of logs "$1")"
}
# What the agent counted: its metrics, and as how much of what the flooder was answered these must grow at least. What is not here is in the
# log, and counted there, or is no refusal: who is only slowed down is seen waiting (waited).
refused='ros2_agent_rpc_refused_total'
declare -A seen=([handshakes]="$refused{reason=\"handshake\"}" [calls]="$refused{reason=\"limit\"}"
	[resets]="$refused{reason=\"futile-calls\"}" [violations]='ros2_agent_tenant_violations_total{tenant="beta"}'
	[halfopen]="$refused{reason=\"max-connections-per-address\"} $refused{reason=\"handshake\"}" [halfopen@shm]='')
declare -A answers_of=([handshakes]='.answers["no handshake"]' [calls]='.answers.BUSY' [resets]='.answers.ended' [violations]='.answers.BAD_KEY'
	[halfopen]='.answers.closed')
value() { # SAMPLES: their sum
	local sample sum=0 n
	for sample in $1; do
		n=$(metric dpu-0 "$sample")
		n=${n%.*}
		sum=$((sum + ${n:-0}))
	done
	echo $sum
}
seen_by_agent() { # FLOOD
	local now due samples
	samples=$(of seen "$1")
	[ -n "$samples" ] || return 0
	now=$(value "$samples") due=$(jq "$(of answers_of "$1") // 0" "$dir/flood_$1.last")
	[ "$due" -gt 0 ] && [ $((now - before)) -ge "$due" ] || { echo "$1: $samples: $now, before $before, answered $due"; return 1; }
}
shaped() { metric dpu-0 'ros2_agent_tenant_shaped_seconds_total{tenant="beta"}' | awk '{ printf "%.0f\n", 1000 * $1 }'; }
waited() { [ "$(shaped)" -gt $(($1 + 1000)) ] || { echo "$(shaped) ms, $1 before"; return 1; }; }
slots() { metric dpu-0 "ros2_agent_slots$1{reactor=\"0\"}"; }
half_of_large() { echo $(($(slots '') / 74)); } # of 1 MiB: with each come 4 of 128 KiB and 32 of 16 KiB (dataplane/slots.c)
slots_shared() { # some of those are held, and at most half
	local taken
	taken=$(slots _taken)
	[ "$taken" -gt 0 ] && [ "$taken" -le "$(half_of_large)" ] || { echo "$taken, half of those of 1 MiB are $(half_of_large)"; return 1; }
}
slots_become_shared() { await 5 slots_shared || { slots_shared; ros2ctl get sessions -o json | jq -c '.items[]'; return 1; }; }

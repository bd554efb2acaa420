# SPDX-License-Identifier: Apache-2.0
# Shared by the integration tests: TAP, a cluster of real processes in a directory of its own, and its end whatever happens.
# A test file sets nothing, sources this, calls check/refused with sentences as names, and ends with tap_end.
set -u

ROS2_SRC=${ROS2_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
ROS2_BIN=${ROS2_BIN:-$ROS2_SRC/build/dev/bin}
export ROS2_BIN PATH="$ROS2_BIN:$PATH"
dir=$(mktemp -d "${TMPDIR:-/tmp}/ros2-it.XXXXXX")
tap_n=0
tap_failed=0

tap_cleanup() {
	local f
	"$ROS2_SRC/tools/dev-cluster" down --dir "$dir" --bin "$ROS2_BIN" >/dev/null 2>&1
	if [ "$tap_failed" -gt 0 ]; then
		for f in "$dir"/logs/*.log; do
			[ -f "$f" ] && { echo "# --- $(basename "$f")"; tail -n 20 "$f" | sed 's/^/# /'; }
		done
	fi
	rm -rf "$dir"
}
trap tap_cleanup EXIT
trap 'exit 130' INT TERM

tap() { # ok|not, NAME
	tap_n=$((tap_n + 1))
	if [ "$1" = ok ]; then
		echo "ok $tap_n - $2"
	else
		tap_failed=$((tap_failed + 1))
		echo "not ok $tap_n - $2"
	fi
}

# check NAME COMMAND...: it ends with 0.
check() {
	local name=$1
	shift
	if "$@" >"$dir/out" 2>"$dir/err"; then
		tap ok "$name"
	else
		tap not "$name"
		echo "# exit $? of: $*"
		tail -n 8 "$dir/out" "$dir/err" | sed 's/^/# /'
		return 1
	fi
}

# refused NAME PATTERN COMMAND...: it fails, and says PATTERN (extended regular expression).
refused() {
	local name=$1 pattern=$2 rc
	shift 2
	"$@" >"$dir/out" 2>"$dir/err"
	rc=$?
	if [ $rc -ne 0 ] && [ $rc -lt 124 ] && cat "$dir/out" "$dir/err" | grep -Eq -- "$pattern"; then
		tap ok "$name"
	else
		tap not "$name"
		echo "# exit $rc, expected a refusal with /$pattern/, of: $*"
		tail -n 8 "$dir/out" "$dir/err" | sed 's/^/# /'
		return 1
	fi
}

# says PATTERN COMMAND...: for use in check.
says() {
	local pattern=$1
	shift
	"$@" 2>&1 | tee "$dir/said" | grep -Eq -- "$pattern" || { cat "$dir/said"; return 1; }
}

skip_all() {
	echo "1..0 # SKIP $1"
	exit 77
}

tap_end() {
	echo "1..$tap_n"
	[ "$tap_failed" -eq 0 ]
	exit $?
}

cluster() { "$ROS2_SRC/tools/dev-cluster" "$@" --dir "$dir" --bin "$ROS2_BIN"; }

# A cluster with the example policies and certificates for alpha and beta.
cluster_up() { # AGENTS
	cluster up --agents "${1:-1}" >"$dir.up" 2>&1 || { sed 's/^/# /' "$dir.up"; rm -f "$dir.up"; tap not "the cluster starts"; tap_end; }
	rm -f "$dir.up"
	. "$dir/env"
	local f
	mkdir -p "$dir/policies"
	for f in "$ROS2_SRC"/examples/policies/*.yaml; do
		sed "s|\${ROS2_DATA}|$dir/data|g" "$f" >"$dir/policies/$(basename "$f")"
	done
	check "the example policies apply" ros2ctl apply -f "$dir/policies" || tap_end
	ros2ctl tenant cert --dir "$ROS2_TD" --id spiffe://ros2.test/tenant/alpha/trainer --out "$dir/alpha" 2>/dev/null
	ros2ctl tenant cert --dir "$ROS2_TD" --id spiffe://ros2.test/tenant/beta/server --out "$dir/beta" 2>/dev/null
}

# as TENANT COMMAND...: with that tenant's identity in the environment of libros2.
as() {
	local who=$1
	shift
	ROS2_CERT=$dir/$who/tls.crt ROS2_KEY=$dir/$who/tls.key ROS2_CA=$dir/$who/infra-bundle.pem "$@"
}

# await SECONDS COMMAND...: until it succeeds; for states of another process that have no event to wait for.
await() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		read -r -t 0.1 <> <(:) || true
	done
}

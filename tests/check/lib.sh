# SPDX-License-Identifier: Apache-2.0
# What the structural tests share: the list of files, and TAP. Sourced, never run.
# shellcheck shell=bash
set -u
ROS2_SRC=${ROS2_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
ROS2_BUILD=${ROS2_BIN:+${ROS2_BIN%/bin}}
ROS2_BUILD=${ROS2_BUILD:-$ROS2_SRC/build/dev}
cd "$ROS2_SRC" || exit 1
# A tree that belongs to another user (a container's mount) is still ours to list.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

tap_n=0 tap_bad=0

# tap_result RC NAME: one line; the diagnostics were printed before with a leading '#'.
tap_result() {
	tap_n=$((tap_n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $tap_n - $2"
	else
		tap_bad=1
		echo "not ok $tap_n - $2"
	fi
}

tap_skip() {
	tap_n=$((tap_n + 1))
	echo "ok $tap_n - $1 # SKIP $2"
}

tap_done() {
	echo "1..$tap_n"
	exit $tap_bad
}

# files GLOB ...: tracked files that exist, or all but build output where there is no git.
files() {
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git ls-files -- "$@"
	else
		local glob args=()
		for glob; do args+=(-o -path "./$glob" -o -name "$glob"); done
		[ $# -gt 0 ] || args=(-o -true)
		find . \( -path ./build -o -path ./.git \) -prune -o -type f \( "${args[@]:1}" \) -print |
			sed 's|^\./||' | sort
	fi | while IFS= read -r f; do [ -f "$f" ] && printf '%s\n' "$f"; done
}

# table NAME: the quoted lines of set(NAME ...) in cmake/layers.cmake.
table() {
	sed -n "/^set($1\$/,/)\$/p" cmake/layers.cmake | sed -n 's/^[[:space:]]*"\(.*\)")\{0,1\}$/\1/p'
}

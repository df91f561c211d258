# SPDX-License-Identifier: LGPL-2.1-or-later
# What demo and check share: installing what is missing, and building.  Sourced, not run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build_packages=(gcc meson ninja-build pkg-config libc6-dev liblz4-dev libzstd-dev liblzo2-dev
	libxxhash-dev python3)

# What demo builds needs no package but these: the unit tests need cmocka besides.
demo_options=(-Dtests=false)

say() {
	printf '%s\n' "$*"
}

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "these packages are missing, and neither root nor sudo is there to install them: ${missing[*]}"
	fi
}

installed() {
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs those of the named Debian packages that are missing; asks apt for nothing else.
need_packages() {
	local package
	missing=()
	for package in "$@"; do
		installed "$package" || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	as_root apt-get update -q >/dev/null || say "apt-get update failed; trying with what is known"
	# RUNLEVEL=1: a server among them is not started, where an init would do that.
	as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null ||
		die "cannot install ${missing[*]}"
}

# Sets up (with the given options) and builds; silent unless it fails.  build DIR [OPTION...]
build() {
	local dir=$1 log
	shift
	log=$(mktemp)
	if ! { { [ -f "$dir/build.ninja" ] || meson setup "$dir" "$top" "$@"; } && ninja -C "$dir"; } >"$log" 2>&1; then
		tail -n 40 "$log" >&2
		rm -f "$log"
		die "the build in $dir failed"
	fi
	rm -f "$log"
}

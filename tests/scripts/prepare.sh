#!/usr/bin/env bash
# Installs what a fresh Debian or Ubuntu with only a Rust toolchain lacks. Does nothing when all is there.
set -euo pipefail

fail() { echo "prepare: $*" >&2; exit 1; }

command -v cargo >/dev/null || fail "cargo is missing: install Rust 1.90 or later (https://rustup.rs)"

missing=()
command -v cc >/dev/null || missing+=(gcc)
command -v c++ >/dev/null || missing+=(g++)
[ ${#missing[@]} -eq 0 ] && exit 0

command -v apt-get >/dev/null || fail "please install: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "please install, as root: apt-get install ${missing[*]}"
    as_root=(sudo)
fi
echo "prepare: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null

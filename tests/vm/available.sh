#!/usr/bin/env bash
# Whether VM tests can run here. Exits with 0 and says nothing, or prints one line that says what is
# missing and how to get it, and exits with 1.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/sbin:/sbin

skip() { echo "SKIPPED: VM tests: $*"; exit 1; }

# PROGRAM:PACKAGE
programs=(
    qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod depmod:kmod
    rdma:iproute2 ibv_devinfo:ibverbs-utils ib_write_bw:perftest
    setpriv:util-linux flock:util-linux
)

missing_packages() {
    local entry
    for entry in "${programs[@]}"; do
        command -v "${entry%%:*}" >/dev/null || echo "${entry#*:}"
    done | sort -u | xargs
}

can_write() { # FOLDER that exists or can be made
    local folder=$1
    while [[ ! -e $folder ]]; do folder=$(dirname "$folder"); done
    [[ -d $folder && -w $folder ]]
}

# The guest runs the host's programs, so it has to be the same architecture.
[[ $(uname -m) == x86_64 ]] || skip "they need an x86_64 machine, this is $(uname -m)"
packages=$(missing_packages)
[[ -z $packages ]] || skip "not installed (apt-get install $packages)"
# The one thing in the guest before the host's root is mounted, so it cannot use shared libraries.
if ldd "$(command -v busybox)" >/dev/null 2>&1; then
    skip "busybox is not a static program (apt-get install busybox-static)"
fi
[[ $(qemu-system-x86_64 -device help 2>/dev/null) == *virtio-9p-pci* ]] ||
    skip "this QEMU cannot share folders by 9p (apt-get install qemu-system-x86)"

cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/tapecast-vm
can_write "$cache" || skip "no permission to write $cache (set XDG_CACHE_HOME to another folder)"
can_write "${TMPDIR:-/tmp}" || skip "no permission to write ${TMPDIR:-/tmp} (set TMPDIR)"
image=$("$here/image.sh" --key 2>/dev/null) ||
    skip "apt knows no linux-image-amd64 (apt-get update, on Debian)"
[[ -d $image ]] || command -v dpkg >/dev/null ||
    skip "no dpkg to unpack Debian's kernel with (apt-get install dpkg)"

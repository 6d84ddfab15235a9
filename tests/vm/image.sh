#!/usr/bin/env bash
# Prints the folder that holds `vmlinuz` and `initrd.gz` for the test VM; builds both from Debian's
# kernel package when they are not there yet. `image.sh --key` prints where they would be, and builds
# nothing.
#
# The folder's name says what it was built from, so another kernel or init gets another one and
# two working copies can share the cache. It appears complete or not at all.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tapecast-vm
PATH=$PATH:/usr/sbin:/sbin # depmod and modprobe, for those who are not root

fail() { echo "vm image: $*" >&2; exit 125; }

# crc32_pclmul is absent on purpose: under emulation it is slower than the generic code, and rxe
# computes a CRC over every packet.
needed=(
    virtio_pci virtio_net 9pnet_virtio 9p overlay        # the machine
    dummy veth ib_uverbs rdma_ucm rdma_rxe               # the fabric
    sch_netem                                            # loss, delay and rate on it
)
# Built in, or under another name, in some kernels.
wanted=(crc32_generic crc32c_generic af_packet sch_prio sch_tbf sch_ingress cls_u32 cls_flower act_gact)

kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null |
        grep -oE 'linux-image-[0-9][^ ]*-amd64' | head -n 1 || true
}

recipe_hash() { cat "$here/init.sh" "$here/image.sh" | sha256sum | cut -c1-12; }

# An image that is there serves, whatever kernel apt knows by now: asking apt takes longer than the
# rest of this script, and needs its lists. Remove the cache to get a newer kernel.
image_folder() { # HASH
    local present package
    present=$(find "$cache" -maxdepth 1 -type d -name "[0-9]*-$1" 2>/dev/null | sort -V | tail -n 1)
    if [[ -z $present ]]; then
        package=$(kernel_package)
        [[ -n $package ]] || fail "apt knows no linux-image-amd64: run apt-get update"
        present=$cache/${package#linux-image-}-$1
    fi
    echo "$present"
}

unpack_kernel() { # PACKAGE
    (cd "$build" && apt-get -qq download "$1" 2>apt.log) ||
        { cat "$build/apt.log" >&2; fail "apt-get download $1 failed: run apt-get update and retry"; }
    mkdir "$build/kernel"
    dpkg -x "$build"/*.deb "$build/kernel"
    [[ -e $build/kernel/lib/modules ]] || ln -s usr/lib "$build/kernel/lib"
    depmod -b "$build/kernel" "${1#linux-image-}"
}

module_paths() { # VERSION; prerequisites first, each once
    local module
    for module in "${wanted[@]}"; do
        modprobe -d "$build/kernel" -S "$1" --show-depends "$module" 2>/dev/null || true
    done
    for module in "${needed[@]}"; do
        modprobe -d "$build/kernel" -S "$1" --show-depends "$module" ||
            fail "kernel $1 has no module $module"
    done
}

copy_modules() { # VERSION
    local paths path name
    paths=$(module_paths "$1" | awk '$1 == "insmod" && $2 !~ /crc32.pclmul/ && !seen[$2]++ {print $2}')
    for path in $paths; do
        name=$(basename "$path")
        case $name in
        *.xz) name=${name%.xz}; xz -dc "$path" >"$build/initrd/modules/$name" ;;
        *) cp "$path" "$build/initrd/modules/" ;;
        esac
        echo "$name" >>"$build/initrd/modules/order"
    done
}

pack() { # FOLDER
    mkdir "$build/image"
    cp "$build"/kernel/boot/vmlinuz-* "$build/image/vmlinuz"
    (cd "$build/initrd" && find . | cpio -o -H newc --quiet | gzip -1) >"$build/image/initrd.gz"
    mv -T "$build/image" "$1"
}

build_image() { # FOLDER, named by image_folder
    local version
    version=$(basename "$1" "-$hash")
    build=$(mktemp -d "$cache/.build.XXXXXX")
    trap 'rm -rf "$build"' EXIT
    unpack_kernel "linux-image-$version"
    mkdir -p "$build"/initrd/{bin,proc,sys,dev,mnt,newroot,modules}
    cp "$(command -v busybox)" "$build/initrd/bin/busybox"
    install -m 755 "$here/init.sh" "$build/initrd/init"
    copy_modules "$version"
    pack "$1"
}

hash=$(recipe_hash)
folder=$(image_folder "$hash")
if [[ ${1:-} != --key && ! -d $folder ]]; then
    mkdir -p "$cache"
    # One build at a time: the second finds the first one's result.
    exec {lock}>"$cache/.lock"
    flock "$lock"
    [[ -d $folder ]] || build_image "$folder" >&2
fi
echo "$folder"

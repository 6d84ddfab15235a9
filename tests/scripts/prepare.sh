#!/usr/bin/env bash
# Installs what a fresh Debian or Ubuntu with only a Rust toolchain lacks. Does nothing when all is
# there. Without what the build needs it fails; without what the tests in virtual machines and on a
# booted systemd need it only says so, since they skip themselves visibly.
#
#   prepare.sh                   what the build and the tests need
#   prepare.sh --build           what the build needs alone
#   prepare.sh --libclang-path   installs nothing, prints what LIBCLANG_PATH should be (empty: leave
#                                it as it is)
set -euo pipefail

fail() { echo "prepare: $*" >&2; exit 1; }
note() { echo "prepare: $*"; }

vm_packages=(
    qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-utils perftest iproute2 tcpdump
)
# To build the Debian package, and to try it on a systemd of its own.
systemd_packages=(systemd-container dpkg-dev binutils)
# The bindings to libibverbs are made with a bindgen that misreads what later versions answer.
libclang_versions=(14 15)

has_libclang() { compgen -G "$1/libclang.so*" >/dev/null || compgen -G "$1/libclang-[0-9]*.so*" >/dev/null; }

libclang_folder() {
    local version
    for version in "${libclang_versions[@]}"; do
        if has_libclang "/usr/lib/llvm-$version/lib"; then
            echo "/usr/lib/llvm-$version/lib"
            return
        fi
    done
}

# The build finds a libclang by itself and takes the newest, so it has to be told about an older one
# as soon as another is there.
libclang_to_name() {
    [[ -z ${LIBCLANG_PATH:-} ]] || return 0
    local good folder
    good=$(libclang_folder)
    for folder in /usr/lib/llvm-*/lib; do
        if [[ -n $good && $folder != "$good" ]] && has_libclang "$folder"; then
            echo "$good"
            return
        fi
    done
}

not_installed() { # PACKAGE…
    local package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
            echo "$package"
    done
}

# Programs and libraries are looked for, not packages: they may have come another way.
missing_for_build() {
    command -v cc >/dev/null || printf '%s\n' gcc libc6-dev
    command -v c++ >/dev/null || echo g++
    command -v pkg-config >/dev/null || echo pkg-config
    pkg-config --exists libibverbs 2>/dev/null || echo libibverbs-dev
    pkg-config --exists librdmacm 2>/dev/null || echo librdmacm-dev
}

lacks_libclang() {
    if [[ -n ${LIBCLANG_PATH:-} ]]; then
        [[ -f $LIBCLANG_PATH ]] || has_libclang "$LIBCLANG_PATH" ||
            fail "LIBCLANG_PATH is $LIBCLANG_PATH, and no libclang is there: correct or unset it"
        return 1
    fi
    [[ -z $(libclang_folder) ]]
}

become_root() { # what for
    as_root=()
    [[ $(id -u) -eq 0 ]] && return
    command -v sudo >/dev/null || return 1
    as_root=(sudo)
}

update_lists() {
    [[ -z ${updated:-} ]] || return 0
    "${as_root[@]}" apt-get update -qq
    updated=yes
}

install_packages() { # PACKAGE…
    note "installing $*"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

libclang_package() {
    local version
    for version in "${libclang_versions[@]}"; do
        if apt-cache show "libclang-$version-dev" >/dev/null 2>&1; then
            echo "libclang-$version-dev"
            return
        fi
    done
    fail "this distribution has neither libclang-14-dev nor libclang-15-dev:" \
        "install one from https://apt.llvm.org, or set LIBCLANG_PATH to the folder of such a libclang"
}

prepare_build() {
    local missing
    mapfile -t missing < <(missing_for_build)
    if lacks_libclang; then
        command -v apt-get >/dev/null || fail "please install: libclang 14 or 15 ${missing[*]}"
        become_root || fail "please install, as root: apt-get install libclang-14-dev ${missing[*]}"
        update_lists
        missing+=("$(libclang_package)")
    fi
    [[ ${#missing[@]} -gt 0 ]] || return 0
    command -v apt-get >/dev/null || fail "please install: ${missing[*]}"
    become_root || fail "please install, as root: apt-get install ${missing[*]}"
    update_lists
    install_packages "${missing[@]}"
}

prepare_optional() { # PROGRAM WITHOUT PACKAGE…: what tests need that skip themselves without it
    local program=$1 without="$2 will be skipped" missing
    shift 2
    if ! command -v apt-get >/dev/null; then
        command -v "$program" >/dev/null || note "$without; they run on Debian, and need $*"
        return 0
    fi
    mapfile -t missing < <(not_installed "$@")
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if ! become_root; then
        note "$without unless you install, as root: apt-get install ${missing[*]}"
        return 0
    fi
    update_lists
    install_packages "${missing[@]}" || note "$without: apt could not install ${missing[*]}"
}

# Programs, not packages: node and npm often come another way.
prepare_monitor() {
    local missing=() without="the dashboards will not be tried or drawn"
    command -v prometheus >/dev/null || missing+=(prometheus)
    command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if ! command -v apt-get >/dev/null || ! become_root; then
        note "$without unless you install: ${missing[*]}"
        return 0
    fi
    update_lists
    install_packages "${missing[@]}" || note "$without: apt could not install ${missing[*]}"
}

case ${1:-} in
--libclang-path) libclang_to_name; exit 0 ;;
--build | '') ;;
*) fail "unknown option $1: see the top of $0" ;;
esac
command -v cargo >/dev/null || fail "cargo is missing: install Rust 1.90 or later (https://rustup.rs)"
prepare_build
if [[ ${1:-} != --build ]]; then
    prepare_optional qemu-system-x86_64 "the tests in virtual machines" "${vm_packages[@]}"
    prepare_optional systemd-nspawn "the tests on a booted systemd" "${systemd_packages[@]}"
fi
libclang=$(libclang_to_name)
[[ -z $libclang ]] || note "a newer libclang is installed, too: export LIBCLANG_PATH=$libclang"
[[ ${1:-} == --build ]] || prepare_monitor

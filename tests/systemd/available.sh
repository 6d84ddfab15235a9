#!/usr/bin/env bash
# Whether a systemd can be booted here; says why not.
skip() { echo "SKIPPED: tests on a booted systemd: $*"; exit 1; }

[[ $(uname -s) == Linux ]] || skip "this is no Linux"
[[ $(id -u) -eq 0 ]] || skip "they take root (sudo make test-systemd)"
for program in systemd-nspawn dpkg-deb dpkg-shlibdeps; do
    command -v "$program" >/dev/null ||
        skip "$program is missing: apt-get install systemd-container dpkg-dev"
done
# shellcheck disable=SC2016 # the inner shell expands it
unshare -m --propagation private bash -c '
    set -e
    base=$(mktemp -d); trap "umount -l $base; rmdir $base" EXIT
    mount -t tmpfs tmpfs "$base"; mkdir "$base/upper" "$base/work" "$base/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
    umount "$base/root"' >/dev/null 2>&1 || skip "no overlay of this machine's root can be mounted"

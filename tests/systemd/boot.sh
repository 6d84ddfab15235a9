#!/usr/bin/env bash
# Boots a real systemd, as process 1 of a container over a throw-away copy of this machine's root,
# and runs a script in it, as root. Its output and exit status are the script's own; 125 when there
# are none, and then the console is shown.
#
#   boot.sh SCRIPT [FOLDER]     FOLDER's content is in /opt/test there
#
# A container has no more rights than its machine: LimitMEMLOCK= and LimitRTPRIO= are raised only as
# far as the machine may, DeviceAllow= and memory limits need cgroup v2, and there is no RDMA.
set -euo pipefail
if [[ ${IN_PRIVATE_MOUNTS:-} != yes ]]; then
    IN_PRIVATE_MOUNTS=yes exec unshare -m --propagation private "$0" "$@"
fi

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
script=$(realpath "$1") folder=${2:-}
base=$(mktemp -d -t tapecast-boot.XXXXXX)
clean_up() {
    umount -l "$base/root" "$base/layer" 2>/dev/null || true
    rm -rf "$base"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

root=$base/root
mkdir "$base/layer" "$root"
mount -t tmpfs tmpfs "$base/layer"
mkdir "$base/layer/upper" "$base/layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/layer/upper,workdir=$base/layer/work" "$root"

mkdir -p "$root/opt/test" "$root/opt/boot"
[[ -z $folder ]] || cp -r "$folder/." "$root/opt/test/"
cp "$script" "$root/opt/boot/job"
"$here/make-bootable.sh" "$root" /opt/boot

# Its own status says nothing: the machine is powered off in any case.
timeout --foreground "${BOOT_TIMEOUT:-180}" systemd-nspawn -D "$root" -b --register=no --keep-unit -q \
    --private-network --capability=CAP_IPC_LOCK,CAP_SYS_PTRACE systemd.unit=job.target \
    >"$base/console" 2>&1 </dev/null || true
cat "$root/opt/boot/output" 2>/dev/null || true
if [[ ! -f $root/opt/boot/status ]]; then
    echo "boot: the script did not end; the console said:" >&2
    tail -n 40 "$base/console" >&2
    exit 125
fi
exit "$(cat "$root/opt/boot/status")"

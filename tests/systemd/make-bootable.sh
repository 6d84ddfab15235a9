#!/usr/bin/env bash
# Makes ROOT, a throw-away copy of this machine's root, such that systemd, told to start job.target,
# runs FOLDER/job with bash as root when the machine is up, and then powers off.
#
#   make-bootable.sh ROOT FOLDER     FOLDER is named as it is called in ROOT
#
# What the job prints is in FOLDER/output, that it began in FOLDER/started, its status in FOLDER/status.
set -euo pipefail
root=${1%/} folder=$2

# With it, a package would start no service.
rm -f "$root/usr/sbin/policy-rc.d"
: >"$root/etc/fstab"
# Where this machine is a container, systemd would take the other for one, too, and leave its mounts private.
rm -f "$root/.dockerenv" "$root/run/.containerenv"
rm -f "$root/etc/machine-id"
systemd-id128 new >"$root/etc/machine-id"

# Through a pipe, so that a job that opens /dev/stdout again does not truncate what it printed.
cat >"$root/etc/systemd/system/job.sh" <<SCRIPT
echo yes >$folder/started
/bin/bash $folder/job </dev/null 2>&1 | cat >>$folder/output
echo \${PIPESTATUS[0]} >$folder/status
SCRIPT
cat >"$root/etc/systemd/system/job.service" <<'UNIT'
[Unit]
After=basic.target dbus.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
Environment=HOME=/root LANG=C.UTF-8
TimeoutStartSec=infinity
LimitMEMLOCK=infinity
ExecStart=/bin/bash /etc/systemd/system/job.sh
UNIT
cat >"$root/etc/systemd/system/job.target" <<'UNIT'
[Unit]
Requires=basic.target job.service
After=basic.target job.service
AllowIsolate=yes
UNIT

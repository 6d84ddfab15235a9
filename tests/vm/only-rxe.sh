#!/usr/bin/env bash
# In a virtual machine: runs a command with Soft-RoCE's driver alone.
#   only-rxe.sh COMMAND [ARG…]
# Every program that uses RDMA loads every driver that is installed, which takes an emulated machine
# longer than the rest of its start. The files are gone in the machine only.
set -euo pipefail
if ! grep -qw 'tapecast\.vm' /proc/cmdline; then
    echo "vm: $0 removes RDMA drivers, so it runs only in a machine that soft-roce.sh has started" >&2
    exit 2
fi
find /etc/libibverbs.d -name "*.driver" ! -name rxe.driver -delete
exec "$@"

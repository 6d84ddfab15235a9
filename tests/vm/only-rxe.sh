#!/usr/bin/env bash
# In a virtual machine: runs a command with Soft-RoCE's driver alone.
#   only-rxe.sh COMMAND [ARG…]
# Every program that uses RDMA loads every driver that is installed, which takes an emulated machine
# longer than the rest of its start. The files are gone in the machine only.
set -euo pipefail
find /etc/libibverbs.d -name "*.driver" ! -name rxe.driver -delete
exec "$@"

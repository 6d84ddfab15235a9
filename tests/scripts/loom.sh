#!/usr/bin/env bash
# Model-checks the ring under loom. Its own target directory, because the flag rebuilds everything.
set -euo pipefail
cd "$(dirname "$0")/../.."
export RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}"
# Link-time optimisation would cost minutes here and find nothing.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
exec cargo test -q -p tapecast-ring --release --test loom

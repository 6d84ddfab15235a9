#!/usr/bin/env bash
# Runs every check in order, goes on after a failure, and ends with one line that counts them.
# `check.sh NAME…` runs only the named checks; `check.sh --list` names them.
set -uo pipefail
cd "$(dirname "$0")/../.."

TAPECAST_CHECK_RUN="$$-$RANDOM" TMPDIR=$(mktemp -d -t tapecast-check.XXXXXX)
export TAPECAST_CHECK_RUN TMPDIR
chmod 711 "$TMPDIR" # some tests are other users
trap 'rm -rf "$TMPDIR"' EXIT

libclang=$(tests/scripts/prepare.sh --libclang-path)
[ -z "$libclang" ] || export LIBCLANG_PATH=$libclang

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

checks=(
    "fmt|cargo fmt --all --check"
    "clippy|cargo clippy -q --workspace --all-targets --all-features -- -D warnings"
    "features|cargo check -q -p tapecast-subscriber -p tapecast-publisher --no-default-features --lib --bins"
    "doc|RUSTDOCFLAGS='-D warnings' cargo doc -q --workspace --no-deps --document-private-items"
    "build|cargo build -q --workspace --bins --examples --features tapecast-tests/whole"
    "test|cargo test --workspace --features tapecast-tests/whole --no-fail-fast"
    "loom|tests/scripts/loom.sh"
    "fuzz|tests/scripts/fuzz.sh 200000"
    "vm|tests/vm/smoke.sh && tests/vm/run.sh"
    "monitor|tests/monitor/static.sh && tests/monitor/run.sh && tests/monitor/alerts.sh && tests/monitor/rdma.sh"
    "systemd|tests/systemd/run.sh"
    "operations|tests/operations/run.sh"
    "clean-up|tests/scripts/leftovers.sh"
)

if [ "${1:-}" = --list ]; then
    printf '%s\n' "${checks[@]%%|*}"
    exit 0
fi

passed=0 failed=() began=$SECONDS
for check in "${checks[@]}"; do
    name=${check%%|*} command=${check#*|}
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    echo "=== $name: $command"
    start=$SECONDS
    if bash -c "$command"; then
        passed=$((passed + 1))
        echo "--- $name: ok, $((SECONDS - start)) s"
    else
        failed+=("$name")
        echo "--- $name: FAILED, $((SECONDS - start)) s"
    fi
done

echo
echo "checks took $((SECONDS - began)) s${failed[*]:+; failed: ${failed[*]}}"
echo "checks: $passed passed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]

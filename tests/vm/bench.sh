#!/usr/bin/env bash
# What the RDMA fabric delivers beside perftest, in a virtual machine with Soft-RoCE.
#   bench.sh PROGRAM [OPTION…]   PROGRAM is an optimised tapecast-rdma-bench, OPTIONs are its own
# Fifteen rounds, unless an option says otherwise: medians of five still moved by half from run to run
# on two cores. Figures of different runs do not compare.
# With OUT=DIR the rounds are in DIR/rdma-bench.json afterwards.
# Skipped, with a line that says so, where no such machine can be started.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

program=${1:-}
if [[ ! -x $program ]]; then
    echo "vm: usage: $0 PROGRAM [OPTION…]: '$program' is no program, build it first:" >&2
    echo "vm:   cargo build --release -p tapecast-tests --features verbs" \
        "--bin tapecast-rdma-bench" >&2
    exit 2
fi
shift

"$here/available.sh" || exit 0

share=() json=()
if [[ -n ${OUT:-} ]]; then
    mkdir -p "$OUT"
    OUT=$(realpath "$OUT")
    share=(--out "$OUT") json=(--json "$OUT/rdma-bench.json")
fi
# The program takes each option once.
rounds=(--rounds 15)
for option in "$@"; do [[ $option != --rounds* ]] || rounds=(); done
exec "$here/soft-roce.sh" --timeout 1200 "${share[@]}" -- \
    "$here/only-rxe.sh" "$(realpath "$program")" "${rounds[@]}" "${json[@]}" "$@"

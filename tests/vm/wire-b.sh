#!/usr/bin/env bash
# The subscribers' end of the tests over a wire (tests/tests/wire): runs in VM b.
#   wire-b.sh PROGRAMS OUT
set -euo pipefail
programs=$1 out=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/wire-plan.sh"

port=$first_port
for name in "${wires[@]}"; do
    wire "$name"
    readers=()
    for number in $(seq "$subscribers"); do
        "$programs/tapecast-subscriber" tail --quiet --until-end --connect "10.8.0.1:$port" \
            --ca "$out/certificates/ca.pem" --cert "$out/certificates/client-wire.pem" \
            --key "$out/certificates/client-wire.key" --name "$name-$number" \
            --wait-for-publisher 120 --summary-json "$out/$name-$number.json" &
        readers+=($!)
    done
    for reader in "${readers[@]}"; do wait "$reader"; done
    port=$((port + 1))
done

#!/usr/bin/env bash
# The tests that need an RDMA device, in virtual machines that have one: the verbs types, hostile
# subscribers, the conformance suite, the shipped programs with 64 subscriber processes, and two
# machines on a wire that loses, delays and goes dark.
#   run.sh [FILTER…]      only tests whose name contains one of these
#   SCOPE=core run.sh     types, hostile subscribers and conformance: about a minute instead of ten
#   SCOPE=wire run.sh     the two machines only
# Skipped, with a line that says so, where no such machine can be started.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

"$here/available.sh" || exit 0

# Exactly what the other tests are built with, so that nothing is built twice.
built=$(mktemp)
trap 'rm -f "$built"' EXIT
cargo test -q --workspace --features tapecast-tests/whole --no-run --message-format=json >"$built"

test_of() { # PACKAGE TARGET: prints the path of a test
    grep -F '"profile":' "$built" | grep -F "/$1/Cargo.toml" | grep -F "\"name\":\"$2\"" |
        grep -F '"test":true}' | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}
types=$(test_of shared/fabric tapecast_fabric)
suite=$(test_of tests conformance)
programs=$(test_of tests rdma)
# Two machines, joined by a wire that loses, delays and goes dark.
wire=$(test_of tests wire)
for test in "$types" "$suite" "$programs" "$wire"; do
    [[ -x $test ]] || { echo "vm: a test is missing from what cargo built" >&2; exit 1; }
done

scope=${SCOPE:-all}
[[ $scope =~ ^(all|core|wire)$ ]] || { echo "vm: SCOPE is $scope: all, core or wire" >&2; exit 2; }
[[ $scope != core ]] || programs=none

failed=0
in_vm() { # SECONDS COMMAND…
    local limit=$1
    shift
    "$here/soft-roce.sh" --mem 6G --timeout "$limit" --env RUST_BACKTRACE=1 \
        --env TAPECAST_TEST_NEEDS_DEVICE=1 --env TAPECAST_PROGRAMS_ARE_BUILT=1 --env TMPDIR=/tmp -- "$@" || failed=1
}

# One machine for all: it takes longer to boot than most tests take to run.
[[ $scope == wire ]] || in_vm 2400 "$here/only-rxe.sh" bash -c '
    failed=0
    "$1" --test-threads=1 "${@:4}" verbs:: || failed=1
    "$2" --test-threads=2 "${@:4}" verbs || failed=1
    [[ $3 == none ]] || "$3" --test-threads=1 "${@:4}" || failed=1
    exit $failed
' bash "$types" "$suite" "$programs" "$@"
[[ $scope == core ]] || TAPECAST_VM_TESTS=1 "$wire" --test-threads=1 "$@" || failed=1
exit $failed

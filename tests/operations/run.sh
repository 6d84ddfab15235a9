#!/usr/bin/env bash
# Runs every command of OPERATIONS.md, in its order, on two machines: P is one, S and M the other.
# Both are virtual, with a systemd of their own, on a wire, with Soft-RoCE; what is told here of RDMA
# in the service's sandbox is therefore seen, not meant. Ends with a count.
# Skips itself visibly where no such machine can be started.
#
#   run.sh [--profile dev|release]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
profile=dev
[[ ${1:-} != --profile ]] || profile=$2

tests/vm/available.sh || exit 0
for program in prometheus promtool curl; do
    command -v "$program" >/dev/null || { echo "operations: SKIPPED: $program is missing (tests/scripts/prepare.sh)"; exit 0; }
done

work=$(mktemp -d -t tapecast-operations.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
tests/scripts/deb.sh --profile "$profile" --quick --out "$work/package" >/dev/null
mkdir "$work/done" "$work/S" "$work/M"
# The page's address is that of the first machine here.
sed 's/10\.1\.0\.7/10.8.0.1/g' OPERATIONS.md >"$work/page.md"
awk -f "$here/page.awk" -v want=commands "$work/page.md" >"$work/commands"
for number in 1 2; do awk -f "$here/page.awk" -v want=toml -v number="$number" "$work/page.md" >"$work/$number.toml"; done
awk -f "$here/page.awk" -v want=yaml -v number=1 "$work/page.md" >"$work/prometheus.yml"
[[ -s $work/1.toml && -s $work/2.toml && -s $work/prometheus.yml ]] || { echo "operations: a block of the page is gone" >&2; exit 1; }

failed=0
tests/vm/pair.sh --init systemd --cpus 2 --mem 3G --timeout "${LIMIT:-900}" --grace 20 --out "$work" \
    --a "bash $here/host.sh $work P" --b "bash $here/host.sh $work S M" || failed=1
count() { cat "$work/$1"-* 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }'; }
echo "operations: $(count passed) passed, $(count failed) failed"
[[ $failed -eq 0 ]]

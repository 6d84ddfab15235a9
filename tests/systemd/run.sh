#!/usr/bin/env bash
# The package's whole life on a real systemd: install, serve, reload, crash, hang, upgrade, stop,
# remove, purge. Takes about a minute beside building. Skips itself visibly where no systemd can be
# booted.
#
#   run.sh [--profile dev|release]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
profile=dev
[[ ${1:-} != --profile ]] || profile=$2

"$here/available.sh" || exit 0

source tests/scripts/expect.sh
work=$(mktemp -d -t tapecast-systemd.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
package() { # VERSION NAME
    tests/scripts/deb.sh --profile "$profile" --quick --version "$1" --out "$work/built" >"$work/path"
    mv "$(tail -n 1 "$work/path")" "$work/load/$2.deb"
}
mkdir "$work/load"
# A drop-in adds to the unit's sections.
exposed() { # DROP-IN…
    cat configs/systemd/tapecast-publisher.service "$@" >"$work/tapecast-publisher.service"
    systemd-analyze security --offline=true --threshold=20 --no-pager "$work/tapecast-publisher.service"
}
expect 'the exposure of the unit is at most 2.0' exposed
for drop_in in configs/systemd/drop-ins/*.conf; do
    expect "the same with ${drop_in##*/}" exposed "$drop_in"
done
package 0.1.0-1 first
package 0.1.0-2 second
echo 0.1.0-2 >"$work/load/second.version"
cp "$here/hold-thread.pl" tests/scripts/expect.sh "$work/load/"
if command -v lintian >/dev/null; then
    # What it leaves behind goes with the rest.
    expect 'lintian has no error to tell' env TMPDIR="$work" lintian --allow-root --fail-on error "$work/load/first.deb"
else
    echo "skipped: lintian is not installed"
fi
"$here/boot.sh" "$here/inside.sh" "$work/load" || failed=$((failed + 1))
[[ $failed -eq 0 ]]

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
systemd-analyze security --offline=true --threshold=20 --no-pager \
    configs/systemd/tapecast-publisher.service >/dev/null ||
    { echo "FAILED: the unit's exposure is above 2.0"; exit 1; }

work=$(mktemp -d -t tapecast-systemd.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
package() { # VERSION NAME
    tests/scripts/deb.sh --profile "$profile" --quick --version "$1" --out "$work/built" >"$work/path"
    mv "$(tail -n 1 "$work/path")" "$work/load/$2.deb"
}
mkdir "$work/load"
package 0.1.0-1 first
package 0.1.0-2 second
echo 0.1.0-2 >"$work/load/second.version"
cp "$here/hold-thread.pl" "$work/load/"
"$here/boot.sh" "$here/inside.sh" "$work/load"

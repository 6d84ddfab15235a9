#!/usr/bin/env bash
# A run of check.sh must leave nothing behind: no process that carries its mark, no file in its
# temporary folder, no shared memory. Other runs at the same time are not looked at.
set -uo pipefail
: "${TAPECAST_CHECK_RUN:?is set by check.sh}"
status=0
report() { printf 'left behind: %s\n%s\n' "$1" "$2"; status=1; }

ancestors=" " pid=$$
while [ "$pid" -gt 1 ]; do
    ancestors+="$pid "
    pid=$(awk '/^PPid:/ {print $2}' "/proc/$pid/status")
done
processes=$(for environ in /proc/[0-9]*/environ; do
    pid=${environ#/proc/} pid=${pid%/environ}
    [[ "$ancestors" == *" $pid "* ]] && continue
    { tr '\0' '\n' <"$environ"; } 2>/dev/null | grep -qx "TAPECAST_CHECK_RUN=$TAPECAST_CHECK_RUN" || continue
    name=$({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null)
    case "$name" in *tapecast*) echo "$pid $name" ;; esac
done)
[ -z "$processes" ] || report processes "$processes"
files=$(find "$TMPDIR" -mindepth 1 -maxdepth 2 2>/dev/null; find /dev/shm -maxdepth 1 -name '*tapecast*' 2>/dev/null)
[ -z "$files" ] || report files "$files"
[ $status -eq 0 ] && echo "nothing left behind"
exit $status

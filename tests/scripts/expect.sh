# Sourced by tests that are scripts: they say line by line what has to hold, and it is counted.
# `work` is a folder of the caller's own.
#
#   expect WHAT COMMAND…   prints `ok: WHAT`, or `FAILED: WHAT` and what the command printed
#   run COMMAND…           for several looks at one command: its status and what it printed are kept
#   ended_with STATUS      whether it ended so
#   printed PATTERN        whether it printed that
#   soon COMMAND…          looks again and again, for `soon_s` seconds, until it holds
#   fails COMMAND…         turns a status round
# shellcheck shell=bash
passed=0 failed=0 soon_s=20

expect() { # WHAT COMMAND…
    local what=$1
    shift
    if "$@" >"$work/expect" 2>&1; then
        echo "ok: $what"
        passed=$((passed + 1))
    else
        echo "FAILED: $what"
        sed 's/^/    /' "$work/expect"
        failed=$((failed + 1))
    fi
}
run() { # COMMAND…
    status=0
    "$@" >"$work/printed" 2>&1 || status=$?
}
ended_with() { echo "status $status, expected $1"; cat "$work/printed"; [[ $status -eq $1 ]]; }
printed() { cat "$work/printed"; grep -qE -- "$1" "$work/printed"; }
soon() { # COMMAND…
    local end=$((SECONDS + soon_s))
    until "$@" >"$work/soon" 2>&1; do
        [[ $SECONDS -lt $end ]] || { cat "$work/soon"; return 1; }
        sleep 0.1
    done
}
fails() { ! "$@"; }

#!/usr/bin/env bash
# Runs two commands at once, each in a VM of its own, the two joined by a wire.
#
#   pair.sh [OPTION…] --a COMMAND --b COMMAND
#     --timeout S        300   each VM is stopped after so many seconds, boot included
#     --grace S          5     what is left to one after the other has failed
#     --out DIR                writable share with the host, one for both VMs
#     --env NAME=VALUE         for both commands (repeatable)
#     --init systemd           in both, a systemd runs the command
#     --forward HOST:GUEST     who connects to 127.0.0.1:HOST reaches VM a, as in soft-roce.sh
#     --cpus N           1     processors of each VM
#     --mem SIZE         2G    memory of each VM
#
# COMMAND is a line for bash. VM a is 10.8.0.1, VM b is 10.8.0.2; the rest is as in soft-roce.sh.
# They boot independently: let the one that connects retry.
# Prints both outputs with the prefixes `a| ` and `b| `. Exits with 0 when both commands did, else
# with the status of the one that failed first.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { echo "pair: $*" >&2; exit 125; }

limit=300 grace=5 cpus=1 memory=2G passed_on=() forward=()
declare -A line=() vm=() printer=()

parse() {
    while [[ $# -gt 0 ]]; do
        [[ $# -ge 2 ]] || fail "$1 needs a value"
        case $1 in
        --a | --b) line[${1#--}]=$2 ;;
        --timeout) limit=$2 ;;
        --grace) grace=$2 ;;
        --cpus) cpus=$2 ;;
        --mem) memory=$2 ;;
        --out | --env | --init) passed_on+=("$1" "$2") ;;
        --forward) forward=(--forward "$2") ;;
        *) fail "unknown option $1: see the top of $0" ;;
        esac
        shift 2
    done
    [[ -n ${line[a]:-} && -n ${line[b]:-} ]] || fail "give a command for each: --a … --b …"
    [[ $grace =~ ^[0-9]+$ ]] || fail "--grace $grace: expected whole seconds"
}

start() { # a|b
    local more=()
    [[ $1 != a ]] || more=("${forward[@]}")
    mkfifo "$run/$1"
    sed -u "s/^/$1| /" <"$run/$1" &
    printer[$1]=$!
    setpriv --pdeathsig TERM "$here/soft-roce.sh" --cpus "$cpus" --mem "$memory" \
        --timeout "$limit" --net-socket "$run/wire" --role "$1" \
        "${passed_on[@]}" "${more[@]}" -- bash -c "${line[$1]}" >"$run/$1" 2>&1 &
    vm[$1]=$!
}

clean_up() {
    local side
    for side in "${!vm[@]}"; do kill "${vm[$side]}" 2>/dev/null || true; done
    for side in "${!vm[@]}"; do wait "${vm[$side]}" 2>/dev/null || true; done
    for side in "${!printer[@]}"; do wait "${printer[$side]}" 2>/dev/null || true; done
    rm -rf "$run"
}

stop_after_grace() { # a|b
    local left
    for ((left = grace * 10; left > 0; left--)); do
        kill -0 "${vm[$1]}" 2>/dev/null || return 0
        sleep 0.1
    done
    echo "pair: $1 is stopped, $grace s after the other failed" >&2
    kill "${vm[$1]}" 2>/dev/null || true
}

parse "$@"
"$here/available.sh" >&2 || exit 125
"$here/image.sh" >/dev/null # once, before the two start
run=$(mktemp -d -t tapecast-pair.XXXXXX)
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
start a
start b

first=0 second=0
wait -n -p ended "${vm[a]}" "${vm[b]}" || first=$?
if [[ $ended == "${vm[a]}" ]]; then other=b; else other=a; fi
[[ $first -eq 0 ]] || stop_after_grace "$other"
wait "${vm[$other]}" || second=$?
[[ $first -ne 0 ]] || first=$second
exit "$first"

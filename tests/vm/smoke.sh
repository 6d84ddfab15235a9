#!/usr/bin/env bash
# Checks the VM harness itself: what the other VM tests take for granted.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vm=$here/soft-roce.sh pair=$here/pair.sh

"$here/available.sh" || exit 0

work=$(mktemp -d -t tapecast-smoke.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# One VM answers several questions, since starting it is most of the cost.
source "$here/../scripts/expect.sh"

# Runs in the guest, given with its definition. The server takes one client and ends, the client
# comes when the server is there: until then its connection is refused.
shell_library=$(cat <<'GUEST'
bandwidth() { # [SERVER]
    timeout 60 ib_write_bw -d rxe0 -x "$(gid_index)" -s 1024 -n 200 -F "$@"
}
# Soft-RoCE's GIDs of IPv4 addresses are RoCE v2 alone.
gid_index() {
    cd /sys/class/infiniband/rxe0/ports/1 || return
    local index
    index=$(grep -l "0000:ffff:0a0" gids/* | head -n 1)
    index=${index#gids/}
    [[ $(cat "gid_attrs/types/$index") == "RoCE v2" ]] && echo "$index"
}
patient() { # COMMAND…
    local left
    for ((left = 100; left > 0; left--)); do
        "$@" && return
        sleep 0.2
    done
    return 1
}
GUEST
)

one_vm() {
    mkdir "$work/out"
    echo 'from the host' >"$work/out/sent"
    # shellcheck disable=SC2016 # the guest expands these
    run "$vm" --timeout 120 --out "$work/out" --env 'WORDS=two  words' --env "QUOTED=it's" -- \
        bash -c "$shell_library"'
        echo "folder=$PWD words=$WORDS quoted=$QUOTED argument=$1 locked=$(ulimit -l)"
        echo "gid=$(cat "/sys/class/infiniband/rxe0/ports/1/gids/$(gid_index)")"
        ibv_devinfo -d rxe0
        cp "$2/sent" "$2/returned"
        echo hidden >"$3"
        bandwidth >/dev/null &
        patient bandwidth 10.9.0.1 && wait "$!" && echo bandwidth=ok
        exit 7' name 'an argument' "$work/out" "$work/not-shared"
    expect 'the status of the command comes through' ended_with 7
    expect 'the working directory is the one outside' printed "^folder=$PWD "
    expect 'the environment comes through' printed " words=two  words quoted=it's "
    expect 'arguments come through' printed ' argument=an argument '
    expect 'memory may be locked without limit' printed ' locked=unlimited$'
    expect 'rxe0 has a RoCE v2 GID for 10.9.0.1' printed '^gid=.*:ffff:0a09:0001$'
    expect 'the port is active with a path MTU of 4096' printed 'active_mtu:\s+4096'
    expect 'RDMA writes arrive' printed '^bandwidth=ok$'
    expect 'files come back from the share' cmp "$work/out/sent" "$work/out/returned"
    expect 'nothing else on the host is written' test ! -e "$work/not-shared"
}

failures() {
    run "$vm" --timeout 30 -- sh -c 'echo begun; sleep 1000'
    expect 'a command that takes too long is stopped' ended_with 124
    expect 'what it printed until then is shown' printed '^begun$'
    run "$vm" --timeout 40 -- sh -c 'echo c >/proc/sysrq-trigger; sleep 1000'
    expect 'a VM that crashes is told from a command that fails' ended_with 125
    expect 'the end of the console is shown then' printed 'vm: .*Kernel panic'
}

two_vms() {
    local lossy='tc qdisc add dev eth0 root netem limit 20000 loss 1% && tc qdisc show dev eth0;'
    # shellcheck disable=SC2016 # the guests expand these
    run "$pair" --timeout 120 --a "$shell_library; $lossy"'
        bandwidth >/dev/null && echo bandwidth=ok' --b "$shell_library; $lossy"'
        patient bandwidth 10.8.0.1 && echo bandwidth=ok'
    expect 'two VMs end well' ended_with 0
    expect 'frames are lost on the way' printed '^b\| qdisc netem .* loss 1%'
    expect 'a is reached by TCP and by RDMA writes' printed '^b\| bandwidth=ok$'
    expect 'a sees them too' printed '^a\| bandwidth=ok$'

    run "$pair" --timeout 60 --grace 1 --a 'sleep 1000' --b 'exit 9'
    expect 'the failure of one VM ends both' ended_with 9
}

one_vm
failures
two_vms
echo "vm smoke: $passed passed, $failed failed"
[[ $failed -eq 0 ]]

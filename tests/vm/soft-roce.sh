#!/usr/bin/env bash
# Runs a command in a virtual machine that has an RDMA device: Debian's kernel with Soft-RoCE.
#
#   soft-roce.sh [OPTION…] -- COMMAND [ARG…]
#     --cpus N                2      processors of the VM
#     --mem SIZE              4G     its memory
#     --timeout S             300    it is stopped after so many seconds, boot included
#     --env NAME=VALUE               goes into the command's environment (repeatable); all else there
#                                    is PATH, HOME and LANG
#     --out DIR                      writable share with the host, at the same path on both sides
#     --net-socket PATH --role a|b   one end of a wire between two VMs: `a` listens at PATH
#     --init systemd                 a real systemd is process 1, and the command a service of it that
#                                    begins when the machine is up
#     --forward HOST:GUEST           who connects to 127.0.0.1:HOST reaches 10.0.2.15:GUEST there
#
# The host's root file system is the guest's: what is built here runs there, in the same working
# directory. Writes land in memory and are gone afterwards, except those below --out DIR. There, one
# guest sees at once what the other wrote.
# rxe0 sits on dum0, 10.9.0.1/24, or with --role on eth0, 10.8.0.1 (a) or 10.8.0.2 (b). MTU is 4200.
# tcpdump needs `-Z root` to write below DIR.
#
# Prints the command's output, stdout and stderr as one. Exits with the command's status, with 124
# when the time was over while it ran, or with 125, and the end of the console, when it never ended
# for another reason: the VM did not boot, has no RDMA device, or crashed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { echo "vm: $*" >&2; exit 125; }

cpus=2 memory=4G limit=300 out='' socket='' role='' init='' forward='' environment=() network=()

parse() {
    while [[ $# -gt 0 && $1 != -- ]]; do
        [[ $# -ge 2 ]] || fail "$1 needs a value, and a command comes after --"
        case $1 in
        --cpus) cpus=$2 ;;
        --mem) memory=$2 ;;
        --timeout) limit=$2 ;;
        --env) environment+=("$2") ;;
        --out) out=$2 ;;
        --net-socket) socket=$2 ;;
        --role) role=$2 ;;
        --init) init=$2 ;;
        --forward) forward=$2 ;;
        *) fail "unknown option $1: see the top of $0" ;;
        esac
        shift 2
    done
    [[ $# -ge 2 ]] || fail "say what to run: $0 [OPTION…] -- COMMAND [ARG…]"
    shift
    command=("$@")
}

check() {
    local setting
    for setting in "${environment[@]}"; do
        [[ $setting =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || fail "--env $setting: expected NAME=VALUE"
    done
    [[ $cpus =~ ^[1-9][0-9]*$ ]] || fail "--cpus $cpus: expected a number"
    [[ $memory =~ ^[1-9][0-9]*[MG]$ ]] || fail "--mem $memory: expected a size like 4G"
    [[ $limit =~ ^[1-9][0-9]*$ ]] || fail "--timeout $limit: expected whole seconds"
    [[ $role =~ ^[ab]?$ ]] || fail "--role $role: expected a or b"
    [[ $init =~ ^(systemd)?$ ]] || fail "--init $init: expected systemd"
    [[ $forward =~ ^([0-9]+:[0-9]+)?$ ]] || fail "--forward $forward: expected two ports, like 17412:7412"
    [[ ${socket:+set} == "${role:+set}" ]] || fail "--net-socket and --role go together"
}

# What the guest's init reads; see there.
write_job() {
    if [[ -n $out ]]; then
        mkdir -p "$out"
        out=$(realpath "$out")
    fi
    printf '%s' "$out" >"$run/out"
    printf '%s' "$role" >"$run/role"
    printf '%s' "$forward" >"$run/forward"
    [[ -z $init ]] || printf '%s' "$(realpath "$here/../systemd/make-bootable.sh")" >"$run/make-bootable"
    : >"$run/output"
    {
        echo 'ulimit -l unlimited'
        if [[ ${#environment[@]} -gt 0 ]]; then printf 'export %q\n' "${environment[@]}"; fi
        printf 'cd %q || exit\n' "$PWD"
        printf 'exec '
        printf '%q ' "${command[@]}"
    } >"$run/job"
}

# QEMU takes a comma for the end of a value unless there are two.
quoted() { printf '%s' "${1//,/,,}"; }

share() { # TAG FOLDER MORE
    echo "local,path=$(quoted "$2"),mount_tag=$1,security_model=none,multidevs=remap$3"
}

# The end that connects gives up at once when nobody listens, so it starts after the other.
wait_for_listener() {
    local left
    for ((left = limit * 10; left > 0; left--)); do
        # 00010000 is the flag of a socket that accepts connections.
        if awk -v path="$socket" '$4 == "00010000" && $8 == path {found = 1} END {exit !found}' \
            /proc/net/unix; then return; fi
        sleep 0.1
    done
    fail "nobody listens at $socket: start the VM with --role a, too"
}

wire() {
    [[ -n $role ]] || return 0
    local server=on mac=52:54:00:00:00:0a
    if [[ $role == b ]]; then
        server=off mac=52:54:00:00:00:0b
        wait_for_listener
    fi
    # A stream on a Unix socket neither drops frames (datagrams do) nor delays them (TCP does).
    network+=(
        -netdev "stream,id=wire,server=$server,addr.type=unix,addr.path=$(quoted "$socket")"
        -device "virtio-net-pci,netdev=wire,mac=$mac,romfile="
    )
}

# Through the host's own network stack: no rights and no interface are needed for it.
door() {
    [[ -n $forward ]] || return 0
    network+=(
        -netdev "user,id=door,restrict=on,hostfwd=tcp:127.0.0.1:${forward%:*}-10.0.2.15:${forward#*:}"
        -device "virtio-net-pci,netdev=door,mac=52:54:00:00:00:0c,romfile="
    )
}

boot() {
    local shares=(-virtfs "$(share host / ,readonly=on)" -virtfs "$(share run "$run" '')")
    [[ -z $out ]] || shares+=(-virtfs "$(share out "$out" '')")
    # no_timer_check: a busy host may be late with the few ticks that the kernel counts there, and then
    # it panics. net.ifnames=0: systemd must not rename what init has set up.
    local parameters='tsc=reliable clocksource=tsc console=ttyS0 quiet panic=-1 tapecast.vm'
    parameters+=' no_timer_check net.ifnames=0 systemd.unit=job.target'
    # Each process dies with the one that started it, even when that one is killed outright.
    setpriv --pdeathsig TERM timeout --kill-after=2 "$limit" setpriv --pdeathsig KILL \
        qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp "$cpus" -m "$memory" \
        -kernel "$image/vmlinuz" -initrd "$image/initrd.gz" \
        -append "$parameters" -no-reboot \
        -nodefaults -vga none -display none -serial "file:$run/console" \
        "${network[@]}" "${shares[@]}" </dev/null >"$run/qemu" 2>&1 &
    vm=$!
}

clean_up() {
    if [[ -n ${vm:-} ]]; then
        kill "$vm" 2>/dev/null || true
        wait "$vm" 2>/dev/null || true
    fi
    [[ -z ${printer:-} ]] || wait "$printer" || true
    rm -rf "$run"
}

explain() { # WHAT
    {
        echo "vm: $1; the last it said:"
        cat "$run/qemu" "$run/console" 2>/dev/null | tr -d '\r' | tail -n 120 | sed 's/^/vm:   /'
    } >&2
}

report() { # QEMU's status
    if [[ -s $run/status ]]; then exit "$(<"$run/status")"; fi
    # 124: `timeout` ended it; 137: it had to insist.
    if [[ -s $run/started && ($1 -eq 124 || $1 -eq 137) ]]; then
        echo "vm: stopped after $limit s, the command had not ended" >&2
        exit 124
    fi
    explain "ended with status $1 before the command did"
    exit 125
}

parse "$@"
check
"$here/available.sh" >&2 || exit 125
image=$("$here/image.sh")
run=$(mktemp -d -t tapecast-vm.XXXXXX)
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
write_job
wire
door
boot
tail -n +1 -s 0.1 --pid="$vm" -f "$run/output" &
printer=$!
ended=0
wait "$vm" || ended=$?
wait "$printer" || true
vm='' printer=''
report "$ended"

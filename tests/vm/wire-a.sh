#!/usr/bin/env bash
# The publisher's end of the tests over a wire (tests/tests/wire): runs in VM a.
#   wire-a.sh PROGRAMS OUT
# Plays one day for each kind of wire, to the subscribers of wire-b.sh, and writes a report of each.
set -euo pipefail
programs=$1 out=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/wire-plan.sh"

# Until all subscribers have a queue pair here, and so the day has begun.
await_subscribers() {
    for _ in $(seq 600); do
        [[ $(rdma resource show qp | grep -c ' pid ') -ge $subscribers ]] && return
        sleep 0.1
    done
    echo "the subscribers did not come" >&2
    exit 1
}

# Before everything else that runs here, so that it is dark for as long as is said: the machine has
# one processor, which others use up when nothing is acknowledged.
go_dark() { # SECONDS
    chrt -f 50 bash -c '
        read -r began _ </proc/uptime
        tc qdisc replace dev eth0 root netem loss 100%
        sleep "$1"
        tc qdisc replace dev eth0 root netem limit 20000 delay 0ms
        read -r ended _ </proc/uptime
        echo "dark from $began s to $ended s"
    ' bash "$1"
}

publish() { # NAME PORT ARGUMENT…
    local name=$1 port=$2
    shift 2
    "$programs/tapecast-publisher" run --fabric verbs --listen "10.8.0.1:$port" \
        --set "tls.certificate=$out/certificates/server.pem" \
        --set "tls.key=$out/certificates/server.key" \
        --set "tls.client_ca=$out/certificates/ca.pem" \
        --wait-for "$subscribers" --exit-at-end --report "$out/$name-report.json" \
        --no-progress --log-level warn --seed 7 --instruments 20 \
        --burst-rate 3000 --steady-rate 3000 \
        --set source.synthetic.quiet_every_s=0 --set access.stall_max_s=30 "$@"
}

port=$first_port
for name in "${wires[@]}"; do
    echo "$name"
    wire "$name"
    case $name in
    loss-1 | loss-5) publish "$name" "$port" "${day[@]}" "${patient[@]}" ;;
    blackout)
        publish "$name" "$port" "${day[@]}" "${patient[@]}" &
        await_subscribers
        sleep 1
        go_dark 1
        wait $!
        ;;
    outage)
        # 7 tries of 67 ms: after half a second the queue pairs give up.
        publish "$name" "$port" "${long_day[@]}" --set rdma.timeout=14 --set rdma.retry_count=6 &
        await_subscribers
        sleep 1
        go_dark 2.5
        wait $!
        ;;
    capture)
        tcpdump -Z root -i eth0 -s 128 -w "$out/capture.pcap" -c 3000 udp port 4791 2>/dev/null &
        publish "$name" "$port" "${day[@]}" "${patient[@]}"
        kill %tcpdump 2>/dev/null || true
        wait || true
        ;;
    esac
    port=$((port + 1))
done

# Sourced by host.sh: what has to hold on the two machines when everything on the page is done.

# Both wait here until the other has come as far.
meet() { # WHERE
    touch "$folder/done/$1-$name"
    until [[ $(find "$folder/done" -name "$1-*" | wc -l) -eq 2 ]]; do sleep 0.2; done
}
main() { systemctl show "$unit" --property MainPID --value; }
metrics() {
    curl -sS --max-time 5 --cacert /root/tls/ca.pem --cert /root/tls/client-prometheus.pem \
        --key /root/tls/client-prometheus.key "https://10.8.0.1:7412/$1"
}
has() { # PATTERN
    metrics metrics | grep -E "$1" && return
    echo "no figure matches $1; there are:"
    metrics metrics | grep -E "${1%%[^a-z_]*}" | head -n 5
    return 1
}
says() { journalctl --sync; journalctl --unit "$unit" --output cat | grep -E -- "$1"; }

# A process that is moved into the service's control group may open what the service may.
opens() { # DEVICE
    bash -c 'echo $$ >/sys/fs/cgroup/system.slice/tapecast-publisher.service/cgroup.procs &&
        exec 8<>"$0"' "$1"
}
sandboxed() {
    expect 'RDMA is used by a user of its own' test "$(ps -o user= -p "$(main)")" = tapecast
    expect 'without a right, and with none to be had' test \
        "$(grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$(main)/status" | tr -d '\t\n')" \
        = CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1Seccomp:2
    expect 'the card is open in the sandbox' eval "ls -l /proc/$(main)/fd | grep -F /dev/infiniband/uverbs"
    expect 'other devices cannot be opened there' fails opens /dev/kmsg
    expect 'the card can' opens /dev/infiniband/uverbs0
    expect 'the exposure is at most 2.0' systemd-analyze security --threshold=20 "$unit"
    expect 'what the pool locks is within the limit' eval \
        "grep 'Max locked memory *unlimited' /proc/$(main)/limits"
    expect 'figures need a certificate' fails curl -sS --max-time 5 --cacert /root/tls/ca.pem https://10.8.0.1:7412/metrics
    expect 'two sessions are served' soon has '^tapecast_sessions(\{.*\})? 2$'
    expect "the card's own counters are told" has '^rdma_sent_pkts_total.* [1-9]'
}

reload() {
    systemctl reload "$unit" || { journalctl --unit "$unit" --output cat --lines 10; return 1; }
}
new_main() { [[ $(main) -gt 0 && $(main) != "$1" ]] && systemctl is-active "$unit"; }
lives() {
    local before
    before=$(main)
    printf '\n[[entitlement]]\nclient = "desk-2"\n' >>"$config"
    expect 'a configuration is taken while it runs' reload
    expect 'and told of' soon says 'changed: .*entitlement'
    expect 'by the same process' test "$(main)" = "$before"
    kill -KILL "$before"
    expect 'kill -9: another process serves' soon new_main "$before"
    expect 'kill -9: both subscribers are back' soon has '^tapecast_sessions(\{.*\})? 2$'
}

# The drop-ins that the page leaves to the reader: cores, memory and the kernel's word on the clock.
places() {
    local drop_ins=/etc/systemd/system/$unit.service.d
    cp /usr/share/doc/tapecast/drop-ins/{clock,cpu-pinning,numa}.conf "$drop_ins"
    sed -i -E 's/^(CPUAffinity|AllowedCPUs)=.*/\1=1/' "$drop_ins/cpu-pinning.conf"
    systemctl daemon-reload
    expect 'it starts with drop-ins for cores, memory and clock' systemctl restart "$unit"
    expect 'every thread is on the core that was named' test \
        "$(grep -h Cpus_allowed_list "/proc/$(main)/task"/*/status | sort -u | tr -d '\t')" = Cpus_allowed_list:1
    expect 'its memory is of the node that was named' grep -m 1 'bind:0' "/proc/$(main)/numa_maps"
    expect 'the kernel tells it of the clock' soon has '^tapecast_clock_state_readable(\{.*\})? 1$'
}

# A list that cannot be had is no empty one.
no_queue_pair() {
    rdma resource show qp >"$work/queue-pairs" || return
    fails grep tapecast "$work/queue-pairs"
}

follower_says() { # PATTERN
    local number
    for number in "${!in_background[@]}"; do
        grep -E "$1" "$work/follower-$number.errors" && continue
        echo "follower $number says:"
        cat "$work/follower-$number.errors"
        return 1
    done
}
# Lines that a follower has written; it writes one each second.
lines() { wc -l <"$work/follower-$1"; }
goes_on() { # NUMBER LINES
    [[ $(lines "$1") -gt $2 ]]
}
all_go_on() {
    local number
    for number in "${!in_background[@]}"; do soon goes_on "$number" "$(lines "$number")" || return; done
}

if [[ $name == P ]]; then
    sandboxed
    meet served
    lives
    meet back
    meet seen
    places
    expect 'it stops' systemctl stop "$unit"
    expect 'in order' says 'closing: the publisher was stopped'
    meet stopped
    expect 'no queue pair is left' no_queue_pair
else
    expect 'both subscribers read' all_go_on
    # The first lines may be from before anything came.
    sed 's/^/        /' "$work/follower-0" | tail -n 3
    meet served
    meet back
    expect 'both subscribers have attached again' soon follower_says 'attached again'
    expect 'they read on' all_go_on
    expect 'Prometheus is answered' soon eval "promtool query instant http://127.0.0.1:9090 'up == 1' | grep tapecast"
    expect 'and has the figures of the card' soon eval \
        "promtool query instant http://127.0.0.1:9090 'sum(rdma_sent_pkts_total) > 0' | grep '=>'"
    meet seen
    meet stopped
    expect 'they were told that it stopped' soon follower_says 'the publisher was stopped'
fi

# What wire-a.sh and wire-b.sh must agree on.
# shellcheck disable=SC2034
read -ra wires <<<"${WIRES:-loss-1 loss-5 blackout outage capture}"
subscribers=4

# What each end does to all that it sends.
wire() { # NAME
    local -A wires=([loss-1]="delay 2ms loss 1%" [loss-5]="delay 2ms loss 5%")
    # shellcheck disable=SC2086
    tc qdisc replace dev eth0 root netem limit 20000 ${wires[$1]:-delay 0ms}
}

first_port=7411
day=(--set "source.synthetic.length=18000 messages")
# Longer than what a session needs to come back: the tries that are left, and a few of a connection.
long_day=(--set "source.synthetic.length=60000 messages")
# An emulated machine may stand still for longer than a real one: 7 tries of 0.27 s.
patient=(--set rdma.timeout=16 --set rdma.retry_count=6)

# What wire-a.sh and wire-b.sh must agree on.
# shellcheck disable=SC2034
read -ra wires <<<"${WIRES:-loss-1 loss-5 blackout outage capture}"
subscribers=4
first_port=7411
day=(--set "source.synthetic.length=18000 messages")
# Longer than what a session needs to come back: the tries that are left, and a few of a connection.
long_day=(--set "source.synthetic.length=60000 messages")
# An emulated machine may stand still for longer than a real one: 7 tries of 0.27 s.
patient=(--set rdma.timeout=16 --set rdma.retry_count=6)

#!/usr/bin/env bash
# The same as run.sh and alerts.sh for a publisher over RDMA: on one virtual machine, its subscribers
# on another, Soft-RoCE and a wire between them. The Prometheus is this machine's. Runs every query,
# draws the dashboards, then breaks wire, card, clock and certificates, and waits for the alerts.
#
#   rdma.sh          pictures are kept in target/monitor/pictures-rdma
#   SUBSCRIBERS=64   instead of 8
source "$(dirname "$0")/stage.sh"
source tests/monitor/draw.sh
tests/vm/available.sh || exit 0

subscribers=${SUBSCRIBERS:-8}
fires_within=120
machines=$folder/machines
mkdir "$machines"
"$programs/tapecast-publisher" certificates --server 10.8.0.1 --client desk --out "$machines/tls" >/dev/null
# Another authority's: nobody here trusts it.
"$programs/tapecast-publisher" certificates --server 10.8.0.1 --client desk --out "$machines/other" >/dev/null

fails_to() { ! "$@"; }
declare -A orders=([a]=0 [b]=0)
tell() { # MACHINE ORDER: waits until it is done, and prints what it said
    local order=$machines/$1-$((++orders[$1]))
    printf '%s\n' "$2" >"$order.new"
    mv "$order.new" "$order"
    until_true "${WITHIN:-120}" "machine $1: $2" test -e "$order.done" || return
    cat "$order.said"
    [[ $(<"$order.done") == 0 ]] || fail "machine $1, $2: status $(<"$order.done")"
}

door=$(free_port)
publisher=127.0.0.1:$door
obey=$PWD/tests/monitor/obey.sh
start machines env TMPDIR="$folder" tests/vm/pair.sh --cpus 2 --mem 2G --timeout 900 --out "$machines" --forward "$door:7412" \
    --a "tests/vm/only-rxe.sh bash '$obey' '$machines' a" --b "tests/vm/only-rxe.sh bash '$obey' '$machines' b"
pair=$pid
# They clear away themselves when they are asked.
trap 'kill -TERM "$pair" 2>/dev/null || true; while alive "$pair"; do read -rt 0.1 <> <(:) || true; done; clear_away' EXIT

connect="$programs/tapecast-subscriber tail --quiet --color never --wait-for-publisher 60 --connect 10.8.0.1:7411 \
    --ca $machines/tls/ca.pem --cert $machines/tls/client-desk.pem --key $machines/tls/client-desk.key"
publish() { # RATE
    tell a "$programs/tapecast-publisher run --fabric verbs --listen 10.8.0.1:7411 --set publisher.name=rdma \
        --set tls.certificate=$machines/tls/server.pem --set tls.key=$machines/tls/server.key \
        --set tls.client_ca=$machines/tls/ca.pem --set access.sessions_max=$subscribers \
        --set rdma.completion_depth=$((subscribers * 64)) --set rdma.timeout=20 --set rdma.retry_count=7 \
        --set metrics.address=10.0.2.15:7412 --set metrics.tls=off --set metrics.clock_error_max_us=300000 \
        --journal /tmp/journal --set 'journal.rotate_bytes=1 MiB' --set journal.keep=2 \
        --receive-time host --instruments 20 --steady-rate $1 --burst-rate $((2 * $1)) --no-progress >publisher.log 2>&1 &"
}
WITHIN=180 publish 150
# The machines' clocks differ by up to a second, and a subscriber whose clock is behind has no latency
# to tell. Theirs is set a little ahead, by what tapecast itself has measured.
tell b "$connect --name probe >probe.log 2>&1 &"
measured() { get "http://$publisher/metrics" >"$folder/metrics.txt" && awk '/^tapecast_subscriber_clock_error/ { known = $2 < 0.1 }
    END { exit !known }' "$folder/metrics.txt"; }
until_true 120 'an estimate of the clocks' measured
offset=$(awk '/^tapecast_subscriber_clock_offset/ { print $2 }' "$folder/metrics.txt")
# In one program, because an emulated machine takes a quarter of a second to start three; 227 is
# clock_settime(2).
tell b "pkill -f probe; perl -MTime::HiRes=clock_gettime,CLOCK_REALTIME -e '
    my \$at = clock_gettime(CLOCK_REALTIME) + 0.1 - ($offset);
    syscall(227, 0, pack(\"qq\", int \$at, (\$at - int \$at) * 1e9)) == 0 or die \$!;'"
WITHIN=180 tell b "for number in \$(seq 3 $subscribers); do
        $connect --name reader-\$(printf %02d \$number) >reader-\$number.log 2>&1 & done
    for number in 1 2; do $connect --name pauses-0\$number --rdma-ring '8 KiB' --rdma-receives 64 >pauses-\$number.log 2>&1 & done
    while sleep 1.5; do pkill -STOP -f pauses-; sleep 1.5; pkill -CONT -f pauses-; done >/dev/null 2>&1 &"
until_true 120 'an answer of the publisher' answers "http://$publisher/readyz" || { cat "$folder/machines.log" "$machines"/*.log; exit 1; }
start_prometheus "$FASTER" "$publisher"
say "publisher http://$publisher/metrics, Prometheus $prometheus"
node tests/monitor/check.mjs --prometheus "$prometheus" --instance "$publisher" --fabric verbs \
    --sessions "$subscribers" --wait "${WAIT:-180}" || status=1
healthy=$EPOCHSECONDS
save() { get "http://$publisher/metrics" >"$folder/metrics.txt"; }
until_true 60 'an answer of the publisher' save || status=1
mkdir -p "$kept" && cp "$folder/metrics.txt" "$kept/metrics-rdma.txt"

# Emulated machines answer late: that alone may make deliveries slow. The pauses lag and conflate.
sees 'count(tapecast_ready unless on (channel) ALERTS{alertstate="firing",alertname=~"TapecastCertificate.*|TapecastClockUnreliable|TapecastCompletion.*|TapecastRdma.*|TapecastSender.*"}) == 1'
say "in health none of them fires"
# Delays what comes from the subscribers: half of that may be the clock's.
tell b 'tc qdisc replace dev eth0 root netem limit 20000 delay 1s'
fires TapecastClockUnreliable 'channel="rdma"'
fires TapecastDeliveryUnwatched 'channel="rdma"'
tell b 'tc qdisc del dev eth0 root'
tell a 'tc qdisc replace dev eth0 root netem limit 20000 loss 5%'
fires TapecastRdmaRetransmits 'channel="rdma"'
tell a 'tc qdisc del dev eth0 root'

# Credit keeps our own subscribers from that, so another program on the card has to do it.
send='cd /sys/class/infiniband/rxe0/ports/1 && gid=$(grep -l 0000:ffff:0a0 gids/* | head -n 1) && cd - &&
    timeout 60 ib_send_bw -d rxe0 -x "${gid#gids/}" --rx-depth 1 --tx-depth 16 -s 64 -n 100 -F'
tell b "{ $send; } >receives.log 2>&1 &"
# Not before the other end listens.
tell a "{ for try in \$(seq 20); do sleep 1; { $send 10.8.0.2; } && break; done; } >sends.log 2>&1 &"
fires TapecastRdmaReceiverNotReady 'channel="rdma"'

tell b "$programs/tapecast-subscriber tail --count 1 --connect 10.8.0.1:7411 --ca $machines/tls/ca.pem \
    --cert $machines/other/client-desk.pem --key $machines/other/client-desk.key; true"
fires TapecastCertificateRefused 'channel="rdma"'

# Nothing is acknowledged any more: all that may be out, is.
tell b 'tc qdisc replace dev eth0 root netem loss 100%'
fires TapecastCompletionQueueNearlyFull 'channel="rdma"'
tell b 'tc qdisc del dev eth0 root'
# Each session's work requests are sent within write(2) here: a burst without end is too much for that.
tell a 'pkill -KILL tapecast-publis'
publish 50000
fires TapecastSenderSaturated 'channel="rdma"'
tell a 'ip link set eth0 down'
fires TapecastRdmaPortDown 'channel="rdma"'

for machine in a b; do
    echo end >"$machines/$machine-$((++orders[$machine]))"
done
# When they are gone there is a processor for it.
until_true 60 'the end of the machines' fails_to alive "$pair" || status=1
draws pictures-rdma --only rdma --until "$healthy" || status=1
[[ $status != 0 ]] || say "${#fired[@]} alerts fired; drawn: $drawing"
exit $status

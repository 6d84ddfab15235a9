#!/usr/bin/env bash
# Causes what alerts are about, on real processes, and waits until a real Prometheus fires them.
#
# The expressions are those that are shipped. Only durations are shortened, by FASTER below: `for`
# to 2 s, windows of a minute to 15 s; and the session is open at any hour.
#
#   alerts.sh   ends with status 1 when one does not fire, or one fires in health
#
# rdma.sh has those that need RDMA, a certificate that is refused, another machine's clock, or a
# sender with much to post. SnapshotsLost would be a defect: here somebody only says so. Nothing makes
# these fire: RdmaAckTimeouts, CnpIgnored and RdmaPaused, of which Soft-RoCE has no counters. They are
# tested in rules/ alone.
source "$(dirname "$0")/stage.sh"

open_at_any_hour='s/day_of_week\(\) >= bool 1/day_of_week() >= bool 0/; s/day_of_week\(\) <= bool 5/day_of_week() <= bool 6/
    s/>= bool 870/>= bool 0/; s/< bool 1260/< bool 1500/'

# The middle of a recorded day: its first messages, which list the instruments, are missing, so the
# feed has a gap for each of them, and orders that nobody has seen are changed. In three parts.
middle_of_a_day() { # FILE
    "$programs/tapecast-publisher" generate --out "$folder/day.itch50" --instruments 20 --messages 20000 --no-progress 2>/dev/null
    node -e '
        const fs = require("fs"), [day, out] = process.argv.slice(1), bytes = fs.readFileSync(day);
        const skip = (at, count) => { while (count-- > 0) at += 2 + bytes.readUInt16BE(at); return at; };
        const [first, middle] = [skip(0, 1), skip(0, 10000)], late = skip(middle, 9000);
        fs.writeFileSync(`${out}.first`, bytes.subarray(0, first));
        fs.writeFileSync(`${out}.middle`, bytes.subarray(middle, late));
        fs.writeFileSync(`${out}.late`, bytes.subarray(late));' "$folder/day.itch50" "$1"
}

# Six publishers: one that is well, one whose journal finds no room (a limit on the size of files),
# one whose deep book and lossless subscriber take all pages, one that is fed faster than it can
# publish, one fed by a pipe, one whose certificate ends tomorrow.
# A writing end that stays open makes a pipe a line that is connected.
middle_of_a_day "$folder/line"
node tests/monitor/deep_book.mjs "$folder/deep.itch50" 300
mkfifo "$folder/line.pipe"
exec 7<>"$folder/line.pipe"
# A pipe counts as opened when something is in it.
cat "$folder/line.first" >&7
# Its ring holds a second, so that a busy machine overruns nobody.
printf '[log]\nlevel = "info"\n' >"$folder/well.toml"
start_publisher well --config "$folder/well.toml" --instruments 20 --steady-rate 2000 --burst-rate 2000 --set 'shm.ring_bytes=1 MiB' \
    --set lag.hard_ms=3000
well=$publisher well_pid=$publisher_pid
start_publisher waits --source itch --file "$folder/deep.itch50" --pace realtime --set book.levels=83 \
    --set 'shm.ring_bytes=1 MiB' --set access.lossless=true --set access.stall_max_s=20
waits=$publisher
start_publisher fast --source itch --file "$folder/day.itch50" --pace max --set source.loop=true --wait-for 1
fast=$publisher fast_pid=$publisher_pid
mkdir "$folder/journal"
file_kib_max=2048 start_publisher full --instruments 20 --steady-rate 2000 --burst-rate 2000 --set shm.instruments_max=64 \
    --set 'shm.ring_bytes=64 KiB' --journal "$folder/journal"
full=$publisher full_pid=$publisher_pid
start_publisher line --source itch --file "$folder/line.pipe" --pace max --wait-for 1 --set source.silent_after_s=1
line=$publisher
# One whose certificate is good for a day, scraped over TLS.
"$programs/tapecast-publisher" certificates --out "$folder/tls" --server 127.0.0.1 --client prometheus --days 1 >/dev/null
expires=127.0.0.1:$(free_port)
start expires "$programs/tapecast-publisher" run --set publisher.name=expires --no-progress --socket "$folder/expires.sock" \
    --set "metrics.address=$expires" --set "metrics.certificate=$folder/tls/server.pem" --set "metrics.key=$folder/tls/server.key" \
    --set "metrics.client_ca=$folder/tls/ca.pem" --instruments 5 --steady-rate 10 --burst-rate 10
until_true 30 "figures over TLS" grep -q "figures are served" "$folder/expires.log"
for name in steady stopped killed; do
    start_subscriber well "$name"
    declare "$name=$pid"
done
start_subscriber well strict --policy disconnect --no-reconnect
strict=$pid
start_subscriber waits lossless --policy lossless
lossless=$pid
start_prometheus "$FASTER; $open_at_any_hour" "$well" "$waits" "$fast" "$full" "$line"
sees 'tapecast_sessions{channel="well"} == 4'
sees 'tapecast_sessions{channel="waits"} == 1'
sees 'rate(tapecast_subscriber_delivered_snapshots_total{subscriber="steady"}[5s]) > 0'
# Deliveries and the sender may be late on a busy machine, and its clock a free one; then that is true.
may_fire='TapecastDeliverySlow|TapecastPublishSlow|TapecastClockUnsynchronised'
sees "count(tapecast_ready{channel=\"well\"} unless on (channel) ALERTS{alertstate=\"firing\",alertname!~\"$may_fire\"}) == 1"
say "in health nothing fires"
if sees_soon 'tapecast_clock_synchronised{channel="well"} == 0'; then
    fires TapecastClockUnsynchronised 'channel="well"'
else
    say "TapecastClockUnsynchronised is SKIPPED: the clock of this machine is synchronised, or may not be asked"
fi

start liar "$programs/tapecast-liar" --socket "$folder/well.sock"
liar=$pid
fires TapecastSnapshotsLost 'channel="well"'
kill -KILL "$liar"
cat >>"$folder/prometheus/prometheus.yml" <<END
  - job_name: tapecast-over-tls
    scheme: https
    tls_config:
      ca_file: $folder/tls/ca.pem
      cert_file: $folder/tls/client-prometheus.pem
      key_file: $folder/tls/client-prometheus.key
    static_configs:
      - targets: ["$expires"]
END
kill -HUP "$prometheus_pid"
fires TapecastCertificateExpires 'certificate="metrics"'
fires TapecastCertificateExpiresSoon 'certificate="metrics"'

fires TapecastJournalLosing 'channel="full"'
# As the unit does it: at once, so that no scrape need fail.
crash_and_start_again() {
    kill -KILL "$full_pid"
    start full "$programs/tapecast-publisher" run --set publisher.name=full --no-progress --socket "$folder/full.sock" \
        --set "metrics.address=$full" --instruments 20 --steady-rate 10 --burst-rate 10
    full_pid=$pid
    until_true 30 "an answer of a publisher that started again" answers "http://$full/metrics" || status=1
}
crash_and_start_again
fires TapecastPublisherRestarted 'channel="full"'
crash_and_start_again
fires TapecastPublisherCrashLoop 'channel="full"'
kill -KILL "$full_pid"

fires TapecastNotReady 'channel="line"'
start_subscriber line reader
sees 'tapecast_ready{channel="line"} == 1'
cat "$folder/line.middle" >&7
fires TapecastFeedGap 'channel="line"'
cat "$folder/line.late" >&7
fires TapecastBookAnomalies 'channel="line",kind="unknown_order"'
fires TapecastFeedSilent 'channel="line"'
exec 7>&-
fires TapecastFeedEnded 'channel="line"'

printf '[log]\nlevel = "lots"\n' >"$folder/well.toml"
kill -HUP "$well_pid"
fires TapecastConfigReloadFailed 'channel="well"'

kill -STOP "$stopped" "$strict"
kill -KILL "$killed"
fires TapecastSubscriberLeft 'subscriber="killed"'
fires TapecastSubscriberLagging 'subscriber="stopped"'
fires TapecastSubscriberEvicted 'channel="well",reason="lagging"'
kill -CONT "$stopped"
fires TapecastSubscriberConflating 'subscriber="stopped"'
fires TapecastDeliverySlow 'channel="well"'
# Of four, two have gone for good.
kill -KILL "$steady" "$stopped"
fires TapecastSubscribersGone 'channel="well"'

start holder tests/systemd/hold-thread.pl "$well_pid" tapecast-sender
if until_true 10 "a sender that is held" grep -q held "$folder/holder.log"; then
    fires TapecastSenderStuck 'channel="well"'
else
    say "TapecastSenderStuck is SKIPPED: $(tail -1 "$folder/holder.log")"
fi

kill -STOP "$lossless"
fires TapecastSenderGated 'channel="waits"'
fires TapecastPoolNearlyEmpty 'channel="waits"'
fires TapecastSubscriberEvicted 'channel="waits",reason="stalled"'
# What was queued meanwhile is published now.
fires TapecastPublishSlow 'channel="waits"'

start_subscriber fast "reader of much"
fires TapecastQueueStalls 'channel="fast"'
kill -KILL "$fast_pid"
fires TapecastPublisherDown "instance=\"$fast\""

# A configuration that has lost all of its targets.
sed -i -E 's/^( +- targets:) .*/\1 []/' "$folder/prometheus/prometheus.yml"
kill -HUP "$prometheus_pid"
fires TapecastNothingScraped

[[ $status != 0 ]] || say "${#fired[@]} alerts fired"
exit $status

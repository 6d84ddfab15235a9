#!/usr/bin/env bash
# A publisher, 64 subscribers of which some are slow, and a real Prometheus; runs every query of
# every dashboard and every rule against it, and draws the dashboards with Grafana's components.
#
#   run.sh          ends with status 1 when a query fails or is empty, or a panel cannot be drawn;
#                   pictures are kept in target/monitor/pictures
#   KEEP=1 run.sh   stays until Ctrl-C and prints the addresses
#   PROFILE=release run.sh   uses the release build; default debug
source "$(dirname "$0")/stage.sh"
source tests/monitor/draw.sh

# Some that keep up, one that wants little, and some that pause again and again.
start_load() {
    local number kinds=(algo desk pricer risk)
    for number in $(seq 1 60); do
        start_subscriber feed "${kinds[number % 4]}-$(printf %02d "$number")"
    done
    start_subscriber feed screen-61 --min-interval 0.5
    start_subscriber feed screen-62 --policy disconnect
    start_subscriber feed pauses-63
    pausing=("$pid")
    start_subscriber feed pauses-64
    pausing+=("$pid")
    pause_again_and_again 9>&- &
    pids+=($!)
    disown $!
}

pause_again_and_again() {
    while kill -STOP "${pausing[@]}" 2>/dev/null; do
        read -rt 1.5 <> <(:) || true
        kill -CONT "${pausing[@]}" 2>/dev/null || return 0
        read -rt 1.5 <> <(:) || true
    done
}

mkdir -p "$folder/journal"
start_publisher feed --receive-time host --instruments 50 --steady-rate "${RATE:-2000}" --burst-rate 20000 \
    --set 'shm.ring_bytes=256 KiB' --journal "$folder/journal" --set 'journal.rotate_bytes=4 MiB' \
    --set journal.keep=2
start_load
start_prometheus '' "$publisher"
say "publisher http://$publisher/metrics, Prometheus $prometheus"

status=0
node tests/monitor/check.mjs --prometheus "$prometheus" --instance "$publisher" --wait "${WAIT:-120}" || status=1
get "http://$publisher/metrics" >"$folder/metrics.txt" || status=1
mkdir -p "$kept" && cp "$folder/metrics.txt" "$kept/metrics.txt"
promtool check metrics <"$folder/metrics.txt" || status=1
node tests/monitor/lint.mjs --names "$folder/metrics.txt" || status=1
draws pictures || status=1
alive "$publisher_pid" || { tail -5 "$folder/feed.log" >&2; status=1; }
if [[ ${KEEP:-} == 1 ]]; then
    if [[ $drawing == yes ]]; then
        draw --seconds 300 --serve 9>&- &
        pids+=($!)
        disown $!
    fi
    say "running until Ctrl-C; publisher http://$publisher/metrics, Prometheus $prometheus"
    while alive "$publisher_pid"; do read -rt 1 <> <(:) || true; done
fi
[[ $status != 0 ]] || say "all good; drawn: $drawing"
exit $status

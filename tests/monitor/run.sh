#!/usr/bin/env bash
# A publisher, 64 subscribers of which some are slow, and a real Prometheus; runs every query of
# every dashboard and every rule against it, and draws the dashboards with Grafana's components.
#
#   run.sh          ends with status 1 when a query fails or is empty, or a panel cannot be drawn;
#                   pictures are kept in target/monitor/pictures
#   KEEP=1 run.sh   stays until Ctrl-C and prints the addresses
#   PROFILE=release run.sh   uses the release build; default debug
source "$(dirname "$0")/stage.sh"

# Components and page are made once and shared between runs; one run at a time makes them.
prepare_page() {
    local stamp sources=(tests/monitor/package-lock.json tests/monitor/queries.mjs tests/monitor/renderer)
    stamp=$(find "${sources[@]}" -type f -exec sha256sum {} + | sort | sha256sum)
    mkdir -p "$kept"
    exec 9>"$kept/lock"
    flock 9
    if ! cmp -s tests/monitor/package-lock.json "$kept/node_modules/.installed"; then
        say "installing Grafana's components (some minutes, once)"
        cp tests/monitor/package.json tests/monitor/package-lock.json "$kept/"
        (cd "$kept" && npm ci --legacy-peer-deps --ignore-scripts --no-audit --no-fund --loglevel=error 9>&-) || return
        cp tests/monitor/package-lock.json "$kept/node_modules/.installed"
    fi
    if [[ $(cat "$kept/page/.made" 2>/dev/null) != "$stamp" ]]; then
        say "building the page that draws"
        rm -rf "$kept/renderer" "$kept/page"
        cp -r tests/monitor/renderer tests/monitor/queries.mjs "$kept/"
        (cd "$kept" && node_modules/.bin/vite build --config renderer/vite.config.mjs \
            --outDir "$kept/page" renderer 9>&-) >"$folder/vite.log" 2>&1 || { tail "$folder/vite.log" >&2; return 1; }
        echo "$stamp" >"$kept/page/.made"
    fi
    flock -u 9
}

can_draw() {
    local chromium=${CHROMIUM:-/usr/bin/chromium}
    command -v npm >/dev/null || { say "drawing is SKIPPED: npm is not installed"; return 1; }
    node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' ||
        { say "drawing is SKIPPED: it needs node 20.19 or later"; return 1; }
    [[ -x $chromium ]] || { say "drawing is SKIPPED: $chromium is not installed"; return 1; }
    prepare_page || { say "drawing is SKIPPED: Grafana's components could not be installed or built"; return 1; }
}

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

drawing=no
! can_draw || drawing=yes
mkdir -p "$folder/journal"
start_publisher feed --instruments 50 --steady-rate "${RATE:-2000}" --burst-rate 20000 \
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
draw=(node tests/monitor/draw.mjs --prometheus "$prometheus" --page "$kept/page" --modules "$kept" --instance "$publisher")
if [[ $drawing == yes ]]; then
    "${draw[@]}" --seconds 30 --pictures "${PICTURES:-$kept/pictures}" || status=1
fi
alive "$publisher_pid" || { tail -5 "$folder/feed.log" >&2; status=1; }
if [[ ${KEEP:-} == 1 ]]; then
    if [[ $drawing == yes ]]; then
        "${draw[@]}" --seconds 300 --serve 9>&- &
        pids+=($!)
        disown $!
    fi
    say "running until Ctrl-C; publisher http://$publisher/metrics, Prometheus $prometheus"
    while alive "$publisher_pid"; do read -rt 1 <> <(:) || true; done
fi
[[ $status != 0 ]] || say "all good; drawn: $drawing"
exit $status

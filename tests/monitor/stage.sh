# Sourced by run.sh and alerts.sh: a publisher, subscribers and a Prometheus in a temporary folder,
# on free ports of loopback, all of which are gone at the end, however that comes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
programs=$target/${PROFILE:-debug}
kept=$target/monitor
say() { echo "monitor: $*"; }
fail() { echo "monitor: $*" >&2; exit 1; }
skip() { say "SKIPPED: $*"; exit 0; }

command -v prometheus >/dev/null || skip "prometheus is not installed (tests/scripts/prepare.sh)"
command -v node >/dev/null || skip "node is not installed (tests/scripts/prepare.sh)"
for program in tapecast-publisher tapecast-subscriber; do
    [[ -x $programs/$program ]] || fail "$programs/$program is missing: build it, or set PROFILE=release"
done

# One that has ended and was not waited for is dead: within a trap nobody waits.
alive() {
    local state
    { read -r state <"/proc/$1/stat"; } 2>/dev/null && [[ ${state##*) } != Z* ]]
}

folder=$(mktemp -d -t tapecast-monitor.XXXXXX)
pids=()
clear_away() {
    trap - EXIT
    # A stopped process hears only this one, and nothing here has anything to save.
    kill -KILL "${pids[@]}" 2>/dev/null || true
    local pid
    for pid in "${pids[@]}"; do
        while alive "$pid"; do read -rt 0.05 <> <(:) || true; done
    done
    rm -rf "$folder"
}
trap clear_away EXIT
trap 'exit 130' INT TERM HUP

# For `start_prometheus`: the expressions stay as they are shipped, and only durations are shortened.
# shellcheck disable=SC2034
FASTER='s/^( +for:) [1-9].*/\1 2s/; s/\[1m\]/[15s]/g'

status=0
declare -A fired=()
fires() { # ALERT [MATCHERS]
    local took
    if took=$(node tests/monitor/until.mjs "$prometheus" "${fires_within:-60}" "ALERTS{alertstate=\"firing\",alertname=\"$1\"${2:+,$2}}"); then
        say "$1 fires after $took"
        fired[$1]=yes
    else
        echo "monitor: $1 DOES NOT FIRE" >&2
        status=1
    fi
}

sees_soon() { node tests/monitor/until.mjs "$prometheus" 5 "$1" >/dev/null 2>&1; }
sees() { node tests/monitor/until.mjs "$prometheus" "${fires_within:-60}" "$1" >/dev/null || fail "the stage: never $1"; }

# A port of loopback that nobody listens at now; whoever starts there tries again with another one
# when somebody else was faster. Below those that the system gives to outgoing connections.
free_port() {
    node -e '
        const free = (port) => new Promise((yes) => { const s = require("net").createServer();
            s.once("error", () => yes(false)).listen(port, "127.0.0.1", () => s.close(() => yes(true))); });
        (async () => { for (;;) { const port = 17000 + Math.floor(Math.random() * 15000);
            if (await free(port)) return console.log(port); } })();'
}

until_true() { # SECONDS WHAT COMMAND…
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [[ $SECONDS -lt $end ]] || { echo "monitor: $what did not happen" >&2; return 1; }
        read -rt 0.2 <> <(:) || true
    done
}

# Starts a program in the background; its number is in $pid, its output in the folder.
start() { # NAME PROGRAM ARGUMENT…
    local name=$1
    shift
    # Without the descriptors that a script keeps for itself.
    "$@" >"$folder/$name.log" 2>&1 </dev/null 7>&- 9>&- &
    pid=$!
    # Its end is no news.
    disown "$pid"
    pids+=("$pid")
}

get() { # URL
    node -e 'fetch(process.argv[1], { signal: AbortSignal.timeout(3000) }).then(async (answer) => {
        process.stdout.write(await answer.text()); process.exitCode = answer.ok ? 0 : 1;
    }).catch(() => { process.exitCode = 1; })' "$1"
}
answers() { get "$1" >/dev/null; }
answers_or_is_dead() { answers "$1" || ! alive "$2"; }

# Starts a publisher: its endpoint is in $publisher, its number in $publisher_pid.
start_publisher() { # NAME ARGUMENT…
    local name=$1 try within=(env)
    shift
    # Files of at most so many KiB, where a disk shall seem to be full.
    [[ -z ${file_kib_max:-} ]] || within=(bash -c 'ulimit -f "$0"; exec "$@"' "$file_kib_max")
    for try in 1 2 3; do
        publisher=127.0.0.1:$(free_port)
        start "$name" "${within[@]}" "$programs/tapecast-publisher" run --set "publisher.name=$name" --no-progress \
            --socket "$folder/$name.sock" --set "metrics.address=$publisher" "$@"
        publisher_pid=$pid
        until_true 30 "an answer of the publisher" answers_or_is_dead "http://$publisher/metrics" "$pid" || break
        alive "$pid" && return
        grep -qi "in use" "$folder/$name.log" || break
    done
    tail -5 "$folder/$name.log" >&2
    fail "the publisher did not start"
}

start_subscriber() { # PUBLISHER NAME ARGUMENT…
    local of=$1 name=$2
    shift 2
    start "$name" nice "$programs/tapecast-subscriber" tail --quiet --color never --wait-for-publisher 60 \
        --socket "$folder/$of.sock" --name "$name" "$@"
}

# Starts a Prometheus with our rules, which `edit` (a program for sed) may have made faster, over
# the endpoints given; its address is in $prometheus.
start_prometheus() { # EDIT ENDPOINT…
    local edit=$1 targets try port
    shift
    targets=$(printf '"%s",' "$@")
    mkdir -p "$folder/prometheus"
    # The example that we ship, at a scrape a second and with these targets.
    sed -E -e 's/^(  (scrape|evaluation)_interval:) .*/\1 1s/' -e 's/^(  scrape_timeout:) .*/\1 1s/' \
        -e "s/^( +- targets:) \[\"127.0.0.1:7412\"\]/\1 [${targets%,}]/" \
        configs/prometheus/prometheus.yml >"$folder/prometheus/prometheus.yml"
    for rules in configs/prometheus/*.rules.yml; do
        sed -E -e "$edit" "$rules" >"$folder/prometheus/$(basename "$rules")"
    done
    for try in 1 2 3; do
        port=$(free_port)
        prometheus=http://127.0.0.1:$port
        start prometheus prometheus --config.file="$folder/prometheus/prometheus.yml" \
            --storage.tsdb.path="$folder/prometheus/data" --web.listen-address="127.0.0.1:$port" \
            --log.level=warn
        prometheus_pid=$pid
        until_true 60 "an answer of Prometheus" answers_or_is_dead "$prometheus/-/ready" "$pid" || break
        alive "$pid" && return
    done
    tail -5 "$folder/prometheus.log" >&2
    fail "Prometheus did not start"
}

# What is tried on the booted systemd, as root; tests/systemd/run.sh brings it there, with two
# versions of the package beside it. Prints a line for each thing that has to hold, and a count.
set -uo pipefail
cd /opt/test || exit 1

unit=tapecast-publisher
config=/etc/tapecast/publisher.toml
socket=/run/tapecast/publisher.sock
export SYSTEMD_COLORS=0 SYSTEMD_PAGER='' DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
work=$(mktemp -d)
# The subscribers write there.
chmod 1777 "$work"
. ./expect.sh

value() { systemctl show "$unit" --property "$1" --value; }
is() { # PROPERTY PATTERN
    local found
    found=$(value "$1")
    echo "$1 is $found, expected $2"
    [[ $found =~ $2 ]]
}
main() { value MainPID; }
# Lines of this service's journal since `mark`, as one JSON object a line.
mark() { sleep 0.01; since=$(date '+%F %T.%6N'); }
journal() { journalctl --sync; journalctl --unit "$unit" --since "$since" --output json "$@"; }
says() { # PATTERN [PRIORITY]: a pattern that begins with ^ is for a whole line's begin
    local pattern="\"MESSAGE\":\"[^\"]*$1"
    [[ $1 != ^* ]] || pattern="\"MESSAGE\":\"${1#^}"
    journal --output-fields MESSAGE,PRIORITY | grep -E "$pattern" >"$work/said" ||
        { echo "nothing says $1:"; journal --output cat; return 1; }
    cat "$work/said"
    [[ -z ${2:-} ]] || grep -q "\"PRIORITY\":\"$2\"" "$work/said"
}
set_key() { # SECTION LINE: puts a line into a section that is there
    sed -i "s|^\[$1\]\$|[$1]\n$2|" "$config"
}

as() { # USER COMMAND…
    runuser -u "$1" -- "${@:2}"
}
# A subscriber that reads on until it is told to end, and notes what befalls it.
follow() { # NAME USER
    as "$2" tapecast-subscriber tail --name "$1" --socket "$socket" --json --levels 1 \
        >"$work/$1.json" 2>"$work/$1.events" &
    followers+=("$1")
}
followers=()
lines() { wc -l <"$work/$1.json"; }
reads_on() { # NAME LINES
    echo "$1 has $(lines "$1") lines, $2 before"
    [[ $(lines "$1") -gt $2 ]]
}
all_read() { # whether each gets something new
    local name before
    for name in "${followers[@]}"; do
        before=$(lines "$name")
        soon reads_on "$name" "$before" || return
    done
}
# They read on, and never had to attach again.
sessions_stay() {
    all_read || return
    fails grep 'attached again' "$work"/*.events
}
subscribers() { is StatusText "^$1 subscribers?, "; }
# Device and inode of the ring that a process has mapped.
ring() { # PID
    awk '/memfd:tapecast-region/ && !seen[$4 " " $5]++ { print $4, $5 }' "/proc/$1/maps" | sort | head -n 1
}
same_ring() {
    local pid found
    echo "the ring was $kept, the publisher has $(ring "$(main)")"
    [[ -n $kept && $(ring "$(main)") == "$kept" ]] || return
    for pid in $(pgrep -x tapecast-subscr); do
        found=$(ring "$pid")
        echo "subscriber $pid has $found"
        [[ $found == "$kept" ]] || return
    done
}
# What each follower read of the last life began with each instrument's first snapshot, without a
# gap, and with nothing left out: no image stands for what it has missed.
from_the_first() {
    local name
    for name in "${followers[@]}"; do
        grep -c 'attached again' "$work/$name.events"
        perl -ne '
            BEGIN { our (%next, $epoch, $bad); }
            next unless /"symbol":"(\w+)".*"epoch":"(\d+)".*"instrument_sequence":(\d+).*"conflated_count":(\d+)/;
            my ($symbol, $life, $number, $conflated) = ($1, $2, $3, $4);
            our (%next, $epoch, $bad, $lives);
            if (!defined $epoch || $life ne $epoch) { $epoch = $life; %next = (); $lives++; }
            # In the first life it came late, and began with an image.
            my $expected = $next{$symbol} // ($lives == 1 ? $number : 1);
            if ($number != $expected || $conflated && $lives > 1) {
                print "$symbol in life $lives: $number (conflated $conflated), expected $expected\n";
                $bad = 1;
            }
            $next{$symbol} = $number + 1;
            END { our ($bad, $lives); print "'"$name"': $lives lives\n"; $? = $bad || $lives < 2; }
        ' "$work/$name.json" || return
    done
}
new_main() { echo "main process $(main), was $1"; [[ $(main) -gt 0 && $(main) != "$1" ]] && is ActiveState active; }

installs() {
    # An index of all manual pages after each step would take longer than everything here.
    rm -f /var/lib/man-db/auto-update
    useradd --create-home --groups users alice
    useradd --create-home bob
    useradd --create-home mallory
    mark
    run dpkg --install first.deb
    expect 'the package installs' ended_with 0
    expect 'its service starts with it' is ActiveState '^active$'
    expect 'and with the machine' systemctl is-enabled "$unit"
    expect 'it runs as a user of its own' test "$(ps -o user= -p "$(main)")" = tapecast
    expect 'the ring is kept by systemd' is NFileDescriptorStore '^1$'
    usermod -aG tapecast-subscribers alice
    usermod -aG tapecast-subscribers bob
    # Few and slow enough for readers that write everything down.
    set_key source 'synthetic = { instruments = 5, steady_rate = 400, burst_ms = 0, quiet_every_s = 0 }'
    mark
    expect 'it starts again' systemctl restart "$unit"
    run as alice tapecast-subscriber tail --count 5 --socket "$socket"
    expect 'a subscriber can attach as soon as the start is over' ended_with 0
    expect 'the journal has the fields of its lines' eval 'journal | grep -q "\"TAPECAST_EPOCH\":\"[0-9]"'
    expect 'and their priorities' says '^publishing' 6
    expect 'the lifecycle gate holds: exposure at most 2.0' \
        systemd-analyze security --threshold=20 "$unit"
    run grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$(main)/status"
    expect 'it has no rights, and can gain none' test \
        "$(tr -d '\t\n' <"$work/printed")" = CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1Seccomp:2
}

serves() {
    follow one alice
    follow two bob
    expect 'two users of the group attach and read' all_read
    expect 'the status counts them, and what is published' soon is StatusText '^2 subscribers, [1-9][0-9,]* snapshots/s$'
    run systemctl status "$unit"
    expect 'systemctl status shows that' printed 'Status: "2 subscribers, '
    run as mallory tapecast-subscriber tail --count 1 --socket "$socket"
    expect 'a user who is not in the group is refused' ended_with 1
    expect 'with a sentence' printed 'refused: .*uid .* may not attach: have its user, or a group of it, added'
}

reloads() {
    local before
    before=$(main)
    cp "$config" "$work/good.toml"
    mark
    set_key shm 'ring_bytes = "32 MiB"'
    set_key access 'stall_max_s = 20'
    sed -i 's|^groups = .*|groups = []\nusers = ["mallory"]|' "$config"
    run systemctl reload "$unit"
    expect 'a good configuration is taken' ended_with 0
    expect 'the journal says what has changed' soon says 'changed: access.users, access.groups, access.stall_max_s' 6
    expect 'and what takes a restart' soon says '^shm.ring_bytes cannot change while running: restart to apply' 4
    run as mallory tapecast-subscriber tail --count 1 --socket "$socket"
    expect 'who was let in with it attaches' ended_with 0
    run as alice tapecast-subscriber tail --count 1 --socket "$socket"
    expect 'who was shut out does not' ended_with 1
    expect 'sessions stay' sessions_stay
    expect 'the publisher is the same' test "$(main)" = "$before"

    echo 'nonsense = 1' >>"$config"
    mark
    run systemctl reload "$unit"
    expect 'a broken configuration makes the reload fail' fails ended_with 0
    expect 'the journal names what is broken' soon says 'access.nonsense' 3
    expect 'the publisher was not asked' fails says '^SIGHUP'
    systemctl kill --signal HUP --kill-who main "$unit"
    expect 'asked all the same, it stays with the last good one' \
        soon says '^SIGHUP: the configuration cannot be used, the last good one stays: .*access.nonsense' 3
    run as mallory tapecast-subscriber tail --count 1 --socket "$socket"
    expect 'which is in use' ended_with 0
    expect 'it stays active' is ActiveState '^active$'
    expect 'it was never started again' is NRestarts '^0$'
    cp "$work/good.toml" "$config"
    expect 'the good one can be had back' systemctl reload "$unit"
}

# The drop-ins for RDMA and certificates, with the check in the publisher's place: it reads the
# certificates as the publisher does, and needs no device.
certificates() {
    local folder=/etc/systemd/system check=tapecast-check
    tapecast-publisher certificates --out /etc/tapecast/tls --server 127.0.0.1 >/dev/null
    printf '[fabric]\nkind = "verbs"\n[tls]\nmode = "on"\n' >/etc/tapecast/verbs.toml
    sed -e '/^ExecReload/d' -e 's|^Type=.*|Type=oneshot|' -e 's|^Restart=.*|Restart=no|' \
        -e 's|^ExecStart=.*|ExecStart=/usr/bin/tapecast-publisher check-config -c /etc/tapecast/verbs.toml|' \
        -e '/^RuntimeDirectory/d' "/lib/systemd/system/$unit.service" >"$folder/$check.service"
    mkdir "$folder/$check.service.d"
    cp /usr/share/doc/tapecast/drop-ins/{rdma,tls}.conf "$folder/$check.service.d"
    systemctl daemon-reload
    expect 'a key that only root can read is had as a credential' systemctl start "$check"
    expect 'and read from there' eval \
        "journalctl --unit $check --output cat | grep -F 'key = \"/run/credentials/$check.service/server.key\"'"
    printf '[tls]\nmode = "on"\ncertificate = "%s.pem"\nkey = "%s.key"\nclient_ca = "%s"\n[fabric]\nkind = "verbs"\n' \
        /etc/tapecast/tls/server /etc/tapecast/tls/server /etc/tapecast/tls/ca.pem >/etc/tapecast/verbs.toml
    rm "$folder/$check.service.d/tls.conf"
    systemctl daemon-reload
    expect 'without that it cannot be read' fails systemctl start "$check"
    expect 'and its name is told' eval "journalctl --unit $check --output cat | grep -F 'tls.key: cannot read'"
    rm -r "$folder/$check.service" "$folder/$check.service.d" /etc/tapecast/tls /etc/tapecast/verbs.toml
    systemctl daemon-reload
}

# Everything that makes systemd start it again, with the readers reading on.
comes_back() { # WHAT PID
    expect "$1: another process serves" soon new_main "$2"
    expect "$1: both subscribers are back" soon subscribers 2
    expect "$1: they read on" all_read
    expect "$1: in the same ring" same_ring
    expect "$1: from the first snapshot on, nothing left out" from_the_first
}

crashes() {
    local before
    before=$(main) kept=$(ring "$(main)")
    mark
    kill -KILL "$before"
    comes_back 'kill -9' "$before"
    before=$(main)
    kill -ABRT "$before"
    comes_back 'a crash' "$before"
}

hangs() {
    local before holder
    before=$(main) kept=$(ring "$(main)")
    mark
    ./hold-thread.pl "$before" tapecast-sender >"$work/held" 2>&1 &
    holder=$!
    expect 'the sender thread alone is stopped' soon grep -q held "$work/held"
    expect 'the others live' fails grep -q '^State:.T' "/proc/$before/status"
    expect 'systemd notices that the sender hangs' soon says 'Watchdog timeout'
    comes_back 'hung sender' "$before"
    kill "$holder" 2>/dev/null
    wait "$holder"

    watchdog 2s
    # A message a second: the watchdog must not take that for a hang.
    sed -i 's|^steady_rate = .*|steady_rate = 1\nhalt_every_s = 0|' "$config"
    before=$(main)
    systemctl restart "$unit"
    comes_back 'restart' "$before"
    mark
    sleep 5
    expect 'an idle market is no hang' fails says 'Watchdog timeout'
    sed -i 's|^steady_rate = .*|steady_rate = 400|' "$config"
    before=$(main)
    systemctl restart "$unit"
    expect 'it is restarted' soon new_main "$before"
    all_read

    before=$(main)
    mark
    kill -STOP "$before"
    expect 'systemd notices that the process hangs' soon says 'Watchdog timeout'
    comes_back 'hung process' "$before"
    systemctl reset-failed "$unit"
}

watchdog() { # TIME: from the next start on
    mkdir -p "/etc/systemd/system/$unit.service.d"
    printf '[Service]\nWatchdogSec=%s\n' "$1" >"/etc/systemd/system/$unit.service.d/watchdog.conf"
    systemctl daemon-reload
}

upgrades() {
    local before
    before=$(main) kept=$(ring "$(main)")
    cp "$config" "$work/kept.toml"
    mark
    run dpkg --install second.deb
    expect 'a newer version installs' ended_with 0
    expect 'it is the newer one' test "$(dpkg-query -W -f '${Version}' tapecast)" = "$(cat second.version)"
    expect 'the configuration stays' cmp "$config" "$work/kept.toml"
    comes_back 'upgrade' "$before"
    expect 'the old one ended in order' says 'closing: the publisher was stopped' 6
}

stops() {
    local began
    # The publisher gives a subscriber that it waits for two seconds to read what is queued.
    set_key shm 'ring_bytes = "64 KiB"'
    set_key access 'lossless = true'
    watchdog 1s
    systemctl restart "$unit"
    as alice tapecast-subscriber tail --quiet --policy lossless --name stuck --socket "$socket" \
        >/dev/null 2>&1 &
    soon subscribers 3
    pkill -STOP -f 'tapecast-subscriber tail --quiet'
    expect 'a lossless subscriber that stops, stops everybody' soon is StatusText ' 0 snapshots/s$'
    mark
    began=${EPOCHREALTIME/./}
    expect 'it stops' systemctl stop "$unit"
    expect 'that took longer than the watchdog waits' test $((${EPOCHREALTIME/./} - began)) -gt 1200000
    expect 'it was in order all the same' is Result '^success$'
    # With the runuser that has stopped beside it.
    pkill -KILL -f 'tapecast-subscriber tail --quiet'
    expect 'it says so' says 'closing: the publisher was stopped' 6
    expect 'its folder is gone, and the socket with it' test ! -e /run/tapecast
    expect 'systemd holds no ring' is NFileDescriptorStore '^0$'
    expect 'subscribers were told' grep -q 'the publisher was stopped' "$work/one.events"
    pkill -INT -x tapecast-subscr
    wait
    expect 'no process is left' fails pgrep tapecast
    run dpkg --install second.deb
    expect 'what was stopped stays stopped over an upgrade' is ActiveState '^inactive$'
    expect 'it starts' systemctl start "$unit"
}

goes() {
    local found
    run dpkg --remove tapecast
    expect 'it is removed' ended_with 0
    expect 'the service is stopped with it' fails pgrep tapecast
    expect 'the unit is gone' test ! -e "/lib/systemd/system/$unit.service"
    expect 'the configuration stays until a purge' test -e "$config"
    rm -r "/etc/systemd/system/$unit.service.d"
    run dpkg --purge tapecast
    expect 'it is purged' ended_with 0
    expect 'without a word of what could not be removed' fails printed 'not empty|not removed'
    found=$(find /etc /run /srv /tmp /var /dev/shm -xdev \
        \( -path /var/lib/dpkg -o -path "$work" \) -prune -o \
        \( -user tapecast -o -group tapecast -o -group tapecast-subscribers -o -name '*tapecast*' \) -print
        find /usr/bin /usr/lib/systemd /usr/lib/sysusers.d /usr/share -xdev -name '*tapecast*' -print)
    expect 'no file of it is left' test -z "$found"
    [[ -z $found ]] || sed 's/^/    /' <<<"$found"
}

for part in installs serves reloads certificates crashes hangs upgrades stops goes; do
    began=$SECONDS
    "$part"
    echo "    ($part: $((SECONDS - began)) s)"
done
echo "systemd: $passed passed, $failed failed"
[[ $failed -eq 0 ]]

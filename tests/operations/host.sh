# One of the machines of run.sh: does what OPERATIONS.md says for the hosts named, when it is its turn,
# and then looks at what came of it (checks.sh).
#   host.sh FOLDER HOST…     FOLDER is shared by both machines
set -uo pipefail
folder=$1
shift
hosts=" $* " name=$1
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
export SYSTEMD_COLORS=0 SYSTEMD_PAGER='' DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
unit=tapecast-publisher config=/etc/tapecast/publisher.toml
work=$(mktemp -d)
chmod 1777 "$work"
. "$here/../scripts/expect.sh"
# They are slow.
soon_s=90

# The machines have no ssh between them; what is copied goes through the folder.
scp() {
    local to=${*: -1}
    cp "${@:1:$#-1}" "$folder/${to%:}/"
}
export -f scp
export folder

# Their two processors are those of one machine here: the feed leaves some of that to the others.
restrain() {
    mkdir -p "/etc/systemd/system/$unit.service.d"
    printf '[Service]\nCPUQuota=80%%\n' >"/etc/systemd/system/$unit.service.d/emulated.conf"
}
# alice is who uses P, desk who uses S; each has been copied what scp says.
settle() {
    restrain
    # There is no network to fetch from, and reading the lists takes an emulated machine minutes; so
    # does an index of all manual pages.
    rm -rf /var/lib/apt/lists/* /var/lib/man-db/auto-update
    useradd --create-home alice
    useradd --create-home desk
    cp "$folder"/package/*.deb /root/
    ulimit -l 8192
}
arrive() {
    cp "$folder"/S/* /home/desk/ 2>/dev/null && chown desk: /home/desk/*
    cp "$folder"/M/* /root/ 2>/dev/null
    return 0
}
user_of() { case $1 in P) echo alice ;; *) echo desk ;; esac; }

in_background=()
follow() { # HOST COMMAND
    local number=${#in_background[@]}
    (cd /home/desk && exec runuser -u "$(user_of "$1")" -- bash -c "exec $2") \
        >"$work/follower-$number" 2>"$work/follower-$number.errors" </dev/null &
    in_background+=($!)
    soon test -s "$work/follower-$number" || { cat "$work/follower-$number.errors"; return 1; }
}

perform() { # HOST PROMPT COMMAND; what the page does not spell out is done before
    case $3 in
    # Without a count it goes on until Ctrl-C.
    *stats\ --connect*) follow "$1" "$3"; return ;;
    # Not before the service has had a moment to publish.
    *'tapecast-subscriber stats --socket'*) soon systemctl is-active "$unit" || return ;;
    'systemctl restart tapecast-publisher') edit_configuration ;;
    'promtool check config'*) cp "$folder/prometheus.yml" /etc/prometheus/ ;;
    'promtool query'*) soon bash -c "$3 | grep -q ." || return ;;
    # It is installed here already, from where the page would get it.
    'apt install prometheus') dpkg-query -W prometheus; return ;;
    esac
    if [[ $2 == '#' ]]; then
        (cd /root && bash -c "$3")
    else
        (cd "/home/$(user_of "$1")" && runuser -u "$(user_of "$1")" -- bash -c "$3")
    fi
    local status=$?
    [[ $3 != systemctl* || $status -eq 0 ]] || journalctl --unit "$unit" --output cat --lines 20
    # It tells of faults by its status, and an emulated card has some.
    [[ $3 == *doctor* && $status -eq 1 ]] || return $status
}
# The page shows the whole file first, and then what becomes of its [metrics].
edit_configuration() {
    [[ -e $work/edited ]] || { cp "$folder/1.toml" "$config"; touch "$work/edited"; return; }
    sed -i '/^\[metrics\]/,/^$/d' "$config"
    echo >>"$config"
    cat "$folder/2.toml" >>"$config"
}

settle
number=0
while IFS=$'\t' read -r -u 3 host prompt command; do
    number=$((number + 1))
    if [[ $hosts == *" $host "* ]]; then
        arrive
        expect "$host$prompt $command" perform "$host" "$prompt" "$command"
        sed 's/^/        /' "$work/expect" | cut -c1-160 | sed -n "1,${SHOWN:-12}p"
        touch "$folder/done/$number"
    else
        until test -e "$folder/done/$number"; do sleep 0.2; done
    fi
done 3<"$folder/commands"
. "$here/checks.sh"
echo "$passed" >"$folder/passed-$name"
echo "$failed" >"$folder/failed-$name"
[[ $failed -eq 0 ]]

# Sourced after stage.sh: what draws dashboards. `drawing` says whether this machine can.

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

drawing=no
! can_draw || drawing=yes

draw() { # ARGUMENT…
    node tests/monitor/draw.mjs --prometheus "$prometheus" --page "$kept/page" --modules "$kept" \
        --instance "$publisher" "$@"
}
draws() { # FOLDER, in what is kept, ARGUMENT…
    [[ $drawing == no ]] || draw --seconds 30 --pictures "${PICTURES:-$kept/$1}" "${@:2}"
}

#!/usr/bin/env bash
# Runs every fuzz target for RUNS inputs (default 200,000) with coverage guidance, on the stable
# toolchain: libFuzzer needs only LLVM's coverage pass, and debug assertions stay on. Targets that work
# on sockets or files get a part of RUNS, so that all take about as long; what each got is printed.
# A new finding is written to target/fuzz/artifacts and printed. Corpora are kept in target/fuzz/corpus.
# tests/fuzz/README.md says what each target covers.
#   fuzz.sh [RUNS] [TARGET…]
set -euo pipefail
cd "$(dirname "$0")/../.."
runs=${1:-200000}
shift || true

host=$(rustc -vV | sed -n 's/^host: //p')
# Link-time optimisation would cost minutes here and find nothing.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/fuzz"
llvm=(level=4 inline-8bit-counters pc-table trace-compares)
RUSTFLAGS="-Cpasses=sancov-module -Cdebug-assertions -Coverflow-checks --cfg fuzzing"
for option in "${llvm[@]}"; do RUSTFLAGS+=" -Cllvm-args=-sanitizer-coverage-$option"; done
export RUSTFLAGS

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\(fuzz-.*\)"$/\1/p' tests/Cargo.toml)
fi
cargo build -q --release --target "$host" -p tapecast-tests --features fuzz \
    $(printf -- '--bin %s ' "${targets[@]}")

# What part of RUNS a target gets: what is only parsed takes a microsecond, a file fifty of them, a
# socket some hundred, and TLS more than a thousand.
runs_of() {
    local part=1
    case $1 in
        fuzz-handshake | fuzz-client | fuzz-certificates | fuzz-config) part=10 ;;
        fuzz-recovery) part=4 ;;
        fuzz-handshake-tcp) part=20 ;;
        fuzz-handshake-tls) part=100 ;;
    esac
    echo $(((runs + part - 1) / part))
}

# Bytes of an input: scripts of operations are best short.
bytes_of() { case $1 in fuzz-handshake*) echo 512 ;; *) echo 8192 ;; esac; }

for target in "${targets[@]}"; do
    inputs=$(runs_of "$target")
    corpus="$CARGO_TARGET_DIR/corpus/$target" artifacts="$CARGO_TARGET_DIR/artifacts/$target/"
    mkdir -p "$corpus" "$artifacts"
    seeds=()
    [ -d "tests/fuzz/seeds/$target" ] && seeds=("tests/fuzz/seeds/$target")
    start=$SECONDS
    if ! "$CARGO_TARGET_DIR/$host/release/$target" "$corpus" "${seeds[@]}" -runs="$inputs" \
        -max_len="$(bytes_of "$target")" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 \
        -artifact_prefix="$artifacts" >"$artifacts/log" 2>&1; then
        tail -n 40 "$artifacts/log"
        echo "fuzz: $target failed; the input is in $artifacts"
        exit 1
    fi
    echo "fuzz: $target: $inputs inputs, $((SECONDS - start)) s, $(grep -oE 'cov: [0-9]+' "$artifacts/log" | tail -n 1)"
done

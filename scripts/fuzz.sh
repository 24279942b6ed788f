#!/usr/bin/env bash
# Fuzzes one target or all, one after the other, with libFuzzer on the stable toolchain. `make fuzz` calls it.
#
#   TARGET        the target; all without one
#   SECONDS_EACH  how long each runs
#   FUZZ_FLAGS    what the compiler needs to report coverage
#   JOBS_DIR      where new inputs and failures go (.cache/fuzz)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly folder=${JOBS_DIR:-.cache/fuzz}
readonly triple=$(rustc -vV | sed -n 's/^host: //p')
readonly built=${CARGO_TARGET_DIR:-target}/fuzz

command -v c++ >/dev/null || { echo "fuzz: a C++ compiler is needed for libFuzzer" >&2; exit 1; }
# A target triple keeps the flags from build scripts and macros.
RUSTFLAGS="$FUZZ_FLAGS" cargo build --release --locked --quiet -p frond-fuzz --features libfuzzer \
    --config 'profile.release.lto="off"' --config 'profile.release.debug=0' --target "$triple" --target-dir "$built" || exit 1
# Without the feature the program lists the targets, and repeats failures.
cargo build --locked --quiet -p frond-fuzz || exit 1
readonly plain=${CARGO_TARGET_DIR:-target}/debug/frond-fuzz
names=${TARGET:-$("$plain" 2>&1 | awk '/^  / { print $1 }')}

failed=0
for name in $names; do
    kept=$folder/$name
    mkdir -p "$kept"
    printf '\n== fuzz %s for %s s\n' "$name" "$SECONDS_EACH"
    "$plain" --write-inputs "$name" "$kept" || exit 1
    if ! FROND_FUZZ_TARGET=$name "$built/$triple/release/frond-fuzz" "$kept" \
        -artifact_prefix="$folder/$name-" -max_total_time="$SECONDS_EACH" -max_len=65536 -timeout=25 \
        -rss_limit_mb=4096 -print_final_stats=1 >"$folder/$name.log" 2>&1; then
        failed=$((failed + 1))
        printf '== %s failed\n' "$name"
        grep -aE 'panicked at|ERROR|memory for|Test unit written' "$folder/$name.log" | head -20
    fi
    grep -aE 'number_of_executed_units|average_exec_per_sec|new_units_added|peak_rss_mb' "$folder/$name.log"
done
exit $((failed > 0))

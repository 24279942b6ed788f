#!/usr/bin/env bash
# Runs every check and every suite, continues after a failure, and ends with the totals:
# "N passed, M failed". Exits with 0 only if nothing failed. `make test` calls it after set-up.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly logs=.cache/test
passed=0
failed=0
times=()

mkdir -p "$logs"
rm -f .cache/test-summary "$logs"/*.log

# The programs with the tests: without them, dependencies have other features, and half of everything is compiled once more.
build() {
    cargo build --workspace --bins --tests --locked --quiet
}

# Runs one check that passes or fails as a whole: check NAME COMMAND...
check() {
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    if "$@" 2>&1 | tee "$logs/$name.log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '== %s failed\n' "$name"
    fi
    times+=("$name $((SECONDS - began)) s")
}

# Runs one suite that counts its own tests: suite NAME COUNTER COMMAND...
# COUNTER reads the suite's output and prints "PASSED FAILED".
suite() {
    local name=$1 counter=$2 began=$SECONDS log status=0 counts
    shift 2
    log="$logs/$name.log"
    printf '\n== %s\n' "$name"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    counts=$("$counter" <"$log")
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
    # A suite that stopped before it could count its failure has failed all the same.
    if [ "$status" -ne 0 ] && [ "${counts#* }" -eq 0 ]; then
        failed=$((failed + 1))
        printf '== %s failed with status %s\n' "$name" "$status"
    fi
    times+=("$name $((SECONDS - began)) s")
}

count_cargo() {
    awk '/^test result: / { for (i = 2; i <= NF; i++) {
             if ($i ~ /^passed/) p += $(i - 1); if ($i ~ /^failed/) f += $(i - 1) } }
         END { print p + 0, f + 0 }'
}

count_clients() {
    awk '/^clients: [0-9]+ passed, [0-9]+ failed$/ { p = $2; f = $4 } END { print p + 0, f + 0 }'
}

count_differential() {
    awk '/^differential: [0-9]+ passed, [0-9]+ failed$/ { p = $2; f = $4 } END { print p + 0, f + 0 }'
}

count_console() {
    awk '/^console: [0-9]+ passed, [0-9]+ failed$/ { p = $2; f = $4 } END { print p + 0, f + 0 }'
}

count_cluster() {
    awk '/^cluster: [0-9]+ passed, [0-9]+ failed$/ { p = $2; f = $4 } END { print p + 0, f + 0 }'
}

count_packages() {
    awk '/^packages: [0-9]+ passed, [0-9]+ failed$/ { p = $2; f = $4 } END { print p + 0, f + 0 }'
}

count_soak() {
    awk '/^soak: [0-9]+ passed, [0-9]+ failed$/ { p = $2; f = $4 } END { print p + 0, f + 0 }'
}

# A short share of `make soak`, in a memory group where one can be made: SERVER
short_soak() {
    local group status=0 arguments=(--server "$1" --out .cache/soak-test --seconds 20 --kill-every 6 --documents 2000 --seed 1)
    if group=$(. scripts/lib/memory-cgroup.sh && cgroup_make "frond-soak-test-$$" 512 2>/dev/null); then
        arguments+=(--cgroup "$group")
    fi
    .cache/clients/venv/bin/python tests/soak/soak.py "${arguments[@]}" || status=$?
    [ -z "$group" ] || (. scripts/lib/memory-cgroup.sh && cgroup_remove "$group")
    return "$status"
}

# Repeats what the logs say of failures, in at most 60 lines, and then only the names, in at most 10:
# where the output is cut, its end still says what failed.
print_failures() {
    local log
    printf '\n== failures\n'
    for log in "$logs"/*.log; do
        awk -v name="$(basename "$log" .log)" '
            /^not ok |^---- .* stdout ----$|^failed |panicked at |^error(\[|:)/ { show = 8 }
            /^ok |^test .* ok$/ { show = 0 }
            show > 0 { print name ": " substr($0, 1, 300); show-- }' "$log"
    done | head -n 60
    printf '\n== failed\n'
    for log in "$logs"/*.log; do
        awk -v name="$(basename "$log" .log)" \
            '/^not ok |^test .* FAILED$|^failed / { print name ": " substr($0, 1, 100) }' "$log"
    done | head -n 10
}

check format cargo fmt --all -- --check
check clippy cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
check dependencies scripts/deny.sh
check build build
suite rust count_cargo cargo test --workspace --locked --no-fail-fast
if build; then
    suite clients count_clients \
        .cache/clients/venv/bin/python tests/clients/run.py --server target/debug/frond
    # Always the same rounds: what a change breaks, not what luck finds. `make differential` goes on.
    suite differential count_differential \
        node tests/differential/run.mjs --server target/debug/frond --seed test --rounds 250
    # Most of it is in `make test-cluster`.
    suite cluster count_cluster .cache/clients/venv/bin/python tests/cluster/run.py --server target/debug/frond --short
    suite console count_console .cache/console/bin/python tests/console/run.py --server target/debug/frond
    # A debug build is larger than what packages allow.
    suite packages count_packages .cache/clients/venv/bin/python tests/packages/run.py --server target/debug/frond \
        --bytes-max 250000000
    suite soak count_soak short_soak target/debug/frond
else
    failed=$((failed + 1))
fi

[ "$failed" -eq 0 ] || print_failures
printf '\ntook: %s\n' "$(printf '%s, ' "${times[@]}" | sed 's/, $//')"
printf '%d passed, %d failed\n' "$passed" "$failed" | tee .cache/test-summary
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# One workload on Frond's engine and on four others, side by side.
#
#   scripts/bench-engine.sh [--quick] OUT
#
# Each measurement is a process of its own, and the engines take turns. In the mode "limited" it is in a
# memory cgroup (as root), in the mode "memory" everything fits into the cache. OUT gets records.jsonl,
# log.txt, summary.md, curves.csv and charts. --quick is a smoke run. From the environment:
#
#   ENGINES             tree rocksdb lmdb fjall redb
#   MODES               limited memory
#   DOCUMENTS           12000000   documents in the mode "limited"
#   MEMORY_DOCUMENTS    2000000    documents in the mode "memory"
#   AGEING_DOCUMENTS    2000000    documents of the stores that are aged; 0 for none of them
#   AGEING              delete replace range   what is done to them
#   THREADS             1 2 4      threads in the mode "memory"
#   ROUNDS              1          repetitions of all; the report has the median
#   MEMORY_MIB          512        limit of the cgroup; 0 for none
#   SECONDS_EACH        10         length of each timed phase
#   MEASURE_OPTIONS                more options for each measurement, such as "--write-seconds 600"
#   DATA                           folder for the stores [default: a temporary one beside OUT]
set -euo pipefail

usage() { sed -n '2,24s/^# \{0,1\}//p' "$0"; exit 2; }
quick=no
if [ "${1:-}" = --quick ]; then quick=yes; shift; fi
[ $# -eq 1 ] || usage
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

if [ "$quick" = yes ]; then
    : "${DOCUMENTS:=200000}" "${MEMORY_DOCUMENTS:=200000}" "${AGEING_DOCUMENTS:=50000}"
    : "${THREADS:=1 2}" "${SECONDS_EACH:=1}"
fi
read -ra engines <<<"${ENGINES:-tree rocksdb lmdb fjall redb}"
read -ra modes <<<"${MODES:-limited memory}"
read -ra ageing <<<"${AGEING-delete replace range}"
read -ra threads <<<"${THREADS:-1 2 4}"
read -ra measure_options <<<"${MEASURE_OPTIONS:-}"
documents=${DOCUMENTS:-12000000}
memory_documents=${MEMORY_DOCUMENTS:-2000000}
ageing_documents=${AGEING_DOCUMENTS:-2000000}
memory_mib=${MEMORY_MIB:-512}

scripts/setup.sh build bench
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/bench-engine}
cargo build --release --locked --manifest-path benchmarks/engine/Cargo.toml
binary=$CARGO_TARGET_DIR/release/frond-bench-engine
# RocksDB's manual recommends jemalloc; the engines in Rust have their own allocator.
jemalloc=$(ldconfig -p | awk '/libjemalloc\.so/ { print $NF; exit }')

data=${DATA:-$(mktemp -d "$out.data-XXXXXX")}
mkdir -p "$data"
group= child=
clean_up() {
    [ -z "$child" ] || kill "$child" 2>/dev/null || true
    [ -z "$child" ] || wait "$child" || true
    [ -z "$group" ] || cgroup_remove "$group"
    rm -rf "$data/store"
    [ -n "${DATA:-}" ] || rm -rf "$data"
}
trap clean_up EXIT

failures=0
# Measures in a process of its own: measure ENGINE MODE SCENARIO DOCUMENTS ROUND OPTIONS...
measure() {
    local engine=$1 mode=$2 scenario=$3 count=$4 round=$5 status=0 command
    shift 5
    command=("$binary" measure --engine "$engine" --mode "$mode" --scenario "$scenario"
        --documents "$count" --round "$round" --folder "$data/store" --records "$out/records.jsonl"
        --seconds "${SECONDS_EACH:-10}" "${measure_options[@]}" "$@")
    if [ "$engine" = rocksdb ] && [ -n "$jemalloc" ]; then
        command=(env "LD_PRELOAD=$jemalloc" "${command[@]}")
    fi
    rm -rf "$data/store"
    if [ "$mode" = limited ] && [ "$memory_mib" -gt 0 ]; then
        group=$(cgroup_make "frond-engine-$$" "$memory_mib") || {
            echo "no memory cgroup can be made here: run as root, or with MEMORY_MIB=0" >&2
            exit 1
        }
        (cgroup_exec "$group" "${command[@]}") 2> >(tee -a "$out/log.txt" >&2) &
    else
        "${command[@]}" 2> >(tee -a "$out/log.txt" >&2) &
    fi
    child=$!
    wait "$child" || status=$?
    child=
    if [ "$status" -ne 0 ]; then
        failures=$((failures + 1))
        printf '%s\n' "$engine $mode $scenario ended with status $status, killed for its memory:" \
            "$([ -z "$group" ] && echo no || cgroup_oom_kills "$group")" | tee -a "$out/log.txt" >&2
        failed+=("$engine, $mode, $scenario: ended early with status $status")
    fi
    if [ -n "$group" ]; then cgroup_remove "$group"; group=; fi
    rm -rf "$data/store"
}

failed=()
rm -f "$out/records.jsonl" "$out/log.txt"
for round in $(seq "${ROUNDS:-1}"); do
    for mode in "${modes[@]}"; do
        if [ "$mode" = limited ]; then
            for engine in "${engines[@]}"; do
                measure "$engine" limited main "$documents" "$round"
            done
            [ "$ageing_documents" -gt 0 ] || continue
            for scenario in "${ageing[@]}"; do
                for engine in "${engines[@]}"; do
                    # The others have no deletion of a range.
                    [ "$scenario" != range ] || [[ "$engine" =~ ^(tree|rocksdb)$ ]] || continue
                    measure "$engine" limited "$scenario" "$ageing_documents" "$round"
                    measure "$engine" limited "$scenario-fresh" "$ageing_documents" "$round"
                done
            done
        else
            for engine in "${engines[@]}"; do
                measure "$engine" memory main "$memory_documents" "$round" \
                    --read-threads "$(IFS=,; echo "${threads[*]}")"
            done
            for count in "${threads[@]}"; do
                [ "$count" -ne 1 ] || continue
                for engine in "${engines[@]}"; do
                    measure "$engine" memory load "$memory_documents" "$round" --threads "$count"
                done
            done
        fi
    done
done

notes=(
    "commit: $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', changed')"
    "date: $(date -u '+%Y-%m-%d %H:%M UTC')"
    "compiler: $(rustc --version)"
    "file system of the stores: $(stat -f -c %T "$data")"
    "memory limit in the mode limited: $memory_mib MiB (cgroup, page cache included)"
    "documents: $documents limited, $memory_documents in memory, $ageing_documents aged"
    "seconds for a timed phase: ${SECONDS_EACH:-10}; repetitions: ${ROUNDS:-1}"
    "further options: ${measure_options[*]:-none}"
    "${failed[@]}"
)
arguments=()
for note in "${notes[@]}"; do arguments+=(--note "$note"); done
"$binary" report --records "$out/records.jsonl" --out "$out" "${arguments[@]}"
echo "$out/summary.md"
[ "$failures" -eq 0 ]

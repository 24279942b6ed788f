#!/usr/bin/env bash
# The workloads of `frond bench` on Frond and on PostgreSQL, side by side, in one report.
#
#   benchmarks/peers/run.sh OUT
#
# Builds, starts both servers in memory cgroups of the same limit (as root), lets them take turns, samples
# their memory each second, and stops them. OUT gets the report of `frond bench all`, memory.csv, the
# servers' logs and run.md. With the defaults it takes about an hour on 2 cores. From the environment:
#
#   WORKLOADS             insert multikey manykeys sysbench indexcost groups; also rolling, counters, everyday, mixed
#   MEMORY_MIB            512        limit of each cgroup; 0 for none
#   MINUTES               8          a workload on a server ends after this much of its own time
#   SCALE                 1          all sizes below times this, such as 0.01 for a trial
#   INSERT_DOCUMENTS      10000000   W1: documents
#   MULTIKEY_DOCUMENTS    400000     W2: documents, each with an array of 100 strings
#   MANYKEYS_DOCUMENTS    3000       W3: documents, each with 20,000 keys
#   SYSBENCH_DOCUMENTS    650000     W4: documents in each of 16 collections
#   INDEXCOST_DOCUMENTS   1000000    W5: documents, without the index and with it
#   GROUPS_DOCUMENTS      10000000   W6: documents
#   ROLLING_RETENTION     60         W7: seconds that a document stays; the run takes four times as long on each server
#   COUNTERS_DOCUMENTS    50000000   W8: counters
#   EVERYDAY_DOCUMENTS    1000000    W9: documents
#   MIXED_DOCUMENTS       4000000    W10: documents before the reads
#   INSERT_OPTIONS …                 more options for a workload, such as "--threads 4"
#   BENCH_OPTIONS                    more options for all, such as "--null --turns 10"
#   URIS                             more servers, such as "mongodb://127.0.0.1:27018/"
#   SERVER                           Frond's binary [default: target/release/frond, built first]
#   SERVER_OPTIONS                   more options for `frond serve`
#   POSTGRES_OPTIONS                 more settings for PostgreSQL, see postgres.sh
#   DATA                             folder for the data, which is removed at the end [default: beside OUT]
set -euo pipefail

usage() { sed -n '2,33s/^# \{0,1\}//p' "$0"; }
case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -eq 1 ] || { usage >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/lib/memory-cgroup.sh
postgres=benchmarks/peers/postgres.sh

read -ra workloads <<<"${WORKLOADS:-insert multikey manykeys sysbench indexcost groups}"
read -ra bench_options <<<"${BENCH_OPTIONS:-}"
read -ra server_options <<<"${SERVER_OPTIONS:-}"
read -ra more_uris <<<"${URIS:-}"
memory_mib=${MEMORY_MIB:-512}

# A size of the environment or its default, times SCALE.
size() { awk -v n="$1" -v s="${SCALE:-1}" 'BEGIN { n = int(n * s + 0.5); print (n < 1 ? 1 : n) }'; }

with=()
for workload in "${workloads[@]}"; do
    case $workload in
        insert) words="--documents $(size "${INSERT_DOCUMENTS:-10000000}") --journal ${INSERT_OPTIONS:-}" ;;
        multikey) words="--documents $(size "${MULTIKEY_DOCUMENTS:-400000}") --journal ${MULTIKEY_OPTIONS:-}" ;;
        # Random values, since zeros would compress to nearly nothing.
        manykeys) words="--documents $(size "${MANYKEYS_DOCUMENTS:-3000}") --random-values
            ${MANYKEYS_OPTIONS:---schema plain}" ;;
        sysbench) words="--documents $(size "${SYSBENCH_DOCUMENTS:-650000}")
            ${SYSBENCH_OPTIONS:---threads 8,32,256 --seconds 40}" ;;
        indexcost) words="--documents $(size "${INDEXCOST_DOCUMENTS:-1000000}") ${INDEXCOST_OPTIONS:-}" ;;
        groups) words="--documents $(size "${GROUPS_DOCUMENTS:-10000000}") ${GROUPS_OPTIONS:-}" ;;
        # PostgreSQL has no TTL index. In partitions, or with ROLLING_OPTIONS="--expire delete", both expire in the same way.
        rolling) words="--retention $(size "${ROLLING_RETENTION:-60}") ${ROLLING_OPTIONS:---expire partitions}" ;;
        counters) words="--documents $(size "${COUNTERS_DOCUMENTS:-50000000}") ${COUNTERS_OPTIONS:-}" ;;
        everyday) words="--documents $(size "${EVERYDAY_DOCUMENTS:-1000000}") ${EVERYDAY_OPTIONS:-}" ;;
        mixed) words="--documents $(size "${MIXED_DOCUMENTS:-4000000}") ${MIXED_OPTIONS:-}" ;;
        *) echo "WORKLOADS: $workload is none of insert, multikey, manykeys, sysbench, indexcost, groups, rolling, counters, everyday and mixed" >&2; exit 2 ;;
    esac
    with+=(--with "$workload $(tr -s ' \n' '  ' <<<"$words")")
done

scripts/setup.sh build peers
frond=${SERVER:-target/release/frond}
[ -n "${SERVER:-}" ] || cargo build --release --locked
target=${CARGO_TARGET_DIR:-$PWD/target/bench-peers}
CARGO_TARGET_DIR=$target cargo build --release --locked --manifest-path benchmarks/peers/Cargo.toml
bench=$target/release/frond-bench-peers

# PostgreSQL's own user must be able to reach its folder.
data=${DATA:-$(mktemp -d "$out.data-XXXXXX")}
mkdir -p "$data/frond"
chmod 755 "$data"
export MEMORY_MIB=$memory_mib DATA="$data/postgres"

group= server= sampler=
clean_up() {
    [ -z "$sampler" ] || kill "$sampler" 2>/dev/null || true
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
        kill "$server"
        wait "$server" || true
    fi
    [ -z "$group" ] || cgroup_remove "$group"
    cp "$DATA/server.log" "$out/postgres.log" 2>/dev/null || true
    "$postgres" stop --remove || true
    rm -rf "$data/frond"
    rmdir "$data" 2>/dev/null || true
}
trap clean_up EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

port=$(free_port)
start=("$frond" serve --dbpath "$data/frond" --port "$port" "${server_options[@]}")
if [ "$memory_mib" -gt 0 ]; then
    group=$(cgroup_make "frond-peers-$$" "$memory_mib") || {
        echo "no memory cgroup can be made here: run as root, or with MEMORY_MIB=0" >&2
        exit 1
    }
    (cgroup_exec "$group" "${start[@]}") >"$out/frond.log" 2>&1 &
else
    "${start[@]}" >"$out/frond.log" 2>&1 &
fi
server=$!
up=no
for _ in $(seq 300); do
    kill -0 "$server" 2>/dev/null || { tail -20 "$out/frond.log" >&2; exit 1; }
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then up=yes; break; fi
    sleep 0.1
done
[ "$up" = yes ] || { echo "Frond does not answer" >&2; exit 1; }
PORT=$(free_port)
export PORT
postgres_uri=$("$postgres" start)
"$postgres" status >"$out/postgres.txt"
postgres_group=$(cat "$DATA/group" 2>/dev/null) || postgres_group=

# Samples until Frond ends: elapsed seconds, and what each group uses in MiB.
sample() {
    local began=$EPOCHREALTIME frond_bytes postgres_bytes
    echo elapsed_s,frond_cgroup_mib,postgres_cgroup_mib
    while kill -0 "$server" 2>/dev/null; do
        frond_bytes=0 postgres_bytes=0
        [ -z "$group" ] || frond_bytes=$(cgroup_usage "$group")
        [ -z "$postgres_group" ] || postgres_bytes=$(cgroup_usage "$postgres_group" 2>/dev/null || echo 0)
        awk -v t="$began" -v n="$EPOCHREALTIME" -v f="$frond_bytes" -v p="$postgres_bytes" \
            'BEGIN { printf "%.1f,%.1f,%.1f\n", n - t, f / 1048576, p / 1048576 }'
        sleep 1
    done
}
sample >"$out/memory.csv" &
sampler=$!

uris=(--uri "mongodb://127.0.0.1:$port" --uri "$postgres_uri")
for uri in "${more_uris[@]}"; do uris+=(--uri "$uri"); done
status=0
"$bench" all "${uris[@]}" --only "$(IFS=,; echo "${workloads[*]}")" "${with[@]}" --minutes "${MINUTES:-8}" \
    --pause --out "$out" "${bench_options[@]}" || status=$?

killed() { if [ -z "$1" ]; then echo "no limit"; else cgroup_oom_kills "$1"; fi; }
frond_killed=$(killed "$group") postgres_killed=$(killed "$postgres_group")
frond_disk=$(du -sm "$data/frond" | cut -f1) postgres_disk=$(du -sm "$DATA" | cut -f1)
ended=0
if kill "$server" 2>/dev/null; then wait "$server" || ended=$?; else wait "$server" || ended=$?; fi
server=
kill "$sampler" 2>/dev/null || true
sampler=

column_max() { awk -F, -v c="$1" 'NR > 1 && $c > m { m = $c } END { printf "%.0f", m }' "$out/memory.csv"; }
{
    echo "# Frond beside PostgreSQL: ${workloads[*]}"
    echo
    echo "| what | Frond | PostgreSQL |"
    echo "| --- | --- | --- |"
    echo "| memory limit (cgroup, page cache included) | $memory_mib MiB | $memory_mib MiB |"
    echo "| cgroup usage, highest sample | $(column_max 2) MiB | $(column_max 3) MiB |"
    echo "| killed for its memory | $frond_killed | $postgres_killed |"
    echo "| size on disk at the end | $frond_disk MiB | $postgres_disk MiB |"
    echo "| options | ${server_options[*]:-none} | ${POSTGRES_OPTIONS:-none} |"
    echo
    echo "| what | value |"
    echo "| --- | --- |"
    echo "| commit | $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', changed') |"
    echo "| date | $(date -u '+%Y-%m-%d %H:%M UTC') |"
    echo "| Frond's exit code after SIGTERM | $ended |"
    echo "| benchmark's exit code | $status |"
    echo "| minutes of each server for a workload | ${MINUTES:-8} |"
    for words in "${with[@]}"; do
        [ "$words" = --with ] || echo "| options of ${words%% *} | ${words#* } |"
    done
    echo "| options of all | ${bench_options[*]:-none} |"
    echo
    echo "Results and machine: [summary.md](summary.md). Samples of memory: [memory.csv](memory.csv)."
    echo "PostgreSQL's settings: [postgres.txt](postgres.txt)."
} >"$out/run.md"
cat "$out/run.md"
[ "$status" -eq 0 ] && [ "$ended" -eq 0 ]

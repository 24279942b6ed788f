#!/usr/bin/env bash
# A workload of `frond bench`, measured on a server that may use little memory.
#
#   scripts/bench-workload.sh OUT
#
# Builds for release, starts a server in a memory cgroup, runs `frond bench` against it, and
# samples the server's resident memory and the group's usage each second. OUT gets the benchmark's
# report, memory.csv, server.log and run.md. From the environment:
#
#   WORKLOAD        insert     or multikey, manykeys, sysbench, indexcost, groups, rolling, counters, everyday, mixed; or all of them
#   DOCUMENTS                  documents to insert [default: 10000000, manykeys 2000, counters 50000000, mixed 4000000, else that of
#                              `frond bench`]; all has --scale instead, rolling --retention
#   MEMORY_MIB      512        limit of the cgroup; 0 for none
#   BENCH_OPTIONS              more options for `frond bench`, such as "--journal"
#   SERVER_OPTIONS             more options for `frond serve`
#   DBPATH                     folder for the data, kept [default: a temporary one beside OUT]
#   SERVER                     binary to measure [default: target/release/frond, built first]
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,19s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

workload=${WORKLOAD:-insert}
case $workload in
    insert | multikey) documents=${DOCUMENTS:-10000000} ;;
    manykeys) documents=${DOCUMENTS:-2000} ;;
    counters) documents=${DOCUMENTS:-50000000} ;;
    mixed) documents=${DOCUMENTS:-4000000} ;;
    sysbench | indexcost | groups | everyday) documents=${DOCUMENTS:-} ;;
    rolling)
        documents=
        [ -z "${DOCUMENTS:-}" ] || { echo 'WORKLOAD=rolling has BENCH_OPTIONS="--retention SECONDS", not DOCUMENTS' >&2; exit 2; }
        ;;
    all)
        documents=
        [ -z "${DOCUMENTS:-}" ] || { echo 'WORKLOAD=all has BENCH_OPTIONS="--scale PART", not DOCUMENTS' >&2; exit 2; }
        ;;
    *) echo "WORKLOAD=$workload is none of insert, multikey, manykeys, sysbench, indexcost, groups, rolling, counters, everyday, mixed and all" >&2; exit 2 ;;
esac
# --scale replaces the default number of documents.
if [ -z "${DOCUMENTS:-}" ] && [[ " ${BENCH_OPTIONS:-} " == *" --scale"* ]]; then documents=; fi
size=(${documents:+--documents "$documents"})
memory_mib=${MEMORY_MIB:-512}
read -ra bench_options <<<"${BENCH_OPTIONS:-}"
read -ra server_options <<<"${SERVER_OPTIONS:-}"
binary=${SERVER:-target/release/frond}
[ -n "${SERVER:-}" ] || cargo build --release --locked

group= server= sampler= own_dbpath=
clean_up() {
    [ -z "$sampler" ] || kill "$sampler" 2>/dev/null || true
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
        kill "$server"
        wait "$server" || true
    fi
    [ -z "$group" ] || cgroup_remove "$group"
    [ -z "$own_dbpath" ] || rm -rf "$own_dbpath"
}
trap clean_up EXIT

dbpath=${DBPATH:-}
if [ -z "$dbpath" ]; then
    own_dbpath=$(mktemp -d "$out.data-XXXXXX")
    dbpath=$own_dbpath
fi
mkdir -p "$dbpath"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

start=("$binary" serve --dbpath "$dbpath" --port "$port" "${server_options[@]}")
if [ "$memory_mib" -gt 0 ]; then
    group=$(cgroup_make "frond-bench-$$" "$memory_mib") || {
        echo "no memory cgroup can be made here: run as root, or with MEMORY_MIB=0" >&2
        exit 1
    }
    (cgroup_exec "$group" "${start[@]}") >"$out/server.log" 2>&1 &
else
    "${start[@]}" >"$out/server.log" 2>&1 &
fi
server=$!

up=no
for _ in $(seq 300); do
    kill -0 "$server" 2>/dev/null || { tail -20 "$out/server.log" >&2; exit 1; }
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then up=yes; break; fi
    sleep 0.1
done
[ "$up" = yes ] || { echo "the server does not answer" >&2; exit 1; }

# Samples until the server ends: elapsed seconds, resident MiB, the part without files, the group's MiB.
sample() {
    local began=$EPOCHREALTIME now status usage
    echo elapsed_s,resident_mib,anonymous_mib,cgroup_mib
    while status=$(cat "/proc/$server/status" 2>/dev/null) && [[ $status == *VmRSS* ]]; do
        now=$EPOCHREALTIME
        usage=0
        [ -z "$group" ] || usage=$(cgroup_usage "$group")
        awk -v t="$began" -v n="$now" -v u="$usage" '
            $1 == "VmRSS:" { r = $2 } $1 == "RssAnon:" { a = $2 }
            END { printf "%.1f,%.1f,%.1f,%.1f\n", n - t, r / 1024, a / 1024, u / 1048576 }
        ' <<<"$status"
        sleep 1
    done
}
sample >"$out/memory.csv" &
sampler=$!

status=0
"$binary" bench "$workload" --uri "mongodb://127.0.0.1:$port" "${size[@]}" --out "$out" \
    "${bench_options[@]}" || status=$?

high_water=$(awk '$1 == "VmHWM:" { printf "%.0f", $2 / 1024 }' "/proc/$server/status" 2>/dev/null || echo 0)
disk=$(du -sm "$dbpath" | cut -f1)
ended=0
if kill "$server" 2>/dev/null; then wait "$server" || ended=$?; else wait "$server" || ended=$?; fi
server=
kill "$sampler" 2>/dev/null || true
sampler=

column_max() { awk -F, -v c="$1" 'NR > 1 && $c > m { m = $c } END { printf "%.0f", m }' "$out/memory.csv"; }
{
    echo "# frond bench $workload${documents:+ with $documents documents}"
    echo
    echo "| what | value |"
    echo "| --- | --- |"
    echo "| commit | $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', changed') |"
    echo "| date | $(date -u '+%Y-%m-%d %H:%M UTC') |"
    echo "| memory limit of the server | $memory_mib MiB (cgroup, page cache included) |"
    echo "| resident memory, highest sample | $(column_max 2) MiB |"
    echo "| resident memory, high-water mark | $high_water MiB |"
    echo "| cgroup usage, highest sample | $(column_max 4) MiB |"
    echo "| killed for its memory | $([ -z "$group" ] && echo 'no limit' || cgroup_oom_kills "$group") |"
    echo "| size on disk at the end | $disk MiB |"
    echo "| server's exit code after SIGTERM | $ended |"
    echo "| benchmark's exit code | $status |"
    echo "| server options | ${server_options[*]:-none} |"
    echo "| benchmark options | ${bench_options[*]:-none} |"
    echo
    echo "Result and machine: [summary.md](summary.md), with charts report.html. Samples of memory: [memory.csv](memory.csv)."
} >"$out/run.md"
cat "$out/run.md"
[ "$status" -eq 0 ] && [ "$ended" -eq 0 ]

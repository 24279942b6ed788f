#!/usr/bin/env bash
# Measures backups beside W1: W1 alone, W1 beside a full backup, a restore with its verification, an incremental backup after 1% of changes.
#
#   scripts/bench-backup.sh [FOLDER]
#
# FOLDER holds the server, the repository and the reports [default: a temporary one, which is removed]. From the environment:
#
#   DOCUMENTS   40000000               documents that are loaded first
#   MORE        DOCUMENTS / 4          documents of each W1, alone and beside the backup: it must last longer than the backup
#   RATE                               MiB/s of the backup [default: as fast as it goes]
#   PORT        28190                  the port of the server
#   FROND       target/release/frond   the program
#   SERVE                              further options of the server
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
documents=${DOCUMENTS:-40000000}
more=${MORE:-$((documents / 4))}
port=${PORT:-28190}
frond=${FROND:-target/release/frond}
uri="mongodb://127.0.0.1:$port"
server=
own=
if [ $# -eq 1 ]; then folder=$1; else own=$(mktemp -d "${TMPDIR:-/tmp}/backup.XXXXXX"); folder=$own; fi

cleanup() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" || true; fi
    if [ -n "$own" ]; then rm -rf "$own"; fi
}
trap cleanup EXIT

mkdir -p "$folder/db"
# shellcheck disable=SC2086 # SERVE is a list of options.
"$frond" serve --dbpath "$folder/db" --port "$port" ${SERVE:-} >"$folder/server.log" 2>&1 &
server=$!
for _ in $(seq 200); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    sleep 0.1
done

# Each run has documents of its own. The time is that of the inserts.
w1() { local name=$1; shift; "$frond" bench insert --uri "$uri" --quiet --compaction-wait 1 --out "$folder/w1-$name" "$@"; }
bytes() { du -sb "$1" | cut -f1; }
seconds_since() { awk -v now="$(date +%s.%N)" -v then="$1" 'BEGIN { printf "%.1f", now - then }'; }
per_second() { awk -v n="$1" -v s="$2" 'BEGIN { printf "%.0f", n / s }'; }

echo "== $documents documents are loaded"
w1 load --documents "$documents" --seed 1 >"$folder/load.txt" 2>&1
echo "the data directory has $(bytes "$folder/db") bytes"

began=$(date +%s.%N)
w1 alone --keep --seed 2 --documents "$more" >"$folder/alone.txt" 2>&1
took=$(seconds_since "$began")
echo "== W1 alone: $more documents in $took s, $(per_second "$more" "$took") per second"

began=$(date +%s.%N)
{ w1 beside --keep --seed 3 --documents "$more" >"$folder/beside.txt" 2>&1; date +%s.%N >"$folder/beside.ended"; } &
load=$!
"$frond" backup --uri "$uri" --out "$folder/repository" --quiet ${RATE:+--rate "$RATE"}
echo "== a full backup beside W1: it took $(seconds_since "$began") s and has $(bytes "$folder/repository") bytes"
kill -0 "$load" 2>/dev/null || echo "W1 ended before the backup: raise MORE"
wait "$load"
took=$(awk -v now="$(cat "$folder/beside.ended")" -v then="$began" 'BEGIN { printf "%.1f", now - then }')
echo "W1 beside it: $more documents in $took s, $(per_second "$more" "$took") per second"

began=$(date +%s.%N)
"$frond" restore --from "$folder/repository" --dbpath "$folder/restored" --quiet --noVerify
echo "== the restore took $(seconds_since "$began") s"
began=$(date +%s.%N)
"$frond" verify --dbpath "$folder/restored" | tail -3
echo "the verification took $(seconds_since "$began") s"
rm -rf "$folder/restored"

"$frond" backup --uri "$uri" --out "$folder/repository" --quiet --incremental
before=$(bytes "$folder/repository")
w1 changes --keep --seed 4 --documents "$((documents / 100))" >"$folder/changes.txt" 2>&1
began=$(date +%s.%N)
"$frond" backup --uri "$uri" --out "$folder/repository" --quiet --incremental
took=$(seconds_since "$began")
echo "== an incremental backup after 1% more documents took $took s and has $(($(bytes "$folder/repository") - before)) bytes"
echo "the data directory has $(bytes "$folder/db") bytes"
"$frond" backup list "$folder/repository"

#!/bin/bash
# Measures `frond migrate` from one Frond to another on this machine: small documents, copied and compared.
#
#   scripts/bench-migrate.sh [documents] [jobs]
#
# FROND is the binary (target/release/frond). The last lines say how many documents were copied and compared in a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly documents=${1:-2000000} jobs=${2:-4}
readonly frond=${FROND:-target/release/frond}
readonly from_port=${FROM_PORT:-28210} to_port=${TO_PORT:-28211}
folder=$(mktemp -d "${TMPDIR:-/tmp}/frond-bench-migrate.XXXXXX")
servers=()

stop() {
    for pid in "${servers[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap stop EXIT

for port in "$from_port" "$to_port"; do
    mkdir "$folder/$port"
    "$frond" serve --dbpath "$folder/$port" --port "$port" --bind_ip 127.0.0.1 \
        --unixSocketPrefix "$folder" --slowms 100000 >"$folder/$port.log" 2>&1 &
    servers+=($!)
done
for port in "$from_port" "$to_port"; do
    for _ in $(seq 100); do
        (echo >"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
        sleep 0.1
    done
done

# Documents of about a hundred bytes.
seq "$documents" | awk '{ printf "{\"n\":%d,\"name\":\"name of %d\",\"price\":%.2f,\"kind\":%d}\n", $1, $1, $1 / 100, $1 % 100 }' |
    "$frond" import --uri "mongodb://127.0.0.1:$from_port" --db bench --collection small --quiet --format json

say() { printf '%s\n' "$*"; }
say "migrate with $jobs jobs:"
/usr/bin/time -f '%e s, client used %U s user, %S s system, %M KiB' \
    "$frond" migrate --from "mongodb://127.0.0.1:$from_port" --to "mongodb://127.0.0.1:$to_port" \
    --jobs "$jobs" --follow none --no-users

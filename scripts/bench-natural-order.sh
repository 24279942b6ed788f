#!/usr/bin/env bash
# The cost of a collection in the order of insertion: the insertion workload on a server that keeps
# documents in the order of `_id` (the default) and on one that keeps the order of insertion, in turns.
#
#   scripts/bench-natural-order.sh OUT
#
# OUT gets the report of `frond bench insert`, find.txt with the rates of finds by `_id`, and run.md.
# From the environment:
#
#   DOCUMENTS   4000000   documents to insert
#   MEMORY_MIB  512       limit of each server's memory cgroup; 0 for none
#   SERVER                binary to measure [default: target/release/frond, built first]
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

documents=${DOCUMENTS:-4000000}
memory_mib=${MEMORY_MIB:-512}
binary=${SERVER:-target/release/frond}
[ -n "${SERVER:-}" ] || cargo build --release --locked
data=$(mktemp -d "$out.data-XXXXXX")
servers=() groups=()
clean_up() {
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null && wait "$server" || true; done
    for group in "${groups[@]}"; do cgroup_remove "$group"; done
    rm -rf "$data"
}
trap clean_up EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Starts a server with an order of documents, and waits until it answers: serve ORDER PORT
serve() {
    local group start=("$binary" serve --dbpath "$data/$1" --port "$2" --setParameter "naturalOrder=$1")
    mkdir "$data/$1"
    if [ "$memory_mib" -gt 0 ]; then
        group=$(cgroup_make "frond-order-$$-$1" "$memory_mib") || {
            echo "no memory cgroup can be made here: run as root, or with MEMORY_MIB=0" >&2
            exit 1
        }
        groups+=("$group")
        (cgroup_exec "$group" "${start[@]}") >"$data/$1.log" 2>&1 &
    else
        "${start[@]}" >"$data/$1.log" 2>&1 &
    fi
    servers+=($!)
    for _ in $(seq 300); do
        kill -0 "${servers[-1]}" 2>/dev/null || { tail -20 "$data/$1.log" >&2; exit 1; }
        if (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; then return; fi
        sleep 0.1
    done
    echo "the server does not answer" >&2
    exit 1
}

declare -A port=([_id]=$(free_port) [insertion]=$(free_port))
serve _id "${port[_id]}"
serve insertion "${port[insertion]}"
"$binary" bench insert --uri "mongodb://127.0.0.1:${port[_id]}" --uri "mongodb://127.0.0.1:${port[insertion]}" \
    --documents "$documents" --quiet --out "$out"
for turn in 1 2 3 4 5; do
    for order in _id insertion; do
        rate=$("$binary" bench roundtrip --uri "mongodb://127.0.0.1:${port[$order]}" --seconds 1 |
            awk '/find by _id, median/ { sub(/\/s/, "", $NF); gsub(/,/, "", $NF); print $NF }')
        echo "$rate" >>"$data/finds-$order"
    done
done
for order in _id insertion; do
    echo "order of $order"
    echo "find by _id by one client, turns: $(paste -sd' ' "$data/finds-$order")"
    echo "find by _id, median $(sort -n "$data/finds-$order" | sed -n 3p)/s"
done >"$out/find.txt"
{
    echo "# Documents in the order of \`_id\` and in that of insertion"
    echo
    echo "\`scripts/bench-natural-order.sh\` with $documents documents and $memory_mib MiB for each server. Commit"
    echo "$(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u '+%Y-%m-%d %H:%M UTC'), $(nproc) cores that the client shares. In the report the first"
    echo "server keeps the order of \`_id\`, the second that of insertion; \`find.txt\` has finds by \`_id\` by one client over"
    echo "100,000 documents in cache."
} >"$out/run.md"

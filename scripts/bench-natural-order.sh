#!/usr/bin/env bash
# The cost of a collection in the order of insertion: the insertion workload on a server that keeps
# documents in the order of `_id` (the default) and on one that keeps the order of insertion, in turns.
#
#   scripts/bench-natural-order.sh OUT
#
# OUT gets the report of `frond bench insert` and find.txt, finds by `_id` on each server. From the
# environment:
#
#   DOCUMENTS   4000000   documents to insert
#   MEMORY_MIB  512       limit of each server's memory cgroup; 0 for none
#   SERVER                binary to measure [default: target/release/frond, built first]
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

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

# Starts a server with an order of documents: serve ORDER PORT
serve() {
    local command=("$binary" serve --dbpath "$data/$1" --port "$2" --setParameter "naturalOrder=$1")
    mkdir "$data/$1"
    if [ "${MEMORY_MIB:-512}" -gt 0 ]; then
        groups+=("$(cgroup_make "frond-order-$2" "${MEMORY_MIB:-512}")")
        cgroup_exec "${groups[-1]}" "${command[@]}" >"$data/$1.log" 2>&1 &
    else
        "${command[@]}" >"$data/$1.log" 2>&1 &
    fi
    servers+=($!)
}

serve _id 27131
serve insertion 27132
sleep 2
uris=(--uri mongodb://127.0.0.1:27131 --uri mongodb://127.0.0.1:27132)
"$binary" bench insert "${uris[@]}" --documents "${DOCUMENTS:-4000000}" --quiet --out "$out/report"
mv "$out"/report/* "$out" && rmdir "$out/report"
for turn in 1 2 3; do
    for server in "_id 27131" "insertion 27132"; do
        read -r order port <<<"$server"
        "$binary" bench roundtrip --uri "mongodb://127.0.0.1:$port" --seconds 1 |
            sed "s/^/turn $turn, $order: /"
    done
done | tee "$out/find.txt"

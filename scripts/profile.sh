#!/usr/bin/env bash
# Where the server's processor time of each kind of request goes.
#
#   scripts/profile.sh OUT
#
# Needs perf and the right to record all processes (root). Starts a server, sends it requests of one kind after the other (`frond bench operations`), and records its stacks with perf.
# OUT gets profile.md and profile.csv (microseconds of CPU time per request, by class: benchmarks/profile/classes.txt), a flame
# graph of each kind (KIND.svg), and run.md. From the environment:
#
#   OPERATIONS   all       kinds of requests, separated by spaces
#   CONNECTIONS  4         connections that send them
#   SECONDS_EACH 3         seconds that are recorded of each kind
#   SERVER                 binary to profile [default: target/release/frond, built first]
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v perf >/dev/null || { echo 'perf is missing: install linux-perf (Debian) or linux-tools (Ubuntu)' >&2; exit 1; }
[ -n "${SERVER:-}" ] || cargo build --release --locked
binary=${SERVER:-target/release/frond}
connections=${CONNECTIONS:-4} seconds=${SECONDS_EACH:-3}
all='ping find range sum ordered distinct update-plain update-indexed insert-one insert-batch insert-indexes insert-array'
read -ra operations <<<"${OPERATIONS:-$all}"

work=$(mktemp -d)
server=
clean_up() {
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then kill "$server"; wait "$server" || true; fi
    rm -rf "$work"
}
trap clean_up EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$work/db"
"$binary" serve --dbpath "$work/db" --port "$port" --quiet >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
    kill -0 "$server" 2>/dev/null || { tail -20 "$work/server.log" >&2; exit 1; }
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    sleep 0.1
done

# Microseconds of CPU time that the server has used.
cpu_us() { awk -v hertz="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); printf "%.0f\n", ($12 + $13) * 1e6 / hertz }' "/proc/$server/stat"; }
send() { # KIND SECONDS
    "$binary" bench operations --uri "mongodb://127.0.0.1:$port" --threads "$connections" --only "$1" --seconds "$2"
}

send ping 0 >/dev/null # fills the collection
folded=()
for operation in "${operations[@]}"; do
    # A first time without perf, which slows the server: requests and CPU time. Then stacks.
    before=$(cpu_us)
    answered=$(send "$operation" "$seconds" | tail -1)
    after=$(cpu_us)
    IFS=, read -r _ requests elapsed _ <<<"$answered"
    echo "$requests,$((after - before)),$elapsed" >"$work/$operation.csv"
    send "$operation" "$((seconds + 1))" >/dev/null &
    sender=$!
    sleep 0.3
    # All processes: recording one by its number would make each of its context switches longer.
    perf record --quiet --all-cpus --freq 999 --event cpu-clock --call-graph dwarf,8192 --output "$work/perf.data" \
        -- sleep "$seconds" >/dev/null 2>&1
    wait "$sender"
    perf script --no-inline --pid "$server" --fields comm,tid,time,ip,sym,dso --input "$work/perf.data" 2>/dev/null |
        python3 benchmarks/profile/fold.py stacks >"$work/$operation.folded"
    python3 benchmarks/profile/fold.py flame "frond: $operation, $connections connections" \
        <"$work/$operation.folded" >"$out/$operation.svg"
    [ -z "${KEEP_STACKS:-}" ] || cp "$work/$operation.folded" "$work/$operation.csv" "$out/"
    folded+=("$work/$operation.folded")
    echo "$operation: $requests requests in $elapsed s" >&2
done
python3 benchmarks/profile/fold.py table benchmarks/profile/classes.txt "$out/profile.md" "${folded[@]}"
{
    echo '# Where the time of requests goes'
    echo
    echo '| what | value |'
    echo '| --- | --- |'
    echo "| commit | $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', changed') |"
    echo "| date | $(date -u '+%Y-%m-%d %H:%M UTC') |"
    echo "| processors | $(nproc), $(awk -F ': ' '/model name/ { print $2; exit }' /proc/cpuinfo) |"
    echo "| kernel | $(uname -r) |"
    echo "| connections | $connections |"
    echo
    cat "$out/profile.md"
} >"$out/run.md"
rm "$out/profile.md"
cat "$out/run.md"

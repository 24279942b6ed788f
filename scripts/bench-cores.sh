#!/usr/bin/env bash
# How the server uses more cores, on a machine that has them: W1 with 1 to 16 loaders, W1, find by _id and W4 with the server
# held to fewer cores, in memory. Beside each figure stand the processor ticks of the server's threads, by name.
#
#   scripts/bench-cores.sh OUT
#
# OUT is a folder for the reports. From the environment:
#
#   SERVER      binary to test [default: target/release/frond, built first]
#   DOCUMENTS   4000000  documents of W1
#   SECONDS_W4  5        seconds of each level of W4
set -euo pipefail

if [ $# -ne 1 ]; then sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; fi
out=$1
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -z "${SERVER:-}" ]; then
    scripts/setup.sh build
    cargo build --release --locked
fi
readonly bin=${SERVER:-target/release/frond} uri=mongodb://127.0.0.1:27117/ all=$(nproc)
documents=${DOCUMENTS:-4000000}
mkdir -p "$out"
dir=$(mktemp -d)
pid=
stop() {
    [ -z "$pid" ] || { kill "$pid"; wait "$pid" || true; }
    pid=
}
trap 'stop; rm -rf "$dir"' EXIT

# Starts a server on the first N cores.
serve() {
    rm -rf "$dir/db"
    mkdir "$dir/db"
    taskset -c "0-$(($1 - 1))" "$bin" serve --dbpath "$dir/db" --port 27117 --logpath "$dir/log" --quiet &
    pid=$!
    for _ in $(seq 100); do
        if (exec 3<>/dev/tcp/127.0.0.1/27117) 2>/dev/null; then return; fi
        sleep 0.1
    done
    return 1
}

# Name, number, and ticks in user and system mode of the server's threads.
threads() {
    printf -- '-- threads: name, number, user ticks, system ticks\n'
    local task
    for task in "/proc/$pid/task"/*; do
        awk -v name="$(cat "$task/comm")" '{ sub(/^.*\) /, ""); print name, $12, $13 }' "$task/stat"
    done | awk '{ n[$1]++; u[$1] += $2; s[$1] += $3 } END { for (t in n) print t, n[t], u[t], s[t] }' | sort
}

levels() { for n in 1 2 4 8 16; do if [ "$n" -le "$all" ]; then echo "$n"; fi; done; }

# W1 LOADERS [COMMAND...]: COMMAND holds the loaders to their cores.
w1() {
    local loaders=$1
    shift
    "$@" "$bin" bench insert --uri $uri --documents "$documents" --threads "$loaders" --compaction-wait 0 --quiet \
        --out "$dir/report-$RANDOM" | grep -v '^report:'
    threads
}

for loaders in 1 2 4 8 16; do
    serve "$all"
    { printf '== W1, %s cores, %s loaders\n' "$all" "$loaders"; w1 "$loaders"; } >>"$out/w1.txt"
    stop
done
for cores in $(levels); do
    if [ $((cores * 2)) -gt "$all" ]; then continue; fi
    serve "$cores"
    { printf '== W1, the server on %s cores, 8 loaders on the upper half\n' "$cores"
      w1 8 taskset -c "$((all / 2))-$((all - 1))"; } >>"$out/w1-cores.txt"
    stop
done
for cores in $(levels); do
    serve "$cores"
    for connections in 1 16 64; do
        printf '== find by _id, the server on %s cores, %s connections\n' "$cores" "$connections"
        "$bin" bench roundtrip --uri $uri --threads "$connections" --seconds 1 --rounds 3
    done >>"$out/roundtrip.txt"
    stop
done
for cores in $(levels); do
    serve "$cores"
    { printf '== W4, the server on %s cores\n' "$cores"
      "$bin" bench sysbench --uri $uri --load-threads 8 --threads 1,8,32,64,256 --seconds "${SECONDS_W4:-5}" \
          --compaction-wait 0 --quiet --out "$dir/report-$RANDOM" | grep -v '^report:'
      threads; } >>"$out/w4.txt"
    stop
done

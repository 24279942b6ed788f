#!/usr/bin/env bash
# What clients do to a server's memory, in groups of little memory with default settings: 1,000 idle cursors, 200 clients that do not
# read replies of 15 MiB, 50 sorts of 800 MB, 64 writers of batches of 16 MiB, 10,000 connections; each alone and all together,
# with indexed insertion (W1) beside. Then commands of very many values, `distinct`, open transactions and small requests whose
# replies are not read. Needs root for the memory group.
#
#   scripts/bounded.sh OUT
#
# OUT gets bounded.md with a table, and samples and the log of each run. Exits with 0 if all bounds were kept: nothing
# killed; at most 15/16 of the memory resident; with what the kernel holds for it, sockets included, no more than the memory; a find by
# _id in at most 50 ms in the 99th percentile, except beside sorts. From the environment:
#
#   MINUTES         10         for each run
#   ONLY                       names of runs, with commas
#   SMALL                      1 for a twentieth of everything, to try it
#   MEMORY_MIB      512        limits of the cgroup, with commas
#   HEADROOM                   1 to raise the limit once the server has read it: what it takes too much is measured, not killed
#   SERVER          binary to test [default: target/release/frond, built first]
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

scripts/setup.sh build clients
binary=${SERVER:-target/release/frond}
[ -n "${SERVER:-}" ] || cargo build --release --locked
ulimit -n "$(ulimit -Hn)"

groups=()
remove_groups() {
    local group
    for group in "${groups[@]}"; do
        cgroup_remove "$group"
    done
}
trap remove_groups EXIT
arguments=(--server "$binary" --out "$out" --minutes "${MINUTES:-10}")
for size in $(tr , ' ' <<<"${MEMORY_MIB:-512}"); do
    group=$(cgroup_make "frond-bounded-$$-$size" "$size") || {
        echo "no memory cgroup can be made here: run as root" >&2
        exit 1
    }
    groups+=("$group")
    arguments+=(--cgroup "$group")
done
[ -z "${ONLY:-}" ] || arguments+=(--only "$ONLY")
[ -z "${SMALL:-}" ] || arguments+=(--small)
[ -z "${HEADROOM:-}" ] || arguments+=(--headroom)
.cache/clients/venv/bin/python tests/soak/bounded.py "${arguments[@]}"

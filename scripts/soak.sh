#!/usr/bin/env bash
# Mixed work on a server that is killed every few minutes, checked with a model. Needs root for the memory group.
#
#   scripts/soak.sh OUT
#
# OUT gets samples.csv, finds.csv, server.log, soak.md and, after a failure, the data. From the environment:
#
#   HOURS           1
#   KILL_EVERY      180        seconds between two kills, on average
#   MEMORY_MIB      512        limit of the cgroup; 0 for none
#   SEED                       repeats a run's choices
#   SERVER          binary to test [default: target/release/frond, built first]
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

scripts/setup.sh build clients
binary=${SERVER:-target/release/frond}
[ -n "${SERVER:-}" ] || cargo build --release --locked

group=
trap '[ -z "$group" ] || cgroup_remove "$group"' EXIT
seconds=$(awk -v hours="${HOURS:-1}" 'BEGIN { printf "%d", hours * 3600 }')
arguments=(--server "$binary" --out "$out" --seconds "$seconds" --kill-every "${KILL_EVERY:-180}")
if [ "${MEMORY_MIB:-512}" -gt 0 ]; then
    group=$(cgroup_make "frond-soak-$$" "${MEMORY_MIB:-512}") || {
        echo "no memory cgroup can be made here: run as root, or with MEMORY_MIB=0" >&2
        exit 1
    }
    arguments+=(--cgroup "$group")
fi
[ -z "${SEED:-}" ] || arguments+=(--seed "$SEED")
.cache/clients/venv/bin/python tests/soak/soak.py "${arguments[@]}"

#!/usr/bin/env bash
# Indexed insertion with `kill -9` of the server at random moments.
#
#   scripts/crash-w1.sh OUT
#
# Builds for release, starts a server in a memory cgroup, loads it with `frond bench insert`, and kills
# it (SIGKILL, by its pid) at random moments. Two more writers, with and without j: true, record their
# acknowledged writes. After each restart, which is timed, all of them must be there, and as many documents as were
# acknowledged to the load. At the end every index is compared with its collection. OUT gets acknowledged.txt,
# memory.csv, the reports of the load, server.log and crash.md. From the environment:
#
#   DOCUMENTS       10000000   documents to insert
#   CRASHES         5
#   MEMORY_MIB      512        limit of the cgroup; 0 for none
#   SEED                       repeats a run's random moments
#   SERVER          binary to test [default: target/release/frond, built first]
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

scripts/setup.sh build clients
binary=${SERVER:-target/release/frond}
[ -n "${SERVER:-}" ] || cargo build --release --locked

group=
trap '[ -z "$group" ] || cgroup_remove "$group"' EXIT
arguments=(--server "$binary" --out "$out" --documents "${DOCUMENTS:-10000000}" --crashes "${CRASHES:-5}")
if [ "${MEMORY_MIB:-512}" -gt 0 ]; then
    group=$(cgroup_make "frond-crash-$$" "${MEMORY_MIB:-512}") || {
        echo "no memory cgroup can be made here: run as root, or with MEMORY_MIB=0" >&2
        exit 1
    }
    arguments+=(--cgroup "$group")
fi
[ -z "${SEED:-}" ] || arguments+=(--seed "$SEED")
.cache/clients/venv/bin/python tests/clients/crash_w1.py "${arguments[@]}"

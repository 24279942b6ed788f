#!/usr/bin/env bash
# The lag of a standby under W1 (frond bench insert) on its primary, both on this machine, and what it costs the primary.
#
#   scripts/bench-standby.sh [OUT]
#
# The report goes to the file OUT, or to stdout. From the environment:
#
#   SERVER     binary to test [default: target/release/frond, built first]
#   DOCUMENTS  2000000  documents of W1
#   CACHE_GB   0.5      the cache of each server
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh build clients
[ -n "${SERVER:-}" ] || cargo build --release --locked
measure() {
    .cache/clients/venv/bin/python benchmarks/standby.py --server "${SERVER:-target/release/frond}" --documents "${DOCUMENTS:-2000000}" \
        --cache-gb "${CACHE_GB:-0.5}" "$@"
}
{
    echo "## The primary alone"
    measure --no-standby
    echo "## With a standby"
    measure
} >"$out"

#!/usr/bin/env bash
# How long operations on a whole store take: start after a kill and after a shutdown, shutdown, count, createIndex, drop.
#
#   scripts/bench-lifecycle.sh [OUT]
#
# The report goes to the file OUT, or to stdout. From the environment:
#
#   SERVER      binary to test [default: target/release/frond, built first]
#   DOCUMENTS   10000000  documents with four indexes
#   ROUNDS      3         rounds of all but the load and the drop
#   CACHE_GB    0.25      the cache of the server
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh build clients
[ -n "${SERVER:-}" ] || cargo build --release --locked
.cache/clients/venv/bin/python benchmarks/lifecycle.py --server "${SERVER:-target/release/frond}" --documents "${DOCUMENTS:-10000000}" \
    --rounds "${ROUNDS:-3}" --cache-gb "${CACHE_GB:-0.25}" >"$out"

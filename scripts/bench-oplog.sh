#!/usr/bin/env bash
# What the oplog and change streams cost: W1 and W4 with the oplog and without; streams that wait, on an idle server and beside a
# writer; a million events through one stream, with the server's resident memory.
#
#   scripts/bench-oplog.sh [OUT]
#
# The report goes to the file OUT, or to stdout. From the environment:
#
#   SERVER      binary to test [default: target/release/frond, built first]
#   ROUNDS      3        rounds; each measures all variants in turns
#   DOCUMENTS   2000000  documents of W1
#   SECONDS_W4  20       seconds of each level of W4
#   STREAMS     1000     streams that wait
#   EVENTS      1000000  events through one stream
#   CACHE_GB    0.5      the cache of the server
#   ONLY                 some of w1, w4, streams, events, with commas
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh build clients
[ -n "${SERVER:-}" ] || cargo build --release --locked
ulimit -n "$(ulimit -Hn)"
.cache/clients/venv/bin/python benchmarks/oplog.py --server "${SERVER:-target/release/frond}" --rounds "${ROUNDS:-3}" \
    --documents "${DOCUMENTS:-2000000}" --seconds "${SECONDS_W4:-20}" --streams "${STREAMS:-1000}" --events "${EVENTS:-1000000}" \
    --cache-gb "${CACHE_GB:-0.5}" ${ONLY:+--only "$ONLY"} >"$out"

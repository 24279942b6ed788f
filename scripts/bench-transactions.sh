#!/usr/bin/env bash
# What transactions cost: ten updates of one document each, inside a transaction and without; a transaction of 100,000
# documents; and what a transaction that stays open costs others.
#
#   scripts/bench-transactions.sh [OUT]
#
# The report goes to the file OUT, or to stdout. From the environment:
#
#   SERVER      binary to test [default: target/release/frond, built first]
#   ROUNDS      7      rounds; each measures all variants in turns
#   SECONDS_OPEN  60   how long the transaction stays open while others insert; 0 leaves this part out
#   CACHE_GB    0.5    the cache of the server
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh build clients
[ -n "${SERVER:-}" ] || cargo build --release --locked
.cache/clients/venv/bin/python benchmarks/transactions.py --server "${SERVER:-target/release/frond}" \
    --rounds "${ROUNDS:-7}" --seconds-open "${SECONDS_OPEN:-60}" --cache-gb "${CACHE_GB:-0.5}" >"$out"

#!/usr/bin/env bash
# What functions of JavaScript cost in queries: $where, $function and mapReduce on one processor, beside a condition without JavaScript.
#
#   scripts/bench-javascript.sh [OUT]
#
# The report goes to the file OUT, or to stdout. From the environment:
#
#   SERVER      binary to test [default: target/release/frond, built first]
#   DOCUMENTS   1000000   documents with ten fields
#   ROUNDS      3         rounds
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh build clients
[ -n "${SERVER:-}" ] || cargo build --release --locked
.cache/clients/venv/bin/python benchmarks/javascript.py --server "${SERVER:-target/release/frond}" --documents "${DOCUMENTS:-1000000}" \
    --rounds "${ROUNDS:-3}" >"$out"

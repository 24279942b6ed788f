#!/usr/bin/env bash
# The cost of the audit log: W4 on three servers with authorization that take turns, without an audit log, with one of logins and refusals,
# and with one of all commands. Beside it clients log in and are refused on all three alike.
#
#   scripts/bench-audit.sh [OUT]
#
# The report goes to the file OUT, or to stdout. From the environment:
#
#   SERVER      binary to test [default: target/release/frond, built first]
#   ROUNDS      3        runs; the servers take turns in each
#   SECONDS_EACH 30      seconds of each server in each run
#   THREADS     8        threads of the workload
#   DOCUMENTS   20000    documents of each of the 16 collections
#   REPORTS              folder for the reports of the runs [default: none, they are removed]
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh build clients
[ -n "${SERVER:-}" ] || cargo build --release --locked
.cache/clients/venv/bin/python benchmarks/audit.py --server "${SERVER:-target/release/frond}" --rounds "${ROUNDS:-3}" \
    --seconds "${SECONDS_EACH:-30}" --threads "${THREADS:-8}" --documents "${DOCUMENTS:-20000}" ${REPORTS:+--out "$REPORTS"} >"$out"

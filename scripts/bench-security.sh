#!/usr/bin/env bash
# What TLS, logins and authorization cost: finds by `_id` without TLS and with it, on one connection and on many; logins a second and
# the server's processor time for each; a thousand logins at once beside a client that finds; and finds of a server without
# authorization against an older binary.
#
#   scripts/bench-security.sh [OUT]
#
# The report goes to the file OUT, or to stdout. From the environment:
#
#   SERVER      binary to test [default: target/release/frond, built first]
#   OLDER       binary of before, for the comparison without authorization [default: none, which leaves it out]
#   ROUNDS      5        rounds; each measures both sides in turns
#   SECONDS_FIND 3       seconds of each kind of request in each round
#   CONNECTIONS 16       connections of the finds on many
#   LOGINS      1000     logins
#   CACHE_GB    0.5      the cache of the server
#   ONLY                 some of tls, logins, older, with commas
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,19s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh build clients
[ -n "${SERVER:-}" ] || cargo build --release --locked
ulimit -n "$(ulimit -Hn)"
.cache/clients/venv/bin/python benchmarks/security.py --server "${SERVER:-target/release/frond}" ${OLDER:+--older "$OLDER"} \
    --rounds "${ROUNDS:-5}" --seconds "${SECONDS_FIND:-3}" --connections "${CONNECTIONS:-16}" --logins "${LOGINS:-1000}" \
    --cache-gb "${CACHE_GB:-0.5}" ${ONLY:+--only "$ONLY"} >"$out"

#!/usr/bin/env bash
# How long finds, inserts and implicit creations of collections wait beside commands whose work grows with the data.
#
#   scripts/bench-stalls.sh [OUT]
#
# The report goes to the file OUT, or to stdout. Exits with 0 if no action waited for more than 50 ms beside a change of the catalog. From
# the environment:
#
#   DOCUMENTS   10000000   documents of the collection that the commands change, of about 250 bytes
#   CACHE_MIB   256        the cache of the store
#   DATA                   folder for the store [default: a temporary one]
set -euo pipefail

if [ $# -gt 1 ]; then sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; fi
out=${1:-/dev/stdout}
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$(dirname "$out")"
data=$(mktemp -d "${DATA:-${TMPDIR:-/tmp}}/stalls.XXXXXX")
trap 'rm -rf "$data"' EXIT
cargo build --release --locked --quiet -p frond-store --example stalls
cargo run --release --locked --quiet -p frond-store --example stalls -- \
    "${DOCUMENTS:-10000000}" "$data" "${CACHE_MIB:-256}" >"$out"

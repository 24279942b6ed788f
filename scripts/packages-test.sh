#!/usr/bin/env bash
# Builds the programs of the packages, optimised, and runs tests/packages with them. `make packages-test` calls it after set-up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/package.sh

dynamic=$(package_build dynamic)
static=$(package_build static)
exec .cache/clients/venv/bin/python tests/packages/run.py --server "$dynamic" --static "$static" \
    --with-tools "$PWD/.cache/package-tools"

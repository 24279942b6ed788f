#!/usr/bin/env bash
# A short share of `make soak`, in a memory group where one can be made: scripts/soak-share.sh SERVER
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/memory-cgroup.sh

status=0
arguments=(--server "$1" --out .cache/soak-test --seconds 20 --kill-every 6 --documents 2000 --seed 1)
if group=$(cgroup_make "frond-soak-test-$$" 512 2>/dev/null); then
    arguments+=(--cgroup "$group")
fi
.cache/clients/venv/bin/python tests/soak/soak.py "${arguments[@]}" || status=$?
[ -z "$group" ] || cgroup_remove "$group"
exit "$status"

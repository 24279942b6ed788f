#!/usr/bin/env bash
# Documents with very many keys, stored whole and shredded: the same workload on both, in turns.
#
#   scripts/bench-w3.sh OUT
#
# Each turn is a run of scripts/bench-workload.sh with a server and data of its own. OUT gets their
# folders and compare.md, which compares the medians of the turns. From the environment:
#
#   TURNS           1          runs of each kind
#   WHOLE_OPTIONS              options of `frond serve` that store documents whole
#                              [default: --setParameter largeDocumentBytes=0]
#   SHREDDED_OPTIONS           options of `frond serve` that shred them [default: none]
#   BENCH_OPTIONS              more options for `frond bench` [default: --schema plain]
#   SERVER                     binary to measure [default: target/release/frond, built first]
#
# DOCUMENTS, MEMORY_MIB and SERVER_OPTIONS (for both) are those of scripts/bench-workload.sh.
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

turns=${TURNS:-1}
both=${SERVER_OPTIONS:-}
declare -A options=(
    [whole]=${WHOLE_OPTIONS---setParameter largeDocumentBytes=0}
    [shredded]=${SHREDDED_OPTIONS:-}
)
export WORKLOAD=manykeys
export BENCH_OPTIONS=${BENCH_OPTIONS---schema plain}
if [ -z "${SERVER:-}" ]; then
    cargo build --release --locked
    SERVER=target/release/frond
fi
export SERVER

for turn in $(seq "$turns"); do
    for kind in whole shredded; do
        echo "== turn $turn of $turns, $kind"
        SERVER_OPTIONS="$both ${options[$kind]}" scripts/bench-workload.sh "$out/$kind-$turn"
    done
done

{
    echo "# Documents stored whole and shredded"
    echo
    echo "\`frond bench manykeys\`, $turns turns of each, medians. Server options: whole \`${options[whole]:-none}\`,"
    echo "shredded \`${options[shredded]:-none}\`, both \`${both:-none}\`; benchmark options: \`${BENCH_OPTIONS:-none}\`."
    echo
    python3 - "$out" "$turns" <<'PY'
import json, statistics, sys

out, turns = sys.argv[1], int(sys.argv[2])


def figures(path):
    """Every figure of the one server in a summary, by its name and unit."""
    with open(path, encoding="utf-8") as file:
        summary = json.load(file)
    (server,) = summary["servers"]
    found = summary["workloads"]["manykeys"]["figures"]
    return {
        f"{name}{', ' if figure['unit'] else ''}{figure['unit']}": figure[server]
        for name, figure in found.items()
    }


def medians(kind):
    runs = [figures(f"{out}/{kind}-{turn}/summary.json") for turn in range(1, turns + 1)]
    return {
        name: statistics.median(run[name] for run in runs)
        for name in runs[0]
        if all(run.get(name) is not None for run in runs)
    }


def show(number):
    return f"{number:,.3f}" if number < 100 and number % 1 else f"{number:,.0f}"


whole, shredded = medians("whole"), medians("shredded")
print("| what | whole | shredded | shredded / whole |")
print("| --- | --- | --- | --- |")
for name, before in whole.items():
    if name in shredded:
        after = shredded[name]
        ratio = f"{after / before:.3f}" if before else "-"
        print(f"| {name} | {show(before)} | {show(after)} | {ratio} |")
PY
    echo
    echo "Each run: \`whole-N/run.md\` and \`shredded-N/run.md\`."
} >"$out/compare.md"
cat "$out/compare.md"

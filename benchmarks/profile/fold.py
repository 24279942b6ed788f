#!/usr/bin/env python3
"""Folds samples of `perf script` and writes what `make profile` keeps.

  fold.py stacks CLASSES            perf script's text on the standard input; folded stacks ("a;b;c 12") on the output
  fold.py flame TITLE               folded stacks on the input; a flame graph (SVG) on the output
  fold.py table CLASSES OUT FILES   the table of microseconds per request; FILES are folded stacks NAME.folded, beside each
                                    NAME.csv with the requests, and the server's CPU microseconds, of the recorded time
"""

import html
import re
import sys
import zlib
from pathlib import Path

MINOR = 0.05  # a class whose share is below this in every request is shown with the others, in microseconds


def read_classes(path):
    classes = []
    for line in Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            name, where, pattern = line.split("\t")
            classes.append((name, where == "any", re.compile(pattern)))
    return classes


def class_of(frames, classes):
    """The class of a stack, given from its outermost function on."""
    for name, anywhere, pattern in classes:
        if anywhere and any(pattern.search(frame) for frame in frames):
            return name
    for frame in reversed(frames):
        for name, anywhere, pattern in classes:
            if not anywhere and pattern.search(frame):
                return name
    return "other"


HASH = re.compile(r"::h[0-9a-f]{16}$")
OFFSET = re.compile(r"\+0x[0-9a-f]+$")


def stacks(lines):
    """Folded stacks of perf's text, as a dictionary of counts."""
    counts, thread, frames = {}, None, []

    def end():
        if thread is not None:
            key = ";".join([thread] + frames[::-1])
            counts[key] = counts.get(key, 0) + 1

    for line in lines:
        if not line.strip():
            end()
            thread, frames = None, []
        elif not line[0].isspace():
            end()
            # Name, number, time: the event. A name may have spaces.
            thread, frames = re.split(r"\s+\d+(?:/\d+)?\s+(?:\[\d+\]\s+)?[\d.]+:", line)[0].strip(), []
        else:
            parts = line.strip().split(" ", 1)
            if len(parts) < 2:
                continue
            symbol, _, module = parts[1].rpartition(" (")
            name = HASH.sub("", OFFSET.sub("", symbol)).replace(";", ":")
            if name == "[unknown]":
                name = "[kernel]" if "kernel" in module else "[unknown]"
            frames.append(name)
    end()
    return counts


def read_folded(path):
    counts = {}
    for line in Path(path).read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        counts[stack] = counts.get(stack, 0) + int(count)
    return counts


def write_table(classes, out, files):
    names = [name for name, _, _ in classes] + ["other"]
    columns, totals, rates = [], [], []
    for file in files:
        operation = Path(file).stem
        requests, cpu_us, seconds = Path(file).with_suffix(".csv").read_text().strip().split(",")
        counts = read_folded(file)
        samples = sum(counts.values()) or 1
        per_request = float(cpu_us) / max(1.0, float(requests))
        column = dict.fromkeys(names, 0.0)
        for stack, count in counts.items():
            column[class_of(stack.split(";")[1:], classes)] += per_request * count / samples
        columns.append((operation, column))
        totals.append(per_request)
        rates.append(float(requests) / float(seconds))
    shown = [n for n in names if any(column[n] >= MINOR for _, column in columns)]
    lines = ["| microseconds of the server's CPU time | " + " | ".join(o for o, _ in columns) + " |"]
    lines.append("| --- |" + " ---: |" * len(columns))
    for name in shown:
        lines.append(f"| {name} | " + " | ".join(f"{column[name]:.1f}" for _, column in columns) + " |")
    lines.append("| **all of a request** | " + " | ".join(f"**{total:.1f}**" for total in totals) + " |")
    lines.append("| requests/s while it was recorded | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    Path(out).write_text("\n".join(lines) + "\n")
    with Path(out).with_suffix(".csv").open("w") as csv:
        csv.write("class," + ",".join(o for o, _ in columns) + "\n")
        for name in shown:
            csv.write(name.replace(",", "") + "," + ",".join(f"{column[name]:.2f}" for _, column in columns) + "\n")
        csv.write("all," + ",".join(f"{total:.2f}" for total in totals) + "\n")


WIDTH, HEIGHT, CHARACTER = 1200, 15, 6.2


def flame(title, counts, least=0.005):
    """A flame graph after Brendan Gregg's: the width of a function is its share of the samples, its callers lie below it."""
    tree = {}
    total = sum(counts.values()) or 1
    for stack, count in counts.items():
        node = tree
        for frame in stack.split(";"):
            entry = node.setdefault(frame, [0, {}])
            entry[0] += count
            node = entry[1]
    boxes, deepest = [], 0

    def lay(node, x, depth):
        nonlocal deepest
        for frame, (count, inner) in sorted(node.items()):
            if count / total >= least:
                boxes.append((x, depth, count, frame))
                deepest = max(deepest, depth)
                lay(inner, x, depth + 1)
            x += count

    lay(tree, 0, 0)
    height = (deepest + 1) * HEIGHT + 30
    scale = (WIDTH - 20) / total
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="monospace" font-size="10">',
        f'<text x="10" y="16" font-size="13">{html.escape(title)}</text>',
    ]
    for x, depth, count, frame in boxes:
        left, width = 10 + x * scale, count * scale
        top = height - (depth + 1) * HEIGHT - 5
        hue = zlib.crc32(frame.encode()) % 55
        label = html.escape(frame)
        fits = int(width / CHARACTER)
        text = html.escape(frame if len(frame) <= fits else frame[: max(0, fits - 1)] + "…") if fits > 3 else ""
        parts.append(
            f'<g><title>{label}, {100 * count / total:.1f}%</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{HEIGHT - 1}" fill="hsl({hue},85%,68%)"/><text x="{left + 2:.1f}" y="{top + 11}">{text}</text></g>'
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main(arguments):
    match arguments:
        case ["stacks"]:
            for stack, count in sorted(stacks(sys.stdin).items()):
                print(stack, count)
        case ["flame", title]:
            counts = {}
            for line in sys.stdin:
                stack, _, count = line.strip().rpartition(" ")
                counts[stack] = counts.get(stack, 0) + int(count)
            sys.stdout.write(flame(title, counts))
        case ["table", classes, out, *files]:
            write_table(read_classes(classes), out, files)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

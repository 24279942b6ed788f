#!/usr/bin/env python3
"""What a TiKV cluster with servers of Frond can do, by the costs that measure.py has measured.

    plan.py costs.json [--cores 16] [--server-cores 16] [--rtt-ms 0.3] [--network-mib 1200] [--disk-mib 1000] [--copies 3]
    plan.py costs.json --check

For 3, 30 and 300 nodes, with one server for each three nodes: the speed that each bound allows, and the lowest. docs/scale-out.md
explains the bounds. With --check: what the bounds say of the machine that was measured, beside what was measured there.
"""

import argparse
import json

NODES = [3, 30, 300]

# The operations of a transaction of W4.
W4 = (("find by _id", 10), ("scan of 100 with fetch", 4), ("update of an indexed field", 4))

# name, unit, operation whose cost it has, how many of them one unit is, keys written, bytes written, bytes read, trees whose keys
# ascend (1: the documents), round trips in series for one request, units of one request
WORKLOADS = [
    ("W1 insert, four indexes", "documents/s", "insert", 1, 6, 6 * 40 + 202, 0, 1, 4, 1000),
    ("W1 with _ids that do not ascend", "documents/s", "insert", 1, 6, 6 * 40 + 202, 0, 0, 4, 1000),
    ("W2 insert, array of 100 strings", "documents/s", "insert", 17, 102, 102 * 60 + 1500, 0, 1, 4, 1000),
    ("W3 update of a few fields of a large document", "updates/s", "update of an indexed field", 1, 2, 4500, 4500, 0, 6, 1),
    # Ten finds by _id, four ranges, four writes.
    ("W4 Sysbench transaction", "transactions/s", W4, 1, 9, 9 * 150, 14 * 200, 0, 10 + 4 * 3 + 4 * 6, 1),
    ("W5 insert, documents of 2,401 bytes", "documents/s", "insert", 1.5, 3, 2401 + 120, 0, 1, 4, 1000),
    ("find by _id", "finds/s", "find by _id", 1, 0, 0, 300, 0, 1, 1),
    ("scan of 100 with fetch", "scans/s", "scan of 100 with fetch", 1, 0, 0, 100 * 300, 0, 3, 1),
]


def cost(rows, operation):
    """Microseconds of a server and of the nodes for one operation, or for several of some kinds."""
    if operation is W4:
        each = [(cost(rows, one), many) for one, many in operation]
        return tuple(sum(one[side] * many for one, many in each) for side in (0, 1))
    found = [row for row in rows if row["operation"] == operation]
    nodes = max(row["nodes"] for row in found)
    found = [row for row in found if row["nodes"] == nodes]
    busiest = max(found, key=lambda row: row["clients"] * 10 + row["servers"])
    return busiest["server_us"], busiest["node_us"]


def check(costs):
    """Servers, nodes and clients share the processors of the machine that was measured."""
    print("| operation | nodes | servers | clients | bound: processors | measured | measured / bound |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    rows = costs["rows"]
    most = max(row["clients"] for row in rows)
    for row in rows:
        if row["clients"] == most:
            bound = costs["cores"] * 1e6 / (row["server_us"] + row["node_us"] + row["client_us"])
            print(
                f"| {row['operation']} | {row['nodes']} | {row['servers']} | {most} | {bound:,.0f} | {row['per_second']:,.0f} | "
                f"{row['per_second'] / bound:.2f} |"
            )


def bounds(given, workload, nodes):
    name, unit, operation, many, written, bytes_written, bytes_read, ascending, trips, units = workload
    server_us, node_us = cost(given.rows, operation)
    servers = max(1, nodes // 3)
    allowed = {
        "servers": servers * given.server_cores * 1e6 / (server_us * many),
        "nodes": nodes * given.cores * 1e6 / max(node_us * many, 1e-9),
        "network": nodes * given.network_mib * (1 << 20) / max(bytes_written * given.copies + bytes_read, 1),
    }
    if bytes_written:
        allowed["disks"] = nodes * given.disk_mib * (1 << 20) / (bytes_written * given.copies * given.amplification)
    if ascending:
        # The last range of the documents: its leader and its copies work on one key of each document.
        share = 1 / max(written, 1)
        allowed["last range"] = given.cores * 1e6 / (node_us * many * share / given.copies) * given.range_share
    return name, unit, allowed, units / (trips * given.rtt_ms / 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("costs")
    parser.add_argument("--check", action="store_true", help="compare the model with what was measured")
    parser.add_argument("--cores", type=int, default=16, help="of a node")
    parser.add_argument("--server-cores", type=int, default=16)
    parser.add_argument("--rtt-ms", type=float, default=0.3)
    parser.add_argument("--network-mib", type=float, default=1200)
    parser.add_argument("--disk-mib", type=float, default=1000)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--amplification", type=float, default=10, help="bytes that a node writes for one that it keeps")
    parser.add_argument("--range-share", type=float, default=0.25, help="share of a node's processors that one range can use")
    given = parser.parse_args()
    with open(given.costs, encoding="utf-8") as file:
        costs = json.load(file)
    if given.check:
        check(costs)
        return
    given.rows = costs["rows"]
    print("| workload | nodes | servers | speed | bound | next bound | one client alone |")
    print("| --- | ---: | ---: | ---: | --- | --- | ---: |")
    for workload in WORKLOADS:
        for nodes in NODES:
            name, unit, allowed, alone = bounds(given, workload, nodes)
            (first, speed), (second, later) = sorted(allowed.items(), key=lambda one: one[1])[:2]
            print(
                f"| {name} | {nodes} | {max(1, nodes // 3)} | {speed:,.0f} {unit} | {first} | {second}: {later:,.0f} | {alone:,.0f} |"
            )


if __name__ == "__main__":
    main()

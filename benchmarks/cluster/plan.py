#!/usr/bin/env python3
"""What a TiKV cluster with servers of Frond can do, by the costs that measure.py has measured.

    plan.py costs.json [--cores 16] [--server-cores 16] [--rtt-ms 0.3] [--network-mib 1200] [--disk-mib 1000] [--copies 3]

For 3, 30 and 300 nodes, with one server for each three nodes: the speed that each bound allows, and the lowest. docs/scale-out.md
explains the bounds.
"""

import argparse
import json

NODES = [3, 30, 300]

# name, unit, operation whose cost it has, how many of them one unit is, keys written, bytes written, bytes read, trees whose keys
# ascend (1: the documents), round trips in series for one request, units of one request
WORKLOADS = [
    ("W1 insert, four indexes", "documents/s", "insert", 1, 6, 6 * 40 + 202, 0, 1, 3, 1000),
    ("W1 with _ids that do not ascend", "documents/s", "insert", 1, 6, 6 * 40 + 202, 0, 0, 3, 1000),
    ("W2 insert, array of 100 strings", "documents/s", "insert", 17, 102, 102 * 60 + 1500, 0, 1, 3, 1000),
    ("W3 update of a few fields of a large document", "updates/s", "update of an indexed field", 1, 2, 4500, 4500, 0, 4, 1),
    ("W4 Sysbench transaction", "transactions/s", "find by _id", 18, 9, 9 * 150, 14 * 200, 0, 22, 1),
    ("W5 insert, documents of 2,401 bytes", "documents/s", "insert", 1.5, 3, 2401 + 120, 0, 1, 3, 1000),
    ("find by _id", "finds/s", "find by _id", 1, 0, 0, 300, 0, 1, 1),
    ("scan of 100 with fetch", "scans/s", "scan of 100 with fetch", 1, 0, 0, 100 * 300, 0, 3, 1),
]


def cost(rows, operation):
    """Microseconds of a server and of the nodes for one operation, and the best speed of one range that was measured."""
    found = [row for row in rows if row["operation"] == operation]
    nodes = max(row["nodes"] for row in found)
    found = [row for row in found if row["nodes"] == nodes]
    busiest = max(found, key=lambda row: row["clients"] * 10 + row["servers"])
    return busiest["server_us"], busiest["node_us"], max(row["per_second"] for row in found)


def bounds(given, workload, nodes):
    name, unit, operation, many, written, bytes_written, bytes_read, ascending, trips, units = workload
    server_us, node_us, _ = cost(given.rows, operation)
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
    parser.add_argument("--cores", type=int, default=16, help="of a node")
    parser.add_argument("--server-cores", type=int, default=16)
    parser.add_argument("--rtt-ms", type=float, default=0.3)
    parser.add_argument("--network-mib", type=float, default=1200)
    parser.add_argument("--disk-mib", type=float, default=1000)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--amplification", type=float, default=10, help="bytes that a node writes for one that it keeps")
    parser.add_argument("--range-share", type=float, default=0.25, help="share of a node's processors that one range can use")
    given = parser.parse_args()
    with open(given.costs, encoding="utf-8") as costs:
        given.rows = json.load(costs)["rows"]
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

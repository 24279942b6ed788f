"""Shared by the scripts beside it: servers, connections, turns, and the tables of reports."""

import argparse
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import bson

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "clients"))
from harness.server import Server  # noqa: E402, F401

OP_MSG = 2013
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def arguments(description, server="store", **options):
    """A parser with `--server`, and an option for each keyword: its default, or that and its help."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--server", required=True, action=server)
    for name, value in options.items():
        default, text = value if isinstance(value, tuple) else (value, None)
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default, help=text)
    return parser


def message(command):
    body = b"\0\0\0\0\0" + bson.encode(command)
    return struct.pack("<iiii", 16 + len(body), 1, 0, OP_MSG) + body


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(1 << 20)

    def ask(self, sent):
        """Sends a message and returns the body of the reply, which is not decoded."""
        self.socket.sendall(sent)
        got = 0
        while got < 4 or got < int.from_bytes(self.buffer[:4], "little"):
            more = self.socket.recv_into(memoryview(self.buffer)[got:])
            if not more:
                raise ConnectionError("the server closed the connection")
            got += more
        return self.buffer[21:got]

    def run(self, command):
        reply = bson.decode(self.ask(message(command)))
        if reply.get("ok") != 1 or reply.get("writeErrors"):
            raise RuntimeError(f"{list(command)[0]}: {reply}")
        return reply

    def run_all(self, messages):
        """Seconds for all messages, one after the other."""
        began = time.perf_counter()
        for sent in messages:
            # `ok` comes last in a reply; errors have other fields.
            if b"errmsg" in self.ask(sent) or b"writeErrors" in self.buffer[:512]:
                raise RuntimeError(bson.decode(bytes(self.buffer[21 : int.from_bytes(self.buffer[:4], "little")])))
        return time.perf_counter() - began

    def insert(self, name, documents, batch=1000, database="bench"):
        for start in range(0, len(documents), batch):
            self.run({"insert": name, "documents": documents[start : start + batch], "$db": database})


def cpu_seconds(*pids):
    """Processor time of processes so far."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_SECOND


def bench(binary, *words, silent=False):
    """Runs a command of `frond bench`. Returns the lines that it prints, as figures by name."""
    command = [binary, "bench", *map(str, words)]
    errors = subprocess.DEVNULL if silent else None
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=errors, text=True).stdout
    lines = (re.fullmatch(r"(.+?)\s{2,}([\d.,]+)(?:/s| ms)?", line) for line in printed.splitlines())
    return {line[1]: float(line[2].replace(",", "")) for line in lines if line}


def insertion(binary, server, documents, *more, silent=False):
    """W1 on a server, without a report."""
    with tempfile.TemporaryDirectory() as folder:
        bench(binary, "insert", "--uri", uri(server), "--documents", documents, "--quiet", "--out", folder, *more, silent=silent)


def uri(server):
    return f"mongodb://127.0.0.1:{server.port}/"


def in_turns(rounds, sides):
    """The sides, `rounds` times, in the opposite order every other time, so that the machine's drift affects all of them."""
    for turn in range(rounds):
        yield from sides if turn % 2 == 0 else list(reversed(sides))


def ratios(over, under):
    return [a / b for a, b in zip(over, under)]


def row(name, values, unit, digits=1):
    shown = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"| {name} | {statistics.median(values):.{digits}f} {unit} | {shown} |"


def compared(title, names, sides, unit, digits=0, ratio_digits=2, ratio=None):
    """Both sides, and the second one relative to the first one."""
    return [
        row(f"{title}{names[0]}", sides[0], unit, digits),
        row(f"{title}{names[1]}", sides[1], unit, digits),
        row(f"{title}{ratio or names[1] + ' / ' + names[0]}", ratios(sides[1], sides[0]), "", ratio_digits),
    ]


def report(options, about, rows):
    version = subprocess.run([options.server, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"{version}, {os.cpu_count()} cores that the client shares, cache {options.cache_gb} GiB, {about}\n")
    print("| measured | median | each round |\n| --- | --- | --- |")
    print("\n".join(rows))

"""What is measured beside a load: the server's memory, threads and handles, the disk, and the time of a find by `_id`."""

import csv
import json
import multiprocessing
import os
import socket
import struct
import threading
import time

from harness import raw

PROBED = 1000
"""Documents of the collection that is probed, `probe.fixed`, with the ids from 0."""


class Group:
    """A memory control group, version 1 or 2, that a script has made; or none."""

    def __init__(self, folder):
        self.folder = folder

    def wrap(self):
        """A command that starts another one in the group."""
        if not self.folder:
            return ()
        return ("bash", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.folder)

    def _read(self, *names):
        for name in names:
            try:
                with open(os.path.join(self.folder, name), encoding="ascii") as file:
                    return file.read()
            except (OSError, TypeError):
                continue
        return ""

    def usage_mib(self):
        """What the group uses, page cache included."""
        return int(self._read("memory.current", "memory.usage_in_bytes") or 0) / 1048576

    def limit_mib(self):
        """Its limit; 0 without a group."""
        return int(self._read("memory.max", "memory.limit_in_bytes") or 0) // 1048576

    def set_limit_mib(self, mib):
        """Changes its limit. A server has read the old one when it started."""
        for name in ("memory.max", "memory.memsw.limit_in_bytes", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            try:
                with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
                    file.write(str(mib << 20))
            except (OSError, TypeError):
                continue

    def parts_mib(self):
        """What the group uses apart from the page cache, which the kernel takes back: memory of its processes (files that are mapped and
        in use are not among it), memory of the kernel without sockets, and buffers of sockets. Version 2 counts all three against the
        limit; version 1 counts sockets by themselves, and only once `memory.kmem.tcp.limit_in_bytes` was written."""
        stat = {}
        for line in self._read("memory.stat").splitlines():
            name, _, value = line.partition(" ")
            stat[name] = int(value)
        if "anon" in stat:
            return stat["anon"] / 1048576, stat.get("kernel", 0) / 1048576, stat.get("sock", 0) / 1048576
        kernel = int(self._read("memory.kmem.usage_in_bytes") or 0)
        sockets = int(self._read("memory.kmem.tcp.usage_in_bytes") or 0)
        return stat.get("rss", 0) / 1048576, kernel / 1048576, sockets / 1048576

    def kills(self):
        """How often the kernel killed a process of the group for its memory."""
        for line in self._read("memory.events", "memory.oom_control").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0


def process_status(pid):
    """Resident MiB, its peak, threads and handles of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            fields = dict(line.split(":", 1) for line in status if ":" in line)
        handles = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    if "VmRSS" not in fields:
        return None
    mib = lambda name: int(fields[name].split()[0]) / 1024  # noqa: E731
    return mib("VmRSS"), mib("VmHWM"), int(fields["Threads"]), handles


def folder_mib(path):
    """The blocks that the files of a folder take."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                pass
    return total / 1048576


def percentile(values, share):
    """A value that this share of the values do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def budget_of(port):
    """The memory budget of a server: its limits and uses in bytes, of `serverStatus`. None while it does not answer."""
    try:
        with raw.Connection(port, 2) as connection:
            return connection.command({"serverStatus": 1})["frond"]
    except (OSError, raw.Closed, struct.error, KeyError):
        return None


class Sampler(threading.Thread):
    """Samples the server four times a second into a table, until it is stopped. With `budget`, what its budget counts, once a second
    into a file of JSON lines beside the table."""

    COLUMNS = ("elapsed_s", "pid", "resident_mib", "peak_mib", "group_mib", "anonymous_mib", "kernel_mib", "sockets_mib", "threads", "handles",
               "disk_mib")

    def __init__(self, server, group, path, budget=False):
        super().__init__(daemon=True)
        self.server, self.group, self.path = server, group, path
        self.ending = threading.Event()
        self.rows = []
        self.budget = threading.Thread(target=self._sample_budget, daemon=True) if budget else None

    def _sample_budget(self):
        began = time.monotonic()
        with open(os.path.join(os.path.dirname(self.path), "budget.jsonl"), "w", encoding="ascii") as file:
            while not self.ending.wait(1):
                found = budget_of(self.server.port)
                if found:
                    memory = {**found["memory"], "cache": found.get("cache")}
                    file.write(json.dumps({"elapsed_s": round(time.monotonic() - began, 1), **memory}, default=str) + "\n")
                    file.flush()

    def run(self):
        began = time.monotonic()
        if self.budget:
            self.budget.start()
        with open(self.path, "w", newline="", encoding="ascii") as file:
            table = csv.writer(file)
            table.writerow(self.COLUMNS)
            while not self.ending.wait(0.25):
                pid = self.server.pid
                status = process_status(pid)
                if status is None:
                    continue
                resident, peak, threads, handles = status
                disk = folder_mib(self.server.dbpath)
                row = (time.monotonic() - began, pid, resident, peak, self.group.usage_mib(), *self.group.parts_mib(), threads, handles, disk)
                self.rows.append(row)
                table.writerow([f"{value:.1f}" if isinstance(value, float) else value for value in row])
                file.flush()

    def stop(self):
        self.ending.set()
        self.join()

    def column(self, name, since=0.0):
        """The samples of a column from this second on."""
        place = self.COLUMNS.index(name)
        return [row[place] for row in self.rows if row[0] >= since]


def make_probed(server):
    """Writes the documents that are probed."""
    with raw.Connection(server.port) as connection:
        documents = [{"_id": number, "text": "x" * 200} for number in range(PROBED)]
        reply = connection.command({"insert": "fixed", "documents": documents, "ordered": False}, "probe")
        if reply.get("ok") != 1:
            raise RuntimeError(f"the probed documents cannot be written: {reply}")


def _probe(port, ending, results, pause):
    """Finds by `_id` again and again, each timed. A server that is away is waited for."""
    number, began = 0, time.monotonic()
    samples, errors, since = [], [], began
    connection = None
    while not ending.is_set():
        number = (number + 617) % PROBED
        message = raw.op_msg({"find": "fixed", "filter": {"_id": number}, "limit": 1, "singleBatch": True}, "probe")
        sent = None
        try:
            if connection is None:
                connection = raw.Connection(port)
            sent = time.perf_counter()
            connection.send(message)
            _, _, reply = connection.receive()
            took = time.perf_counter() - sent
            if reply.get("ok") == 1 and reply["cursor"]["firstBatch"]:
                samples.append((time.monotonic() - began, took))
            else:
                errors.append(f"{reply}"[:300])
        except socket.timeout:
            errors.append("no answer to a find")
            connection = None
        except (OSError, raw.Closed, struct.error):
            # Down, or not up again. Whoever killed it knows.
            connection = None
            time.sleep(0.05)
        time.sleep(pause)
        if time.monotonic() - since > 1:
            results.put((samples, errors))
            samples, errors, since = [], [], time.monotonic()
    results.put((samples, errors))
    results.put(None)


class Prober:
    """A process of its own that finds by `_id`, so that nothing else here delays it."""

    def __init__(self, port, pause=0.005):
        context = multiprocessing.get_context("fork")
        self.ending, self.results = context.Event(), context.Queue()
        self.process = context.Process(target=_probe, args=(port, self.ending, self.results, pause), daemon=True)
        self.process.start()
        self.samples, self.errors = [], []
        self.reader = threading.Thread(target=self._collect, daemon=True)
        self.reader.start()

    def _collect(self):
        while (part := self.results.get()) is not None:
            self.samples.extend(part[0])
            self.errors.extend(part[1])

    def stop(self):
        """Ends it; the times in milliseconds are in `took_ms`."""
        self.ending.set()
        self.process.join(40)
        self.reader.join(5)

    def took_ms(self, since=0.0):
        """The times of all finds from this second on."""
        return [took * 1000 for at, took in list(self.samples) if at >= since]

    def write(self, path):
        """Writes a table of each second: how many finds, and their 50th and 99th percentile in milliseconds."""
        seconds = {}
        for at, took in self.samples:
            seconds.setdefault(int(at), []).append(took * 1000)
        with open(path, "w", newline="", encoding="ascii") as file:
            table = csv.writer(file)
            table.writerow(("elapsed_s", "finds", "p50_ms", "p99_ms"))
            for second, times in sorted(seconds.items()):
                table.writerow((second, len(times), f"{percentile(times, 0.5):.2f}", f"{percentile(times, 0.99):.2f}"))

"""The lag of a standby while W1 (`frond bench insert`) runs on its primary, both on this machine: sampled each 50 ms."""

import statistics
import threading
import time

from common import Server, arguments, cpu_seconds, insertion
from pymongo import MongoClient


def connect(server):
    return MongoClient(f"mongodb://127.0.0.1:{server.port}/?directConnection=true")


def last(client):
    return client.admin.command("hello")["lastWrite"]["opTime"]["ts"]


class Sampler(threading.Thread):
    """Asks the standby how far it is."""

    def __init__(self, standby):
        super().__init__(daemon=True)
        self.client, self.lags, self.waiting, self.ends = connect(standby), [], [], threading.Event()

    def run(self):
        while not self.ends.wait(0.05):
            found = self.client.admin.command("serverStatus", metrics=0)["frond"]["standby"]
            self.lags.append(found.get("lagSeconds", 0.0))
            self.waiting.append(found["waitingEntries"])


def main():
    parser = arguments(__doc__, documents=2_000_000, cache_gb="0.5")
    parser.add_argument("--no-standby", action="store_true", help="the primary alone, to compare")
    given = parser.parse_args()
    options = ["--cacheSizeGB", given.cache_gb]
    with Server(given.server, options=options, replica_set="rs0") as primary, Server(given.server) as standby:
        primary.start()
        standby.options = [*options, "--follow", f"mongodb://127.0.0.1:{primary.port}"]
        ours, theirs, sampler = None, connect(primary), None
        if not given.no_standby:
            standby.start()
            ours, sampler = connect(standby), Sampler(standby)
            while ours.admin.command("serverStatus", metrics=0)["frond"]["standby"]["state"] != "following":
                time.sleep(0.05)
            sampler.start()
        before = [cpu_seconds(server.pid) for server in (primary, standby) if server.process]
        began = time.monotonic()
        insertion(given.server, primary, given.documents)
        inserted = time.monotonic() - began
        print(f"{given.documents} documents in {inserted:.1f} s: {given.documents / inserted:,.0f} per second")
        used = [cpu_seconds(server.pid) for server in (primary, standby) if server.process]
        print("processor seconds: " + ", ".join(
            f"{name} {after - start:.1f}" for name, start, after in zip(("primary", "standby"), before, used)))
        if given.no_standby:
            return
        end = last(theirs)
        while last(ours) < end:
            time.sleep(0.01)
        behind = time.monotonic() - began - inserted
        sampler.ends.set()
        sampler.join()
        lags = sorted(sampler.lags)
        print(f"lag in seconds: median {statistics.median(lags):.2f}, 99% {lags[int(len(lags) * 0.99)]:.2f}, most {lags[-1]:.2f}; "
              f"caught up {behind:.2f} s after the last document; at most {max(sampler.waiting)} entries waited")
        for name in theirs.list_database_names():
            if name != "local":
                hashes = [client[name].command("dbHash")["collections"] for client in (theirs, ours)]
                assert hashes[0] == hashes[1], name
        print("equal")


if __name__ == "__main__":
    main()

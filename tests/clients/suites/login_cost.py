"""What logins cost the server, and what 1,000 of them at once do to others. `make login-cost` runs it with a release build.

It prints the processor time of the server for each login, and the latencies of a client that finds by `_id` the whole time, without
and beside 1,000 connections that log in at once. It fails beyond 15 ms of one core for a login, and 50 ms for the 99th
percentile of the finds.
"""

import json
import os
import subprocess
import sys
import time

from harness import raw
from harness.scram import Conversation, SecuredServer, login
from harness.tap import run, test

LOGINS = int(os.environ.get("FROND_LOGINS", "1000"))
CPU_MILLIS_MAX = 15
P99_MILLIS_MAX = 50
TICKS = os.sysconf("SC_CLK_TCK")
USERS = {"SCRAM-SHA-256": "u256", "SCRAM-SHA-1": "u1"}


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class CachedConversation(Conversation):
    """A client that keeps the salted password, as drivers do: its own work must not slow the server on the same machine."""

    _known = {}

    def salted(self, salt, iterations):
        key = (self.digest, self.password, salt, iterations)
        if key not in self._known:
            self._known[key] = super().salted(salt, iterations)
        return self._known[key]


def log_in_at_once(server, mechanism, count):
    """Logs many connections in, each step for all of them at once. Returns the seconds that it took."""
    connections = [raw.Connection(server.port, timeout=120) for _ in range(count)]
    try:
        talks = [CachedConversation(mechanism, USERS[mechanism], "right") for _ in connections]
        began = time.monotonic()
        for connection, talk in zip(connections, talks):
            start = {"saslStart": 1, "mechanism": mechanism, "payload": talk.first, "options": {"skipEmptyExchange": True}}
            connection.send(raw.op_msg(start, "own"))
        for connection, talk in zip(connections, talks):
            reply = connection.receive()[2]
            assert reply["ok"] == 1, reply
            payload = talk.final(reply["payload"].decode())
            proof = {"saslContinue": 1, "conversationId": reply["conversationId"], "payload": payload}
            connection.send(raw.op_msg(proof, "own"))
        for connection in connections:
            reply = connection.receive()[2]
            assert reply["ok"] == 1 and reply["done"], reply
        return time.monotonic() - began
    finally:
        for connection in connections:
            connection.socket.close()


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def find_until_told():
    """The process of the other client: it finds by `_id` until its input ends, and prints its latencies in milliseconds."""
    with raw.Connection(int(sys.argv[2])) as connection:
        login(connection, *SecuredServer.ADMIN)
        times = []
        message = raw.op_msg({"find": "c", "filter": {"_id": 1}, "limit": 1, "singleBatch": True}, "own")
        os.set_blocking(0, False)
        print("ready", flush=True)
        while _input_is_open():
            began = time.perf_counter()
            connection.send(message)
            connection.receive()
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(0.0005)
        print(json.dumps(times))


def _input_is_open():
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


class Finder:
    def __init__(self, server):
        command = [sys.executable, __file__, "find", str(server.port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def latencies(self):
        self.process.stdin.close()
        times = json.loads(self.process.stdout.readline())
        self.process.wait()
        return times


def measure(server, mechanism):
    # The caches of both sides are warm in a server that runs.
    log_in_at_once(server, mechanism, 20)
    before = cpu_seconds(server.pid)
    for _ in range(5):
        log_in_at_once(server, mechanism, 100)
    each = (cpu_seconds(server.pid) - before) / 500 * 1000
    finder = Finder(server)
    time.sleep(3)
    alone = finder.latencies()
    finder = Finder(server)
    time.sleep(0.2)
    rounds, took = 0, 0.0
    while took < 3 or rounds < 3:
        took += log_in_at_once(server, mechanism, LOGINS)
        rounds += 1
    beside = finder.latencies()
    print(
        f"# {mechanism}: {each:.2f} ms of a core for a login and its connection; {rounds} times {LOGINS} logins at once in "
        f"{took / rounds:.2f} s each; finds alone p50 {percentile(alone, 0.5):.2f} ms p99 {percentile(alone, 0.99):.2f} ms, "
        f"beside the logins p50 {percentile(beside, 0.5):.2f} ms p99 {percentile(beside, 0.99):.2f} ms ({len(beside)} finds)"
    )
    assert each <= CPU_MILLIS_MAX, f"{each:.2f} ms"
    assert percentile(beside, 0.99) <= P99_MILLIS_MAX, f"p99 {percentile(beside, 0.99):.2f} ms"


def main():
    with SecuredServer(os.environ["FROND_BINARY"]) as server:
        server.start()
        with raw.Connection(server.port) as connection:
            login(connection, *SecuredServer.ADMIN)
            for mechanism, name in USERS.items():
                user = {"createUser": name, "pwd": "right", "roles": ["read"], "mechanisms": [mechanism]}
                assert connection.command(user, "own")["ok"] == 1
            connection.command({"insert": "c", "documents": [{"_id": 1}]}, "own")
        for mechanism in USERS:

            def of_mechanism(server, mechanism=mechanism):
                measure(server, mechanism)

            of_mechanism.__name__ = f"logins by {mechanism} are cheap and do not stop others"
            test(of_mechanism)
        run(server)


if __name__ == "__main__":
    if sys.argv[1:2] == ["find"]:
        find_until_told()
    else:
        main()

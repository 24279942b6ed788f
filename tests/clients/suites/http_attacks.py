"""The HTTP server under half-sent requests, guesses of passwords, and names that other pages give it."""

import base64
import http.client
import json
import os
import socket
import threading
import time

from harness.ports import free_port
from harness.scram import SecuredServer
from harness.server import Server
from harness.tap import equal, run, test
from harness.waiting import PATIENCE, wait_until

BINARY = os.environ["FROND_BINARY"]
CONNECTIONS = 128


def ask(port, path, headers=(), source="127.0.0.1"):
    """The status, the headers and the text of a reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, PATIENCE, source_address=(source, 0))
    try:
        connection.request("GET", path, headers=dict(headers))
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()
    finally:
        connection.close()


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class Setting:
    """The ports of a server without logins and of one with them."""

    def __init__(self, port, secured_port):
        self.port, self.secured_port = port, secured_port


@test
def metrics_are_for_known_hosts(setting):
    for host, expected in [
        (None, 200),
        ("127.0.0.1", 200),
        ("[::1]:28017", 200),
        ("localhost:28017", 200),
        ("frond.monitoring.svc:28017", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ]:
        headers = {} if host is None else {"Host": host}
        status, _, text = ask(setting.port, "/metrics", headers)
        equal(status, expected, host)
        assert ("frond_" in text) == (expected == 200) and (expected == 200 or "net.http.hosts" in text), text
        # Health says nothing of the data, and load balancers give any name.
        for path in ("/health/live", "/health/ready"):
            equal(ask(setting.port, path, headers)[0], 200, host)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        equal(ask(setting.port, "/metrics", headers)[0], 403)


@test
def half_sent_requests_keep_no_others_out(setting):
    began = time.monotonic()
    # One address has at most half of the places.
    half_sent = []
    for number in range(2 * CONNECTIONS):
        source = f"127.0.0.{2 + number % 4}"
        half_sent.append(socket.create_connection(("127.0.0.1", setting.port), PATIENCE, source_address=(source, 0)))
        half_sent[-1].sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-")
    status, _, text = ask(setting.port, "/health/live")
    equal((status, json.loads(text)), (200, {"status": "live"}))
    if time.monotonic() - began < 5:
        # It did not wait until they were too late.
        assert sum(is_open(one) for one in half_sent) > CONNECTIONS / 2
    for one in half_sent:
        one.close()
    # From the same address as the request.
    half_sent = [socket.create_connection(("127.0.0.1", setting.port), PATIENCE) for _ in range(CONNECTIONS)]

    def answers():
        return ask(setting.port, "/health/live")[0] == 200

    wait_until("an answer", answers, passing=(OSError, http.client.HTTPException))
    for one in half_sent:
        one.close()


def is_open(connection):
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


@test
def guesses_of_a_password_are_slow(setting):
    user, password = SecuredServer.ADMIN
    equal(ask(setting.secured_port, "/metrics", basic(user, password))[0], 200)
    statuses, ends = [], time.monotonic() + 5
    began = time.monotonic()

    def guess():
        while time.monotonic() < ends:
            status, headers, _ = ask(setting.secured_port, "/metrics", basic(user, "wrong"))
            equal("Retry-After" in headers, status == 429)
            statuses.append(status)

    threads = [threading.Thread(target=guess) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tried = statuses.count(401)
    # Ten are free; then each one waits longer, up to 5 s.
    assert tried <= 17 + (time.monotonic() - began) / 4, f"{tried} guesses in 5 s"
    equal(set(statuses), {401, 429})
    # Other addresses are not affected, and the pause ends.
    equal(ask(setting.secured_port, "/metrics", basic(user, password), source="127.0.0.2")[0], 200)
    wait_until("a login", lambda: ask(setting.secured_port, "/metrics", basic(user, password))[0] == 200)
    equal(ask(setting.secured_port, "/metrics", basic(user, password))[0], 200)


def main():
    setting = Setting(free_port(), free_port())
    options = ["--httpPort", str(setting.port), "--httpHosts", "frond.monitoring.svc"]
    with Server(BINARY, options) as server, SecuredServer(BINARY, ["--httpPort", str(setting.secured_port)]) as secured:
        server.start()
        secured.start()
        run(setting)


if __name__ == "__main__":
    main()

"""Ports for servers of tests. A port that the system picks may be given to another program between two starts of a server."""

import fcntl
import os
import random
import socket
import tempfile

_FOLDER = os.path.join(tempfile.gettempdir(), f"frond-test-ports-{os.getuid()}")
# The files of the ports that this process has, locked until it ends.
_held = []


def _range():
    """Ports that the system gives to no client, if there are some."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as limits:
            first = int(limits.read().split()[0])
    except OSError:
        first = 32_768
    return range(10_000, 20_000) if first >= 20_000 else range(50_000, 65_000)


def free_port():
    """A port that is free, and that no other test gets while this process runs."""
    os.makedirs(_FOLDER, exist_ok=True)
    for port in random.Random().sample(_range(), 500):
        lock = open(os.path.join(_FOLDER, str(port)), "w", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                # As the server does: connections that have ended do not keep it.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        return port
    raise OSError("no port is free")


def adjacent_free_ports(count):
    """The first of so many ports in a row that are free. No other test gets the first one."""
    while True:
        first = free_port()
        try:
            for port in range(first + 1, first + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first

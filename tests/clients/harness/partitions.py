"""A network between servers on this machine, in which messages of one to another can be lost: a proxy before each server.

Servers name each other by the addresses of the proxies. A proxy finds out which server has opened a connection by the process
that owns its socket, so that each pair can be cut off, also in one direction only. Other connections, those of clients, are passed on.
"""

import asyncio
import multiprocessing
import os

from .ports import free_port

CHUNK = 1 << 16


class Network:
    """The proxies, in a process of their own."""

    def __init__(self, count):
        self.ports = [free_port() for _ in range(count)]
        context = multiprocessing.get_context("spawn")
        self._commands, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self.ports, theirs), daemon=True)
        self._process.start()
        theirs.close()
        assert self._commands.recv() == "ready"

    @property
    def hosts(self):
        return [f"127.0.0.1:{port}" for port in self.ports]

    def _do(self, *command):
        self._commands.send(command)
        assert self._commands.recv() == "done"

    def connect(self, members):
        """Tells which server is behind each proxy. Called again when a server was restarted."""
        self._do("servers", {member.number: (member.port, member.pid) for member in members if member.process})

    def cut(self, pairs):
        """From now on nothing gets from the first to the second server of each pair."""
        self._do("cut", frozenset(pairs))

    def heal(self, reset):
        """All is passed on again, and what was held back arrives; with `reset` connections that were cut end instead."""
        self._do("heal", reset)

    def close(self):
        self._process.kill()
        self._process.join()


def isolated(one, others, to=True, back=True):
    """The pairs that are cut if messages to and from one server are lost."""
    return {(other, one) for other in others if to} | {(one, other) for other in others if back}


def _serve(ports, commands):
    asyncio.run(_Proxies(ports, commands).run())


class _Proxies:
    def __init__(self, ports, commands):
        self.ports, self.commands = ports, commands
        self.targets, self.pids = {}, {}
        self.lost = frozenset()
        self.healed = asyncio.Event()
        # Connections by the pair of servers that they connect.
        self.connections = set()

    async def run(self):
        for number, port in enumerate(self.ports):
            await asyncio.start_server(lambda reader, writer, number=number: self.accept(number, reader, writer), "127.0.0.1", port)
        loop = asyncio.get_running_loop()
        loop.add_reader(self.commands.fileno(), self.command)
        self.commands.send("ready")
        await loop.create_future()

    def command(self):
        try:
            kind, given = self.commands.recv()
        except EOFError:
            os._exit(0)
        if kind == "servers":
            self.targets = {number: port for number, (port, _) in given.items()}
            self.pids = {number: pid for number, (_, pid) in given.items()}
        elif kind == "cut":
            self.lost = given
            self.healed.clear()
        else:
            if given:
                for pair, writers in list(self.connections):
                    if pair in self.lost or pair[::-1] in self.lost:
                        for writer in writers:
                            writer.transport.abort()
            self.lost = frozenset()
            self.healed.set()
        self.commands.send("done")

    async def accept(self, number, reader, writer):
        source = self.owner_of(writer.get_extra_info("peername")[1], self.ports[number])
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.targets[number])
        except (OSError, KeyError):
            writer.transport.abort()
            return
        entry = ((source, number), (writer, back))
        self.connections.add(entry)
        pumps = [
            asyncio.ensure_future(self.pump(reader, back, (source, number))),
            asyncio.ensure_future(self.pump(there, writer, (number, source))),
        ]
        # When one side has closed its connection, the other is closed, too.
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self.connections.discard(entry)
        for one in (writer, back):
            one.transport.abort()

    async def pump(self, reader, writer, pair):
        try:
            while data := await reader.read(CHUNK):
                while pair in self.lost:
                    await self.healed.wait()
                writer.write(data)
                await writer.drain()
            # The end of a connection is a message, too.
            while pair in self.lost:
                await self.healed.wait()
        except OSError:
            pass

    def owner_of(self, port, to):
        """The number of the server whose process has the connection from this port, or None."""
        ends = f":{port:04X}", f":{to:04X}"
        with open("/proc/net/tcp", encoding="ascii") as table:
            lines = (line.split() for line in table)
            inode = next((line[9] for line in lines if line[1].endswith(ends[0]) and line[2].endswith(ends[1])), None)
        for number, pid in self.pids.items():
            try:
                files = os.scandir(f"/proc/{pid}/fd")
            except OSError:
                continue
            for file in files:
                try:
                    if os.readlink(file.path) == f"socket:[{inode}]":
                        return number
                except OSError:
                    pass
        return None

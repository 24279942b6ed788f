"""Wire messages and BSON without a driver, for malformed messages and for checking that a server is up.

Only the standard library is used, so that it can be imported next to any driver's own `bson`.
"""

import socket
import ssl
import struct
import uuid
import zlib

from .waiting import PATIENCE

OP_REPLY = 1
OP_UPDATE = 2001
OP_INSERT = 2002
OP_QUERY = 2004
OP_GET_MORE = 2005
OP_DELETE = 2006
OP_KILL_CURSORS = 2007
OP_COMPRESSED = 2012
OP_MSG = 2013

MORE_TO_COME = 2


class Long(int):
    """A number that is sent with 64 bits."""


def encode(document):
    """BSON of a dict of str, Long, UUID, bool, int, float, None, bytes, dict and list."""
    body = b"".join(_element(name, value) for name, value in document.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _element(name, value):
    key = name.encode() + b"\0"
    if isinstance(value, uuid.UUID):
        return b"\x05" + key + struct.pack("<i", 16) + b"\4" + value.bytes
    if isinstance(value, Long):
        return b"\x12" + key + struct.pack("<q", value)
    if isinstance(value, bool):
        return b"\x08" + key + (b"\1" if value else b"\0")
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return b"\x10" + key + struct.pack("<i", value)
        return b"\x12" + key + struct.pack("<q", value)
    if isinstance(value, float):
        return b"\x01" + key + struct.pack("<d", value)
    if value is None:
        return b"\x0a" + key
    if isinstance(value, str):
        text = value.encode() + b"\0"
        return b"\x02" + key + struct.pack("<i", len(text)) + text
    if isinstance(value, bytes):
        return b"\x05" + key + struct.pack("<i", len(value)) + b"\0" + value
    if isinstance(value, dict):
        return b"\x03" + key + encode(value)
    if isinstance(value, list):
        return b"\x04" + key + encode({str(i): item for i, item in enumerate(value)})
    raise TypeError(f"no BSON for {type(value)}")


def decode(data):
    """The document at the start of `data` as a dict. Values of other types become bytes."""
    (length,) = struct.unpack_from("<i", data)
    at, end, found = 4, length - 1, {}
    while at < end:
        tag = data[at]
        zero = data.index(b"\0", at + 1)
        name = data[at + 1 : zero].decode()
        value, at = _value(tag, data, zero + 1)
        found[name] = value
    return found


def _value(tag, data, at):
    if tag == 0x01:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if tag == 0x02:
        (size,) = struct.unpack_from("<i", data, at)
        return data[at + 4 : at + 3 + size].decode(), at + 4 + size
    if tag in (0x03, 0x04):
        (size,) = struct.unpack_from("<i", data, at)
        inner = decode(data[at : at + size])
        return (inner if tag == 0x03 else list(inner.values())), at + size
    if tag == 0x05:
        (size,) = struct.unpack_from("<i", data, at)
        return data[at + 5 : at + 5 + size], at + 5 + size
    if tag == 0x07:
        return data[at : at + 12], at + 12
    if tag == 0x08:
        return data[at] == 1, at + 1
    if tag in (0x09, 0x11, 0x12):
        return struct.unpack_from("<q", data, at)[0], at + 8
    if tag == 0x0A:
        return None, at
    if tag == 0x10:
        return struct.unpack_from("<i", data, at)[0], at + 4
    raise ValueError(f"no reader for BSON type {tag:#x}")


def header(length, request_id, opcode):
    return struct.pack("<iiii", length, request_id, 0, opcode)


def message(opcode, body, request_id=1):
    return header(16 + len(body), request_id, opcode) + body


def op_msg(command, database="admin", request_id=1, flags=0):
    body = struct.pack("<I", flags) + b"\0" + encode({**command, "$db": database})
    return message(OP_MSG, body, request_id)


def op_query(command, namespace="admin.$cmd", request_id=1, skip=0, count=-1):
    body = struct.pack("<I", 0) + namespace.encode() + b"\0" + struct.pack("<ii", skip, count)
    return message(OP_QUERY, body + encode(command), request_id)


def op_insert(namespace, documents, request_id=1, flags=0):
    body = struct.pack("<I", flags) + namespace.encode() + b"\0"
    return message(OP_INSERT, body + b"".join(encode(d) for d in documents), request_id)


class Closed(Exception):
    """The server closed the connection."""


class Connection:
    """A socket that sends any bytes and reads whole messages."""

    def __init__(self, port, timeout=PATIENCE, tls=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context(cafile=tls.ca.certificate)
            context.load_cert_chain(tls.client)
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed() from error

    def _read(self, size):
        data = b""
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError as error:
                raise Closed() from error
            if not piece:
                raise Closed()
            data += piece
        return data

    def receive(self):
        """The next message as (opcode, response_to, first document)."""
        head = self._read(16)
        length, _, response_to, opcode = struct.unpack("<iiii", head)
        rest = self._read(length - 16)
        if opcode == OP_COMPRESSED and rest[8] == 2:
            (opcode,) = struct.unpack_from("<i", rest)
            rest = zlib.decompress(rest[9:])
        if opcode == OP_MSG:
            return opcode, response_to, decode(rest[5:])
        if opcode == OP_REPLY:
            (returned,) = struct.unpack_from("<i", rest, 16)
            return opcode, response_to, decode(rest[20:]) if returned else None
        return opcode, response_to, None

    def command(self, command, database="admin"):
        self.send(op_msg(command, database))
        return self.receive()[2]


def ping(port, timeout=PATIENCE, tls=None):
    """Whether a server replies."""
    try:
        with Connection(port, timeout, tls) as connection:
            return connection.command({"ping": 1}).get("ok") == 1
    except (OSError, Closed):
        return False

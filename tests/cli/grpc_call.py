"""Calls a unary method of gRPC with Python's standard library alone: HTTP/2 frames and Protocol Buffers by hand.

It reads the messages of the answer, not its headers: a call that fails has no message.
"""

import socket
import struct

DATA, HEADERS, SETTINGS, PING, END_STREAM, END_HEADERS, ACK = 0, 1, 4, 6, 1, 4, 1


def varint(number):
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def field(number, value):
    """A field of a message: bytes, a text, or a list of whole numbers, packed."""
    if isinstance(value, list):
        value = b"".join(varint(each) for each in value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """(number, bytes or number) of each field."""
    at = 0

    def read():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
    while at < len(message):
        key = read()
        if key & 7 == 0:
            yield key >> 3, read()
        else:
            size = read()
            yield key >> 3, message[at:at + size]
            at += size


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header, neither indexed nor compressed."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


def call(address, method, message):
    """The message that the server at HOST:PORT answers; None: the call failed."""
    host, port = address.rsplit(":", 1)
    head = b"".join(literal(name, value) for name, value in (
        (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", address),
        ("te", "trailers"), ("content-type", "application/grpc")))
    answer = b""
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
                           + frame(HEADERS, END_HEADERS, 1, head)
                           + frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
        stream = connection.makefile("rb")
        while True:
            header = stream.read(9)
            if len(header) < 9:
                break
            kind, flags = header[3], header[4]
            payload = stream.read(int.from_bytes(header[:3], "big"))
            if kind in (SETTINGS, PING) and not flags & ACK:
                connection.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == DATA:
                answer += payload
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                break
    return answer[5:] or None

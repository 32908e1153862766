"""A minimal trace collector: it receives traces as OTLP over gRPC without TLS, and keeps their spans.

It implements as much of HTTP/2 (RFC 9113) as a gRPC client needs. It ignores which method is called, so it does not
decompress headers: every request is parsed as an ExportTraceServiceRequest.
"""

import asyncio
import gzip
import struct
from collections.abc import Iterator
from typing import NamedTuple

DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW = 2**30
Fields = dict[int, list[bytes | int]]


class Span(NamedTuple):
    """A span with the attributes of its resource."""

    trace: str
    id: str
    parent: str
    """ID of the parent span; "" for the first span of a trace."""
    name: str
    seconds: float
    resource: dict[str, str]


class Collector:
    """A collector that listens on its own port."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1") -> str:
        """Start the collector, and return its HOST:PORT."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop the collector and its open connections."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._connection(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(PREFACE)) == PREFACE
        writer.write(_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, WINDOW)))  # the window of each stream
        writer.write(_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW)))
        bodies: dict[int, bytes] = {}
        while True:
            head = await reader.readexactly(9)
            length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
            stream = int.from_bytes(head[5:]) & 0x7FFFFFFF
            body = await reader.readexactly(length)
            if kind in (SETTINGS, PING) and not flags & ACK:
                writer.write(_frame(kind, ACK, 0, body if kind == PING else b""))
            elif kind == GOAWAY:
                return
            elif kind in (DATA, HEADERS):
                if kind == DATA:
                    bodies[stream] = bodies.get(stream, b"") + (body[1 : length - body[0]] if flags & PADDED else body)
                if flags & END_STREAM:
                    self.spans += spans(_message(bodies.pop(stream, b"")))
                    writer.write(_answer(stream))
            await writer.drain()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def _answer(stream: int) -> bytes:
    """Return an empty ExportTraceServiceResponse with the status OK."""
    head = b"\x88" + _header(b"content-type", b"application/grpc")  # 0x88 is `:status: 200`
    body = _frame(DATA, 0, stream, bytes(5))
    return _frame(HEADERS, END_HEADERS, stream, head) + body + _frame(
        HEADERS, END_HEADERS | END_STREAM, stream, _header(b"grpc-status", b"0")
    )  # fmt: skip


def _header(name: bytes, value: bytes) -> bytes:
    """Return a header in HPACK encoding without tables."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _message(body: bytes) -> bytes:
    """Return a message in gRPC framing."""
    packed, length = body[0], int.from_bytes(body[1:5])
    message = body[5 : 5 + length]
    return gzip.decompress(message) if packed else message


def spans(request: bytes) -> Iterator[Span]:
    """Yield the spans of an ExportTraceServiceRequest. Numbers in the code are field numbers of OTLP's protocol buffers."""
    for of_resource in _inner(_fields(request), 1):
        (resource,) = _inner(of_resource, 1) or [{}]
        said = {_text(pair, 1): _text(_inner(pair, 2)[0], 1) for pair in _inner(resource, 1) if _inner(pair, 2)}
        for scope in _inner(of_resource, 2):
            for span in _inner(scope, 2):
                trace, own, parent = (_raw(span, number).hex() for number in (1, 2, 4))
                began, ended = (int.from_bytes(_raw(span, number), "little") for number in (7, 8))
                yield Span(trace, own, parent, _text(span, 5), (ended - began) / 1e9, said)


def _inner(fields: Fields, number: int) -> list[Fields]:
    return [_fields(value) for value in fields.get(number, []) if isinstance(value, bytes)]


def _raw(fields: Fields, number: int) -> bytes:
    return next((value for value in fields.get(number, []) if isinstance(value, bytes)), b"")


def _text(fields: Fields, number: int) -> str:
    return _raw(fields, number).decode()


def _fields(message: bytes) -> Fields:
    """Return field number -> values of an encoded protocol buffer message. Variable-length integers are decoded; all other
    values are bytes.
    """
    out: Fields = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if (kind := key & 7) == 0:
            number, at = _varint(message, at)
            out.setdefault(key >> 3, []).append(number)
            continue
        length = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            length, at = _varint(message, at)
        out.setdefault(key >> 3, []).append(message[at : at + length])
        at += length
    return out


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while message[at] & 0x80:
        number |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return number | message[at] << shift, at + 1

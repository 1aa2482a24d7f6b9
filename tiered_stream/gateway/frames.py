"""Kafka's frames and request headers, as far as a go-between must read them. No I/O.

    int32   size     of what follows
    int16   api key
    int16   api version
    int32   correlation id
    string  client id (nullable, int16 length; never compact)
    tags    in flexible versions only

A response has the size and the correlation id, and in flexible versions tags.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tiered_stream.broker.flexible_versions import NO_TAGS, Reader

SIZE_BYTES = 4
HEAD_BYTES = 8
"""Of a frame's content: what says which request it is."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")
CORRELATION_ID_BYTES = _CORRELATION_ID.size


class FrameError(Exception):
    """The peer does not speak Kafka's protocol; the connection is of no use any more."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Which request a frame is."""

    api_key: int
    api_version: int
    correlation_id: int


def frame(content: bytes) -> bytes:
    """The content with its size before it."""
    return _SIZE.pack(len(content)) + content


def frame_size(data: bytes, largest: int) -> int:
    """The size that the first four bytes say.

    Raises:
        FrameError: it is no size of a frame of at most `largest` bytes.
    """
    (size,) = _SIZE.unpack(data)
    if not _CORRELATION_ID.size <= size <= largest:
        raise FrameError(f"a frame of {size} bytes, of {largest} at most; is the peer's security protocol another one?")
    return int(size)


def request_head(content: bytes) -> RequestHead:
    """The head of a request's content.

    Raises:
        FrameError: the frame is too short to be one.
    """
    if len(content) < HEAD_BYTES:
        raise FrameError(f"a request of {len(content)} bytes")
    return RequestHead(*_HEAD.unpack_from(content))


def request_header(head: RequestHead) -> bytes:
    """The header of a request of a flexible version, without a client id."""
    return _HEAD.pack(head.api_key, head.api_version, head.correlation_id) + _LENGTH.pack(-1) + NO_TAGS


def correlation_id(content: bytes) -> int:
    """Of a response whose content begins so."""
    return int(_CORRELATION_ID.unpack_from(content)[0])


def with_correlation_id(content: bytes, number: int) -> bytes:
    """A request's content with this id in place of its own."""
    return content[: HEAD_BYTES - CORRELATION_ID_BYTES] + correlation_id_bytes(number) + content[HEAD_BYTES:]


def correlation_id_bytes(number: int) -> bytes:
    """As a response's content begins with it."""
    return _CORRELATION_ID.pack(number)


def body_of_flexible(content: bytes) -> Reader:
    """What follows the header of a request of a flexible version.

    Raises:
        ValueError: the header is cut off.
    """
    reader = Reader(content, HEAD_BYTES)
    _nullable_string(reader)
    reader.tags()
    return reader


def client_id(content: bytes) -> str | None:
    """The client id of a request.

    Raises:
        FrameError: it is cut off.
    """
    try:
        value = _nullable_string(Reader(content, HEAD_BYTES))
    except ValueError as error:
        raise FrameError(str(error)) from error
    return None if value is None else value.decode("utf-8", "replace")


def _nullable_string(reader: Reader) -> bytes | None:
    (length,) = reader.unpack(_LENGTH)
    return None if length < 0 else reader.take(length, "a text")

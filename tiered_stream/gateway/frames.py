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

SIZE_BYTES = 4
HEAD_BYTES = 8
"""Of a frame's content: what says which request it is."""
LARGEST_WHOLE_FRAME = 64 << 20
"""Of those that are read whole: what is rewritten or may ask for locations. Others have Kafka's own limits."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")


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
        raise FrameError(f"a frame of {size} bytes; is the peer's security protocol another one?")
    return int(size)


def request_head(content: bytes) -> RequestHead:
    """The head of a request's content.

    Raises:
        FrameError: the frame is too short to be one.
    """
    if len(content) < HEAD_BYTES:
        raise FrameError(f"a request of {len(content)} bytes")
    return RequestHead(*_HEAD.unpack_from(content))


def correlation_id(content: bytes) -> int:
    """Of a response whose content begins so."""
    return int(_CORRELATION_ID.unpack_from(content)[0])


def client_id(content: bytes) -> str | None:
    """The client id of a request.

    Raises:
        FrameError: it is cut off.
    """
    value, _ = _nullable_string(content, HEAD_BYTES)
    return None if value is None else value.decode("utf-8", "replace")


def produce_acks(content: bytes, flexible: bool) -> int:
    """`acks` of a Produce request: the broker does not answer when it is 0.

    Raises:
        FrameError: the content ends before it.
    """
    _, at = _nullable_string(content, HEAD_BYTES)
    if flexible:
        at = _after_tags(content, at)
        length, at = _uvarint(content, at)
        at += max(0, length - 1)
    else:
        _, at = _nullable_string(content, at)
    if at + _LENGTH.size > len(content):
        raise FrameError("a Produce request without acks")
    return int(_LENGTH.unpack_from(content, at)[0])


def _nullable_string(content: bytes, at: int) -> tuple[bytes | None, int]:
    if at + _LENGTH.size > len(content):
        raise FrameError("a text is cut off")
    (length,) = _LENGTH.unpack_from(content, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    if at + length > len(content):
        raise FrameError("a text is cut off")
    return content[at : at + length], at + length


def _after_tags(content: bytes, at: int) -> int:
    count, at = _uvarint(content, at)
    for _ in range(count):
        _, at = _uvarint(content, at)
        size, at = _uvarint(content, at)
        at += size
        if at > len(content):
            raise FrameError("a tagged field is cut off")
    return at


def _uvarint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(content):
            raise FrameError("a number is cut off")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise FrameError("a number is too long")

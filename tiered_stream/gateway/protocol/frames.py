"""Kafka's frames and request headers, as far as a gateway must read them. No I/O.

A frame is one request or response. A request begins with these fields:

    int32   size     of all bytes that follow
    int16   api key
    int16   api version
    int32   correlation id
    string  client id (nullable, int16 length; never compact)
    tags    in flexible versions only

A response begins with the size and the correlation id, followed by tags in flexible versions.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tiered_stream.records.flexible_versions import NO_TAGS, Reader

SIZE_BYTES = CORRELATION_ID_BYTES = 4
HEAD_BYTES = 8
"""Size of the fixed beginning of a request's content: API key, API version and correlation id."""

_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")


class FrameError(Exception):
    """Error that ends a connection: its peer violates Kafka's protocol or sends a request that is not allowed."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """API key, API version and correlation id of a request."""

    api_key: int
    api_version: int
    correlation_id: int


def frame(content: bytes) -> bytes:
    """Return the frame of `content`: its size as an int32, then the content."""
    return _INT32.pack(len(content)) + content


def frame_size(data: bytes, max_size: int) -> int:
    """Return the number of bytes that follow the size field of a frame. `data` is this field, four bytes.

    Raises:
        FrameError: the size is above `max_size`, or too small for a correlation id.
    """
    (size,) = _INT32.unpack(data)
    if not CORRELATION_ID_BYTES <= size <= max_size:
        raise FrameError(
            f"a frame of {size} bytes, of {max_size} at most; is the peer's security protocol another one?"
        )
    return int(size)


def request_head(content: bytes) -> RequestHead:
    """Return API key, API version and correlation id of a request. `content` is the request after its size field.

    Raises:
        FrameError: the content is too short.
    """
    if len(content) < HEAD_BYTES:
        raise FrameError(f"a request of {len(content)} bytes")
    return RequestHead(*_HEAD.unpack_from(content))


def request_header(head: RequestHead) -> bytes:
    """Return the encoded header of a request of a flexible version, without a client id."""
    return _HEAD.pack(head.api_key, head.api_version, head.correlation_id) + _LENGTH.pack(-1) + NO_TAGS


def correlation_id(content: bytes) -> int:
    """Return the correlation id from the first four bytes of a response's content."""
    return int(_INT32.unpack_from(content)[0])


def with_correlation_id(content: bytes, correlation_id: int) -> bytes:
    """Return a request's content (without the size field) with its correlation id replaced by `correlation_id`."""
    return content[: HEAD_BYTES - CORRELATION_ID_BYTES] + correlation_id_bytes(correlation_id) + content[HEAD_BYTES:]


def correlation_id_bytes(correlation_id: int) -> bytes:
    """Return a correlation id as the four bytes with which a response's content begins."""
    return _INT32.pack(correlation_id)


def body_of_flexible(content: bytes) -> Reader:
    """Return a reader of a request of a flexible version, positioned after the request's header.

    Raises:
        ValueError: the header is cut off.
    """
    reader = _after_client_id(content)
    reader.tags()
    return reader


def oldest_version(content: bytes) -> bytes:
    """Return the request of version 0, without a body, that has the API, correlation id and client id of `content`.

    Raises:
        FrameError: the client id is cut off.
    """
    try:
        reader = _after_client_id(content)
    except ValueError as error:
        raise FrameError(str(error)) from error
    head = request_head(content)
    return _HEAD.pack(head.api_key, 0, head.correlation_id) + content[HEAD_BYTES : reader.position]


def _after_client_id(content: bytes) -> Reader:
    reader = Reader(content, HEAD_BYTES)
    (length,) = reader.unpack(_LENGTH)
    reader.skip(max(0, length), "a text")
    return reader

"""Byte streams to and from one peer (a client or a broker), with limits on the bytes that asyncio buffers for each."""

from __future__ import annotations

import asyncio
import socket
import ssl
import traceback
from asyncio import sslproto
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.protocol.broker_addresses import Address

CHUNK_BYTES = 64 << 10
"""Maximum number of bytes that one read takes from a socket."""

_CLOSE_SECONDS = 10.0
# asyncio gives each TLS connection a buffer of this size from the start. The default is 256 KiB, and asyncio has no
# setting for it.
sslproto.SSLProtocol.max_size = CHUNK_BYTES // 2


@dataclass(frozen=True, slots=True)
class Streams:
    """Reader and writer for one peer, a client or a broker."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def transport(self) -> asyncio.Transport:
        """Return the transport that the reader and the writer share."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        return transport

    async def close(self) -> None:
        """Close the connection once all written bytes are sent to the peer, or abort it after 10 s."""
        self.writer.close()
        with suppress(OSError, EOFError):
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self.writer.wait_closed()
            finally:
                self.transport.abort()
        if error := self.reader.exception():
            error.with_traceback(None)  # has this running frame, which `clear_traceback_frames` cannot clear


async def accept_streams(connection: socket.socket, tls: ssl.SSLContext | None, settings: GatewaySettings) -> Streams:
    """Return the streams of a connection that a client has opened.

    With `tls`, the TLS handshake comes first, and may take at most `settings.setup_seconds`. Each direction buffers at
    most `settings.unread_bytes` plus `CHUNK_BYTES`; then the sender waits.

    Raises:
        OSError: the handshake failed or took too long.
    """
    protocol, reader = _protocol(settings)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=settings.setup_seconds if tls else None
    )
    return _bounded(reader, protocol, transport, settings)


async def connect_streams(broker: Address, settings: GatewaySettings) -> Streams:
    """Connect to a broker within `settings.setup_seconds`, TLS handshake included, and return the connection's streams.

    Each direction buffers at most `settings.unread_bytes` plus `CHUNK_BYTES`; then the sender waits.

    Raises:
        OSError: the connection failed or took too long.
    """
    protocol, reader = _protocol(settings)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(settings.setup_seconds):
        transport, _ = await loop.create_connection(lambda: protocol, broker.host, broker.port, ssl=settings.broker_tls)
    return _bounded(reader, protocol, transport, settings)


def _protocol(settings: GatewaySettings) -> tuple[_ChunkProtocol, asyncio.StreamReader]:
    reader = asyncio.StreamReader(limit=settings.unread_bytes // 2)  # a StreamReader pauses at twice its limit
    return _ChunkProtocol(reader), reader


def _bounded(
    reader: asyncio.StreamReader, protocol: _ChunkProtocol, transport: asyncio.Transport, settings: GatewaySettings
) -> Streams:
    transport.set_write_buffer_limits(high=settings.unread_bytes)
    if hasattr(transport, "set_read_buffer_limits"):  # only with TLS: limits the bytes that are not decrypted yet
        transport.set_read_buffer_limits(high=settings.unread_bytes)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return Streams(reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop()))


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of `pieces` in chunks of `CHUNK_BYTES` bytes; the last chunk may be smaller.

    Joining all pieces at once would copy them into one large block, for which the kernel must provide new memory.
    """
    waiting: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        left = memoryview(piece)
        while size + len(left) >= CHUNK_BYTES:
            cut = CHUNK_BYTES - size
            yield b"".join([*waiting, left[:cut]])
            waiting, size, left = [], 0, left[cut:]
        waiting.append(left)
        size += len(left)
    if size:
        yield b"".join(waiting)


def clear_traceback_frames(error: BaseException | None) -> None:
    """Clear the stack frames in the tracebacks of an error and of its causes; do nothing for None.

    The frames refer to the streams, and a stream keeps the error that ended it. Without clearing, this cycle would keep
    the streams' buffers until the garbage collector runs.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class _ChunkProtocol(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """Protocol that reads from the socket into one buffer for all connections, and copies each chunk out at once."""

    _chunk = memoryview(bytearray(CHUNK_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._chunk[:nbytes]))

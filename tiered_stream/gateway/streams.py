"""The two byte streams of a connection, with bounds to what asyncio keeps of them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import traceback
from asyncio import sslproto
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

CHUNK_BYTES = 64 << 10
"""What is taken from a socket at once."""

_CLOSE_SECONDS = 10.0
# Each connection with TLS has a buffer of this size from its start. asyncio has no setting for it: it would be 256 KiB.
sslproto.SSLProtocol.max_size = CHUNK_BYTES // 2


@dataclass(frozen=True, slots=True)
class Streams:
    """One side of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def transport(self) -> asyncio.Transport:
        """The reader's and the writer's."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        return transport

    async def close(self) -> None:
        """End it when what was written has been taken, or has not been for long."""
        self.writer.close()
        with suppress(OSError, EOFError):
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self.writer.wait_closed()
            finally:
                self.transport.abort()
        if error := self.reader.exception():
            error.with_traceback(None)  # it refers to this frame, which `let_go` could not clear


class StreamOpener:
    """Makes streams of which each direction keeps at most `unread_bytes`, and a chunk more, before its sender waits."""

    def __init__(self, unread_bytes: int) -> None:
        self._unread_bytes = unread_bytes

    async def accepted(self, connection: socket.socket, tls: ssl.SSLContext | None, seconds: float) -> Streams:
        """Of a connection that was accepted; its TLS handshake may take so long.

        Raises:
            OSError: there was no handshake.
        """
        protocol, reader = self._protocol()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=seconds if tls else None
        )
        return self._bounded(reader, protocol, transport)

    async def opened(self, host: str, port: int, tls: ssl.SSLContext | None, seconds: float) -> Streams:
        """Of a connection to there, which may take so long.

        Raises:
            OSError: there is none.
        """
        protocol, reader = self._protocol()
        async with asyncio.timeout(seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, host, port, ssl=tls)
        return self._bounded(reader, protocol, transport)

    def _protocol(self) -> tuple[_ChunkProtocol, asyncio.StreamReader]:
        reader = asyncio.StreamReader(limit=self._unread_bytes // 2)  # it stops reading at twice that
        return _ChunkProtocol(reader), reader

    def _bounded(self, reader: asyncio.StreamReader, protocol: _ChunkProtocol, transport: asyncio.Transport) -> Streams:
        transport.set_write_buffer_limits(high=self._unread_bytes)
        if hasattr(transport, "set_read_buffer_limits"):  # with TLS: of what is not decrypted yet
            transport.set_read_buffer_limits(high=self._unread_bytes)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return Streams(reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop()))


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, a chunk at a time: joined whole, they would be copied into memory that is new to the process."""
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


def let_go(error: BaseException | None) -> None:
    """Clear the frames that an error has passed through, and its causes.

    They refer to the streams, which keep the error of their end: their buffers would wait for the garbage collector.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class _ChunkProtocol(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """Reads into one buffer for all connections: each chunk is copied out of it before the next is read."""

    _chunk = memoryview(bytearray(CHUNK_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._chunk[:nbytes]))

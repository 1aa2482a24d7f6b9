"""An S3 service that holds the objects of the made-up cluster's segments, and counts what it is asked.

Each segment is 1,000 batches of one offset and of the same size; its offset index names all of them. It answers ranged
and whole GETs of `.index` and `.log`, and 404 to all else; signatures are not looked at. Of a log, only the batches'
headers are right.

    python -m tests.gateway.made_up_storage PORT SEGMENT_BYTES

`GET /most` answers with the most requests that came within one second.
"""

from __future__ import annotations

import asyncio
import re
import struct
import sys
import time
from collections import deque

from tests.gateway.made_up_cluster import OFFSETS

_KEY = re.compile(r"/(\d{20})-[^/]*\.(index|log)$")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_HEADER = struct.Struct(">qiib")  # base offset, length, leader epoch, magic


class MadeUpStorage:
    """`segment_bytes`: of each segment."""

    def __init__(self, segment_bytes: int) -> None:
        self._batch = segment_bytes // OFFSETS
        self._size = segment_bytes
        self._index = b"".join(struct.pack(">ii", at, at * self._batch) for at in range(1, OFFSETS))
        self._times: deque[float] = deque()
        self._most = 0

    async def serve(self, port: int) -> None:
        """Answer until cancelled."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", port)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                wanted = re.search(r"(?im)^range: *(\S+)", head)
                writer.write(self._answer(method, path.partition("?")[0], wanted and wanted[1]))
                await writer.drain()
        except (EOFError, OSError):
            writer.close()

    def _answer(self, method: str, path: str, wanted: str | None) -> bytes:
        if path == "/most":
            return _response("200 OK", str(self._most).encode())
        self._count()
        found = _KEY.search(path)
        if found is None:
            return _response("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>")
        size = len(self._index) if found[2] == "index" else self._size
        start, end = 0, size
        if wanted and (match := _RANGE.match(wanted)):
            start, end = int(match[1]), min(size, int(match[2] or size - 1) + 1)
        body = self._index[start:end] if found[2] == "index" else self._log(int(found[1]), start, end)
        span = f"Content-Range: bytes {start}-{end - 1}/{size}\r\n"
        return _response("206 Partial Content" if wanted else "200 OK", body, span if wanted else "", method == "HEAD")

    def _log(self, base: int, start: int, end: int) -> bytes:
        header = _HEADER.pack(base + start // self._batch, self._batch - 12, 0, 2)
        return header[: end - start].ljust(end - start, b"\0")

    def _count(self) -> None:
        now = time.monotonic()
        self._times.append(now)
        while self._times[0] <= now - 1:
            self._times.popleft()
        self._most = max(self._most, len(self._times))


def _response(status: str, body: bytes, more: str = "", no_body: bool = False) -> bytes:
    head = f'HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nETag: "e"\r\n{more}\r\n'.encode()
    return head if no_body else head + body


if __name__ == "__main__":
    asyncio.run(MadeUpStorage(int(sys.argv[2])).serve(int(sys.argv[1])))

"""An S3 endpoint that answers as a test says: for failures that a real one cannot be told to have.

It does not check signatures, and knows GET only.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tiered_stream.storage import attempts
from tiered_stream.storage.signed import presigned
from tiered_stream.timed_http import TimedSocket


def answer(status: int, body: bytes = b"", length: int | None = None, **headers: str) -> bytes:
    """One HTTP answer; `length` is the Content-Length where it is not the body's."""
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def error(status: int, code: str) -> bytes:
    """S3's XML for an error."""
    return answer(status, f"<Error><Code>{code}</Code><Message>message</Message></Error>".encode())


def part(body: bytes, start: int = 0, length: int | None = None) -> bytes:
    """The answer to a ranged GET."""
    return answer(206, body, length, Content_Range=f"bytes {start}-{start + len(body) - 1}/1000")


SILENCE = b""
"""Take the request and never answer."""
STALL = b"\a nothing more comes \a"
"""At the end of an answer: where `stalls_at_once` holds, whoever has received what is before it waits for a timeout."""


def stalls_at_once(patch: pytest.MonkeyPatch) -> None:
    """Let sockets time out as soon as they come to `STALL`, whatever their timeouts are."""
    receive = TimedSocket.recv_into

    def receive_or_time_out(sock: TimedSocket, buffer: memoryview, *others: Any) -> int:
        if sock in stalled:
            raise TimeoutError
        size = receive(sock, buffer, *others)
        if (at := bytes(buffer[:size]).find(STALL)) < 0:
            return size
        stalled.add(sock)
        return at or receive_or_time_out(sock, buffer, *others)

    stalled: set[TimedSocket] = set()
    patch.setattr(TimedSocket, "recv_into", receive_or_time_out)


def let_time_be(patch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Give attempts and signed connections this clock in seconds."""
    for module in (attempts, presigned):
        patch.setattr(module, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))


class ScriptedHttp:
    """A server that gives one of `answers` a request, the last one again and again, and closes after each."""

    def __init__(self, answers: Iterable[bytes]) -> None:
        self._answers = list(answers)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._accepted: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.requests: list[bytes] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        while self._thread.is_alive():  # a client may keep a connection on which it asks for nothing
            for connection in (self._server, *self._accepted):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._thread.join(0.1)
        for connection in (self._server, *self._accepted):
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._accepted.append(connection)
            with suppress(OSError):  # the client may be gone
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request and (data := connection.recv(65536)):
            request += data
        self.requests.append(request)
        script = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if script != SILENCE:
            connection.sendall(script.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            connection.close()

"""Proxies between a reader and a service, which do to the next answers what they are told.

One passes bytes on as they come; `HttpProxy` takes requests apart, so that an answer may be another than the service's.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.rigs.chaos.effects import Broken, Effect, Exchange

_CHUNK = 1 << 16


@dataclass
class _Armed:
    effect: Effect
    matches: Callable[[bytes], bool]
    in_a_row: int


class FaultProxy:
    """Listens on a port of loopback from the start, 0: any; `upstream` is the service's, and may be set later."""

    def __init__(self, port: int = 0) -> None:
        self._server = socket.create_server(("127.0.0.1", port))
        self.port: int = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.upstream = 0
        self.struck = 0
        """Answers that an effect was done to, since `arm`."""
        self._armed: deque[_Armed] = deque()
        self._in_a_row: Counter[bytes] = Counter()
        """Effects on the answers to a request since it was last answered well, by what it asks for."""
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(
        self, effect: Effect, times: int = 1, matches: Callable[[bytes], bool] = lambda request: True,
        in_a_row: int = sys.maxsize,
    ) -> None:  # fmt: skip
        """Do `effect` to the next `times` answers, those to requests that match, where requests are known.

        The same request is answered well after `in_a_row` effects, whichever they were.
        """
        with self._lock:
            self.struck = 0
            self._armed.extend([_Armed(effect, matches, in_a_row)] * times)

    def disarm(self) -> None:
        """Pass on everything again."""
        with self._lock:
            self._armed.clear()

    @property
    def armed(self) -> bool:
        return bool(self._armed)

    def close(self) -> None:
        self._server.close()

    def serve(self, client: socket.socket, service: socket.socket) -> None:
        """One connection, to its end."""
        gone = threading.Event()
        threading.Thread(target=_pump, args=(client, service, gone), daemon=True).start()
        while data := service.recv(_CHUNK):
            client.sendall(self._answer(Exchange(client, b"", partial(_given, data), gone)))

    def _answer(self, exchange: Exchange) -> bytes:
        asked, armed = _wanted(exchange.request), None
        with self._lock:
            if self._armed and self._armed[0].matches(exchange.request) and self._has_patience(asked):
                armed = self._armed.popleft()
            self.struck += armed is not None
            self._in_a_row[asked] = self._in_a_row[asked] + 1 if armed else 0
        return armed.effect(exchange) if armed else exchange.answer(exchange.request)

    def _has_patience(self, asked: bytes) -> bool:
        return self._in_a_row[asked] < self._armed[0].in_a_row

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, client: socket.socket) -> None:
        service = None
        try:
            service = socket.create_connection(("127.0.0.1", self.upstream))
            self.serve(client, service)
        except (OSError, Broken):
            pass
        finally:
            for each in (client, service):
                if each is not None:
                    _end(each)


class HttpProxy(FaultProxy):
    """One request a connection: the service, and so the client, is told to close after it."""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def serve(self, client: socket.socket, service: socket.socket) -> None:
        def forward(request: bytes) -> bytes:
            service.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            return b"".join(iter(lambda: service.recv(_CHUNK), b""))

        request = b""
        while b"\r\n\r\n" not in request:
            data = client.recv(_CHUNK)
            if not data:
                return
            request += data
        gone = threading.Event()
        threading.Thread(target=_wait_for_end, args=(client, gone), daemon=True).start()
        client.sendall(self._answer(Exchange(client, request, forward, gone)))


def _wanted(request: bytes) -> bytes:
    """What a request asks for, and so have those that repeat it: its first line, and a range."""
    lines = request.split(b"\r\n")
    return b" ".join([lines[0], *(line for line in lines if line.lower().startswith(b"range:"))])


def _given(answer: bytes, request: bytes) -> bytes:
    return answer


def _pump(source: socket.socket, target: socket.socket, gone: threading.Event) -> None:
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
    except OSError:
        pass
    gone.set()
    _end(target)


def _wait_for_end(client: socket.socket, gone: threading.Event) -> None:
    try:
        client.recv(1)
    except OSError:
        pass
    gone.set()


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()

"""Proxies between a reader and a service, which do to the next answers what they are told.

One passes bytes on as they come; `HttpProxy` takes requests apart, so that an answer may be another than the service's.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.chaos.effects import Broken, Effect, Exchange

_CHUNK = 1 << 16


@dataclass
class _Armed:
    effect: Effect
    matches: Callable[[bytes], bool]


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
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, effect: Effect, times: int = 1, matches: Callable[[bytes], bool] = lambda request: True) -> None:
        """Do `effect` to the next `times` answers, those to requests that match, where requests are known."""
        with self._lock:
            self.struck = 0
            self._armed.extend([_Armed(effect, matches)] * times)

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
        with self._lock:
            armed = self._armed.popleft() if self._armed and self._armed[0].matches(exchange.request) else None
            self.struck += armed is not None
        return armed.effect(exchange) if armed else exchange.answer(exchange.request)

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

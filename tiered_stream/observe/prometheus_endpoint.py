"""HTTP server for monitoring: `/health` responds 200 or 503, and `/metrics` has Prometheus metrics."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from tiered_stream.timed_http import timed

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

_REQUEST_SECONDS = 10.0
"""Time limit for a whole request, because a client may send it byte by byte."""
_AT_ONCE = 16
"""Maximum number of requests that are served at the same time; further connections are closed."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        families = {family for family, *_ in socket.getaddrinfo(*address, type=socket.SOCK_STREAM)}
        self.address_family = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
        self.served: set[socket.socket] = set()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind the socket without `HTTPServer.server_bind`, whose lookup of the host's full name may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a connection is served: False if 16 connections are served already, so that it is closed."""
        if len(self.served) >= _AT_ONCE:
            return False
        self.served.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        self.served.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing, so that slow or gone clients are not logged, because anybody may connect."""


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS

    def setup(self) -> None:
        deadline = time.monotonic() + _REQUEST_SECONDS
        self.request = timed(self.request, lambda: deadline - time.monotonic())
        super().setup()

    def finish(self) -> None:
        """Close the connection here, because the server knows only the socket that `setup` has replaced."""
        try:
            super().finish()
        finally:
            with suppress(OSError):
                self.request.shutdown(socket.SHUT_WR)
            self.request.close()

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests, because a probe may send one every second."""


class Monitor:
    """HTTP server for `/health` and `/metrics` that runs in its own threads.

    Args:
        host: name or address to listen at. If a name has IPv4 and IPv6 addresses, the server listens at IPv4.
        port: port to listen on, or 0 for any free port. The attribute `port` is the port in use.
        registry: metrics that `/metrics` shows.
        unhealthy_reason: returns why the process is unhealthy, or an empty text if it is healthy. If the text is not
            empty, `/health` responds 503 with this text.
        faults: returns lines about faults that do not make the whole process unhealthy. If the process is healthy,
            `/health` responds 200 with these lines.

    Raises:
        OSError: the host is unknown, or the port is in use.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        unhealthy_reason: Callable[[], str],
        faults: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._unhealthy_reason = unhealthy_reason
        self._faults = faults
        self._server = make_server(host, port, self._answer, server_class=_Server, handler_class=_Handler)
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the HTTP server and its thread, and close its socket."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(environ, start_response)
            return answer
        if path == "/health":
            unhealthy_reason = self._unhealthy_reason()
            status = "503 Service Unavailable" if unhealthy_reason else "200 OK"
        else:
            unhealthy_reason, status = "there are /health and /metrics", "404 Not Found"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        lines = [unhealthy_reason] if unhealthy_reason else ["healthy", *self._faults()]
        return ["".join(f"{line}\n" for line in lines).encode()]

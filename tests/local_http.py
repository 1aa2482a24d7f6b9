"""HTTP servers of tests, each on a free port of this machine."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

_POLL_SECONDS = 0.02
"""`shutdown` waits for so long: by default for up to 0.5 s."""


class LocalHttp:
    """While it is entered, each request has a thread of its own; with an `identity`, by TLS."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], identity: ssl.SSLContext | None = None) -> None:
        quiet = type("Handler", (handler,), {"log_message": _say_nothing})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), quiet)
        if identity is not None:
            self._server.socket = identity.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        self.port = self._server.server_port
        self.url = f"http{'' if identity is None else 's'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Answer:
    """A response; `wait`: it is not given before this is set."""

    status: int
    content: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    wait: threading.Event | None = None


def respond(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    """Send the answer to the request that the handler has taken."""
    if answer.wait is not None:
        answer.wait.wait()
    handler.send_response(answer.status)
    for name, value in {"Content-Length": str(len(answer.content)), **answer.headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(answer.content)


def _say_nothing(handler: BaseHTTPRequestHandler, format: str, *arguments: object) -> None:
    """Tests look at what was asked, and not at a log."""

"""HTTP server in front of an emulator, which adds what the emulator lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import unescape
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.rigs.stack.processes import Service, Started, free_ports, listens

_OWN_HEADERS = frozenset(("connection", "content-length", "transfer-encoding"))
"""Headers of one connection, which are not passed on."""


class HttpFront(Started):
    """Server on `port` in front of an emulator on `backend_port`; each request goes to a new `handler`."""

    def __init__(self, port: int, backend_port: int, handler: type[FrontHandler]) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._server = FrontServer(("127.0.0.1", port), handler, backend_port)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in another process, which does not stop it."""
        return type(None), ()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class FrontedService(Service):
    """Emulator in `folder` that listens on `own_port`, behind a front on `port`."""

    handler: type[FrontHandler]
    _front: HttpFront | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.own_port = free_ports(2)

    def stop(self) -> None:
        if self._front is not None:
            self._front.stop()
        super().stop()

    def _serve_behind_front(self, name: str, command: Sequence[str], log_file: Path) -> None:
        self._serve(name, command, log_file, lambda: listens(self.own_port))
        self._front = HttpFront(self.port, self.own_port, self.handler)
        self._front.start()


class FrontServer(ThreadingHTTPServer):
    """Server whose handlers ask the emulator on `backend_port`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[FrontHandler], backend_port: int) -> None:
        super().__init__(address, handler)
        self.backend_port = backend_port


class FrontHandler(BaseHTTPRequestHandler):
    """Handler that passes requests and responses on; subclasses override `handle_request`."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: FrontServer

    def handle_request(self, body: bytes) -> None:
        """Respond to the request, whose body is `body`."""
        response, content = self.ask(self.command, self.path, body, self.passed_headers())
        self.respond(response.status, dict(response.getheaders()), content)

    def passed_headers(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS}

    def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[HTTPResponse, bytes]:
        """Send a request to the emulator; return the response and its body."""
        lengths = {"Content-Length": str(len(body))} if body or method in ("POST", "PUT", "PATCH") else {}
        self._backend.close()  # an emulator on a busy machine ends idle connections at any time
        self._backend.request(method, path, body or None, {**headers, **lengths})
        response = self._backend.getresponse()
        return response, response.read()

    def respond(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        length = str(len(content))
        if self.command == "HEAD":
            length = next((value for name, value in headers.items() if name.lower() == "content-length"), "0")
        if status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    def setup(self) -> None:
        super().setup()
        self._backend = HTTPConnection("127.0.0.1", self.server.backend_port)

    def finish(self) -> None:
        self._backend.close()
        super().finish()

    def handle_expect_100(self) -> bool:
        passed = super().handle_expect_100()
        self.wfile.flush()  # the client waits for it before it sends the body
        return passed

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _handle(self) -> None:
        self.handle_request(self._body())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _handle  # noqa: N815 - names of the base class

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)


def listed_from(listing: bytes, element: str, name: str, first: str, *, inclusive: bool) -> bytes:
    """Return the XML of a listing without the entries before the name `first`.

    Args:
        listing: response of the emulator, which ignores where a listing is to start.
        element: element of an entry.
        name: element of the entry's name, which comes first in the entry.
        first: name at which the listing starts.
        inclusive: true if the entry `first` itself is listed.
    """

    def kept(entry: re.Match[bytes]) -> bytes:
        own = unescape(entry[1].decode())
        return entry[0] if own > first or (inclusive and own == first) else b""

    return re.sub(f"<{element}><{name}>(.*?)</{name}>.*?</{element}>".encode(), kept, listing, flags=re.DOTALL)

"""Names, TLS and HTTP for all hosts of the cloud that a test has taken; hosts of other clouds do not exist then."""

from __future__ import annotations

import json
import ssl
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from http.client import HTTPResponse
from pathlib import Path
from socket import socket
from threading import Thread
from typing import Any
from urllib.parse import unquote

from tests.broker.certificates import CertificateAuthority
from tests.rigs.cloud.names import NameServer
from tests.rigs.stack.http_front import FrontHandler, FrontServer

PUBLIC, PRIVATE = "52.94.0.1", "10.0.0.10"
"""Addresses of services on the internet, and in a private network."""
METADATA, TASK, POD = "169.254.169.254", "169.254.170.2", "169.254.170.23"
"""Addresses of the metadata service of an instance, and of the credentials of AWS's tasks and pods."""
ADDRESSES = (PUBLIC, PRIVATE, METADATA, TASK, POD)

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body of a response; a status of 0 stands for no response."""
Ask = Callable[[str, str, bytes, Mapping[str, str]], tuple[HTTPResponse, bytes]]
"""Sends method, path, body and headers to the emulator behind."""
Elements = Mapping[str, "str | Elements"]
"""XML elements by name, with their text or their elements."""


class RefusedError(Exception):
    """A response for a request that a cloud refuses: `elements` and `headers` are more than the code and the text."""

    def __init__(
        self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None, **elements: str
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.headers = status, code, headers or {}
        self.elements = {"Code": code, "Message": message, **elements, "RequestId": "0123456789ABCDEF"}


@dataclass(frozen=True)
class Request:
    """A request; names of headers are in lower case, and `path` and `query` are as they were sent.

    `address` is the address that it was sent to, and `ask` asks the emulator behind.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    address: str = PUBLIC
    ask: Ask | None = None

    @property
    def host(self) -> str:
        return self.headers.get("host", "").partition(":")[0]

    def forwarded(self, path: str, query: str, headers: Mapping[str, str]) -> Answer:
        """Send the request to the emulator behind, and return its response."""
        assert self.ask is not None
        passed = {name: value for name, value in headers.items() if name not in ("connection", "transfer-encoding")}
        response, content = self.ask(self.method, f"{path}?{query}" if query else path, self.body, passed)
        return response.status, dict(response.getheaders()), content

    def parameters(self) -> dict[str, str]:
        """Return the query's parameters, decoded; a parameter without a value has an empty one."""
        pairs = (part.partition("=") for part in self.query.split("&") if part)
        return {unquote(name): unquote(value.replace("+", " ")) for name, _, value in pairs}


@dataclass(frozen=True)
class Seen:
    """One request: `identity` is empty if none was found. `region` is the region in a signature of AWS."""

    host: str
    method: str
    path: str
    status: int
    code: str = ""
    identity: str = ""
    region: str = ""


class Cloud(ABC):
    """One cloud: its hosts, and its responses. `backend_port` is the port of the emulator behind."""

    backend_port: int

    def __init__(self) -> None:
        self.made = set[str]()
        """Names of buckets that a test has filled for later tests."""
        self.reset()

    def reset(self) -> None:
        """Forget the requests, and everything else that a test has made."""
        self.requests: list[Seen] = []
        self.lookups: list[str] = []
        """Names that were looked up."""
        self.errors: list[BaseException] = []
        """Faults of the servers' own, not of their clients."""
        self.metadata_status: int | None = None
        """Status of all responses of the metadata service; 0: it does not respond. None: the usual statuses."""
        self.without_role: set[str] = set()
        """Identities that have no role for the objects of Azure or Google."""
        self.lifetime = 3600
        """Seconds for which credentials and tokens hold."""

    @abstractmethod
    def address_of(self, host: str) -> str | None:
        """Return the address of a host, or None: the cloud has no such host."""

    @abstractmethod
    def certificate_names(self, host: str) -> tuple[str, ...]:
        """Return the names in the certificate of a host that exists."""

    @abstractmethod
    def answer(self, request: Request, seen: dict[str, str]) -> Answer:
        """Return the response; `seen` gets fields of `Seen`.

        Raises:
            RefusedError: the request is refused.
        """

    def refusal(self, request: Request, refused: RefusedError) -> bytes:
        """Return the body of the response for a refused request."""
        return xml({"Error": refused.elements}).encode()

    @abstractmethod
    def stop(self) -> None:
        """Stop the emulator behind."""


class Front:
    """Servers of the namespaces, whose hosts are of the cloud in `cloud`."""

    def __init__(self, authority: CertificateAuthority) -> None:
        self.cloud: Cloud | None = None
        self._names = NameServer(self._look_up)
        self._servers = (_Server(self, 80), _Server(self, 443, authority))

    @contextmanager
    def of(self, cloud: Cloud) -> Iterator[None]:
        """Serve the hosts of this cloud, as after `reset`. Afterwards, raise the first error of the servers' own."""
        cloud.reset()
        self.cloud = cloud
        yield
        self.cloud = None
        for error in cloud.errors:
            raise error

    def stop(self) -> None:
        for server in self._servers:
            server.stop()
        self._names.stop()

    def _look_up(self, name: str) -> str | None:
        if self.cloud is None:
            return None
        self.cloud.lookups.append(name)
        return self.cloud.address_of(name)


class _Server(FrontServer):
    """Server of all addresses at a port, with TLS if there is an authority, in a thread of its own."""

    def __init__(self, front: Front, port: int, authority: CertificateAuthority | None = None) -> None:
        super().__init__(("0.0.0.0", port), _Handler, 0)
        self.front = front
        self._authority = authority
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.sni_callback = self._choose
        self._contexts = lru_cache(maxsize=None)(self._context_of)
        self._thread = Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def cloud(self) -> Cloud:
        assert self.front.cloud is not None
        return self.front.cloud

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def get_request(self) -> tuple[socket, Any]:
        connection, address = super().get_request()
        if self._authority is None:
            return connection, address
        # The handler's thread does the handshake.
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        cloud = self.front.cloud  # None: a late connection of a test that has ended
        if cloud is not None and error is not None and not isinstance(error, ssl.SSLError | ConnectionError):
            cloud.errors.append(error)

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        if not name or self.cloud.address_of(name) is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = self._contexts(self.cloud.certificate_names(name))
        return None

    def _context_of(self, names: tuple[str, ...]) -> ssl.SSLContext:
        assert self._authority is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(self._authority.issue("cloud", names=names).write(Path(folder, "cloud.pem")))
        return context


class _Handler(FrontHandler):
    """Handler of one connection."""

    server: _Server
    disable_nagle_algorithm = True

    def setup(self) -> None:
        self.server.backend_port = self.server.cloud.backend_port
        super().setup()

    def handle_request(self, body: bytes) -> None:
        cloud = self.server.cloud
        path, _, query = self.path.partition("?")
        headers = {each.lower(): ",".join(self.headers.get_all(each, [])) for each in self.headers}
        address = self.connection.getsockname()[0]
        request = Request(self.command, path, query, headers, body, address, self.ask)
        seen, code = {"path": path}, ""
        try:
            status, answered, content = cloud.answer(request, seen)
        except RefusedError as refused:
            status, answered, code = refused.status, refused.headers, refused.code
            content = b"" if self.command == "HEAD" else cloud.refusal(request, refused)
        cloud.requests.append(Seen(request.host, self.command, status=status, code=code, **seen))
        if status:
            self.respond(status, answered, content)
        else:
            self.close_connection = True


def json_answer(document: Mapping[str, object], **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return 200, {"Content-Type": "application/json", **named}, json.dumps(document).encode()


def xml(elements: Elements) -> str:
    return "".join(
        f"<{name}>{escape(value) if isinstance(value, str) else xml(value)}</{name}>"
        for name, value in elements.items()
    )

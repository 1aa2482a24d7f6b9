"""Name server of the namespaces: it knows the hosts of the clouds, and no others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import IPv4Address
from socketserver import BaseRequestHandler, ThreadingUDPServer
from threading import Thread

_A, _NXDOMAIN, _HEADER = 1, 3, struct.Struct(">HHHHHH")


class NameServer:
    """Server at 127.0.0.1:53. `address_of` returns the IPv4 address of a host, or None: there is no such host."""

    def __init__(self, address_of: Callable[[str], str | None]) -> None:
        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                data, socket = self.request
                socket.sendto(_response(data, address_of), self.client_address)

        self._server = ThreadingUDPServer(("127.0.0.1", 53), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _response(query: bytes, address_of: Callable[[str], str | None]) -> bytes:
    """Return the response to a query for one name (RFC 1035, section 4)."""
    labels, place = [], _HEADER.size
    while size := query[place]:
        labels.append(query[place + 1 : place + 1 + size].decode().lower())
        place += 1 + size
    question = query[_HEADER.size : place + 5]
    address, (kind,) = address_of(".".join(labels)), struct.unpack_from(">H", query, place + 1)
    answer = b""
    if address is not None and kind == _A:
        answer = struct.pack(">HHHIH", 0xC00C, _A, 1, 0, 4) + IPv4Address(address).packed
    flags = 0x8180 | (_NXDOMAIN if address is None else 0)
    return query[:2] + _HEADER.pack(0, flags, 1, bool(answer), 0, 0)[2:] + question + answer

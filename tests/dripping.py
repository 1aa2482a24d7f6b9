"""A server whose answer never comes to an end, though no wait for its next byte is long."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HEADERS = (b"HTTP/1.1 200 OK\r\nX-Never: ", b"x")
BODY = (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b"x")
CHUNKS = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")


@contextmanager
def dripping(
    first: bytes | Callable[[bytes], bytes], piece: bytes, identity: ssl.SSLContext | None = None, seconds: float = 0
) -> Iterator[tuple[str, list[int]]]:
    """Its URL, and for each answer how many pieces were sent, one each `seconds`; an answer ends with its client."""
    ended, sent = threading.Event(), [0]
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = connection if identity is None else identity.wrap_socket(connection, server_side=True)
            request = stream.recv(1 << 16)
            stream.sendall(first if isinstance(first, bytes) else first(request))
            for number in itertools.count(1):
                if ended.wait(seconds):
                    return
                stream.sendall(piece)
                sent[-1] = number

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http{'' if identity is None else 's'}://127.0.0.1:{listener.getsockname()[1]}", sent
    finally:
        ended.set()
        listener.close()

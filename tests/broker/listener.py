"""Listener that is no Kafka broker, or a broker of few words."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SILENCE = b""


@contextmanager
def listener(
    answer: Callable[[bytes], bytes], context: ssl.SSLContext | None = None, *, closes: bool = True
) -> Iterator[str]:
    """A listener that sends `answer` of the first bytes of each connection, and then closes it if `closes`.

    Where the answer is SILENCE, the connection stays open.
    """
    server = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            try:
                secured = connection if context is None else context.wrap_socket(connection, server_side=True)
                reply = answer(secured.recv(4096))
                if reply:
                    secured.sendall(reply)
                    if closes:
                        secured.close()
                kept.append(secured)
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for connection in kept:
            connection.close()

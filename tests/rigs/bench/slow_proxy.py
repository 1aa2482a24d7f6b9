"""An S3 endpoint that behaves like S3: it takes a while to the first byte, and a connection has a rate.

python -m tests.rigs.bench.slow_proxy PORT UPSTREAM_PORT SECONDS BYTES_PER_SECOND

Connections do not take from each other, as in S3. A rate of 0 is none.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable

from tests.rigs.chaos.proxy import FaultProxy

_PIECE = 256 << 10


class SlowProxy(FaultProxy):
    """Passes bytes on; each answer's first come so many `seconds` after its request, the others at most at `rate`."""

    def __init__(
        self,
        seconds: float,
        rate: int,
        port: int = 0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._rate = rate
        self._now = now
        self._sleep = sleep
        super().__init__(port)

    def serve(self, client: socket.socket, service: socket.socket) -> None:
        asked = threading.Event()
        threading.Thread(target=self._ask, args=(client, service, asked), daemon=True).start()
        due = self._now()
        buffer = memoryview(bytearray(_PIECE))
        while size := service.recv_into(buffer):
            if asked.is_set():
                asked.clear()
                due = self._now() + self._seconds
            wait = due - self._now()
            if wait > 0:
                self._sleep(wait)
            client.sendall(buffer[:size])
            # Of what was not used of the rate nothing is saved up.
            due = max(due, self._now()) + (size / self._rate if self._rate else 0)

    @staticmethod
    def _ask(client: socket.socket, service: socket.socket, asked: threading.Event) -> None:
        """Pass requests on. A client sends the next one when it has the whole answer."""
        try:
            while data := client.recv(_PIECE):
                asked.set()
                service.sendall(data)
            service.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def main() -> None:
    port, upstream, seconds, rate = sys.argv[1:]
    proxy = SlowProxy(float(seconds), int(rate), int(port))
    proxy.upstream = int(upstream)
    threading.Event().wait()


if __name__ == "__main__":
    main()

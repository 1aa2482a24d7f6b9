"""What a proxy may do to one answer of a service on its way to the client."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

CODES = {403: "AccessDenied", 404: "NoSuchKey", 416: "InvalidRange", 429: "TooManyRequests", 500: "InternalError"}
CODES[503] = "SlowDown"
"""What S3 says in the body, by HTTP status."""

_DATE = re.compile(rb"(?i)(X-Amz-Date[=:] ?)\d{8}T\d{6}Z")


class Broken(Exception):  # noqa: N818 - no error
    """The connection is to be closed, without another byte."""


@dataclass(frozen=True)
class Exchange:
    """A request, where requests are known, and how to get the service's answer to it."""

    client: socket.socket
    request: bytes
    answer: Callable[[bytes], bytes]
    gone: threading.Event
    """Set when the client has hung up."""

    def send_part(self, share: float) -> None:
        """The first bytes of the answer, at least one less than all."""
        answer = self.answer(self.request)
        self.client.sendall(answer[: min(int(len(answer) * share), len(answer) - 1)])


Effect = Callable[[Exchange], bytes]
"""What the client gets, which may have got bytes before."""


def delayed(seconds: float) -> Effect:
    def effect(exchange: Exchange) -> bytes:
        time.sleep(seconds)
        return exchange.answer(exchange.request)

    return effect


def cut(share: float) -> Effect:
    """The connection ends in mid-answer."""

    def effect(exchange: Exchange) -> bytes:
        exchange.send_part(share)
        raise Broken

    return effect


def reset(share: float) -> Effect:
    """As `cut`, by a TCP reset."""

    def effect(exchange: Exchange) -> bytes:
        exchange.send_part(share)
        exchange.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        exchange.client.shutdown(socket.SHUT_RD)  # so that nobody waits for bytes, and the close below is the last
        exchange.client.close()
        raise Broken

    return effect


def stalled(share: float) -> Effect:
    """Nothing more comes, until the client hangs up."""

    def effect(exchange: Exchange) -> bytes:
        exchange.send_part(share)
        exchange.gone.wait()
        raise Broken

    return effect


def dripped(pause: float) -> Effect:
    """The answer comes a byte at a time, with pauses of so many seconds, until the client hangs up."""

    def effect(exchange: Exchange) -> bytes:
        answer = exchange.answer(exchange.request)
        for at in range(len(answer)):
            if exchange.gone.wait(pause):
                raise Broken
            exchange.client.sendall(answer[at : at + 1])
        return b""

    return effect


def refused(status: int) -> Effect:
    """S3's answer with such a status."""
    body = f"<Error><Code>{CODES[status]}</Code><Message>chaos</Message></Error>".encode()
    head = f"HTTP/1.1 {status} Chaos\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    return lambda exchange: head if exchange.request.startswith(b"HEAD") else head + body


def shortened(exchange: Exchange) -> bytes:
    """The answer without the second half of its body, and with a Content-Length that says so."""
    head, _, body = exchange.answer(exchange.request).partition(b"\r\n\r\n")
    body = body[: len(body) // 2]
    return re.sub(rb"(?i)(Content-Length: )\d+", rb"\g<1>%d" % len(body), head) + b"\r\n\r\n" + body


def signed_long_ago(exchange: Exchange) -> bytes:
    """The service's answer to who signs by a clock that is years behind, or has an old signed URL."""
    return exchange.answer(_DATE.sub(rb"\g<1>20190101T000000Z", exchange.request))


def held(until: threading.Event) -> Effect:
    """The service hears of the request only then."""

    def effect(exchange: Exchange) -> bytes:
        until.wait()
        return exchange.answer(exchange.request)

    return effect

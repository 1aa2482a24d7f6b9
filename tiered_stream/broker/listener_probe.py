"""Probe of a listener that does not respond as expected: it may speak HTTP, TLS, or want a login.

The probe is Kafka's request SaslHandshake, which any listener responds to before a login. Its text has empty lines, so
that an HTTP server responds, too, and does not wait for more.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass

from tiered_stream.broker.faults import TLS, foreign_protocol

_CORRELATION_ID = b"tist"
_CLIENT_ID = b"tiered-stream probe\r\n\r\n"
_NO_MECHANISM = b"\r\n\r\n"
_SASL_HANDSHAKE, _VERSION = 17, 1
_ILLEGAL_SASL_STATE = 34
"""Error code of a listener without SASL."""
_MOST_BYTES = 4096
_MECHANISM = re.compile(r"[A-Z0-9_-]{1,20}")
"""Form of the name of a SASL mechanism (RFC 4422, 3.1)."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Protocol of a Kafka listener: with TLS or not, and the SASL mechanisms that it accepts (none: no login).

    Nobody has proved that the listener is a broker: anybody on the way may have sent the response.
    """

    tls: bool
    mechanisms: tuple[str, ...]

    @property
    def security_protocol(self) -> str:
        return f"SASL_{'SSL' if self.tls else 'PLAINTEXT'}" if self.mechanisms else "SSL" if self.tls else "PLAINTEXT"

    def lacks(self, security_protocol: str) -> str:
        """Return the protections of `security_protocol` that this listener does not have; empty: it has them all."""
        missing = ["TLS"] * ("SSL" in security_protocol and not self.tls)
        missing += ["logins"] * (security_protocol.startswith("SASL") and not self.mechanisms)
        return " and ".join(missing)


def mismatch(host: str, port: int, security_protocol: str, mechanism: str = "", seconds: float = 2.0) -> str | None:
    """Return why the listener does not fit the settings, and the fix; empty: it may fit; None: nobody is there.

    The text is the end of a sentence that begins with the listener. It never advises less security than the settings
    have, because the response may be forged.

    Args:
        security_protocol: value of `kafka.security.protocol`.
        mechanism: value of `kafka.sasl.mechanism`; empty: unknown.
        seconds: time limit for both probes, each of which has half of it.
    """
    try:
        plain = _response(host, port, seconds / 2, tls=False)
    except OSError:
        return None
    listener, foreign = _parse(plain, tls=False), foreign_protocol(plain)
    if listener is None and (not foreign or _is_tls(plain)):
        encrypted = b""
        with suppress(OSError, ValueError):
            encrypted = _response(host, port, seconds / 2, tls=True)
        listener, foreign = _parse(encrypted, tls=True), foreign_protocol(encrypted) or foreign
    if listener is None:
        return "" if _is_tls(plain) and "SSL" in security_protocol else foreign
    return _misfit(listener, security_protocol, mechanism)


def _misfit(listener: Listener, security_protocol: str, mechanism: str) -> str:
    offered = " or ".join(listener.mechanisms)
    if missing := listener.lacks(security_protocol):
        return (
            f"responded like a Kafka listener of the protocol {listener.security_protocol}, without {missing}, and "
            f"kafka.security.protocol is {security_protocol}. Nothing proves that a broker sent this: find out from "
            f"the cluster's owner which address has {security_protocol}, and keep kafka.security.protocol"
        )
    if listener.security_protocol != security_protocol:
        logins = f" and kafka.sasl.mechanism to {offered}" if listener.mechanisms else ""
        return (
            f"is a Kafka listener of the protocol {listener.security_protocol}, and kafka.security.protocol is "
            f"{security_protocol}: set kafka.security.protocol to {listener.security_protocol}{logins}"
        )
    if not listener.mechanisms or not mechanism or mechanism in listener.mechanisms:
        return ""
    return (
        f"responded that it has no logins by kafka.sasl.mechanism = {mechanism}, only by {offered}. Nothing proves "
        "that a broker sent this: find out from the cluster's owner which mechanism your user has"
    )


def _response(host: str, port: int, seconds: float, *, tls: bool) -> bytes:
    """Send the probe, and return the first bytes of the response; empty: the listener says nothing, or closes.

    Raises:
        OSError: no connection, or TLS failed.
    """
    deadline = time.monotonic() + seconds
    with socket.create_connection((host, port), seconds) as connection:
        if not tls:
            return _exchange(connection, deadline)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
        connection.settimeout(_left(deadline))  # holds for the whole handshake
        with context.wrap_socket(connection, server_hostname=host) as secured:
            return _exchange(secured, deadline)


def _left(deadline: float) -> float:
    """Return the seconds until `deadline`. Raises TimeoutError if there are none."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds


def _is_tls(response: bytes) -> bool:
    return response.startswith(TLS)


def _exchange(connection: socket.socket, deadline: float) -> bytes:
    received = b""
    with suppress(OSError):  # what has come until then says enough
        connection.settimeout(_left(deadline))
        connection.sendall(_probe())
        while len(received) < _wanted(received):
            connection.settimeout(_left(deadline))  # the deadline also holds for a peer that sends byte by byte
            data = connection.recv(_MOST_BYTES)
            if not data:
                break
            received += data
    return received


def _wanted(received: bytes) -> int:
    """Return the size of the response that begins with `received`; at most `_MOST_BYTES`."""
    size = 4 + int.from_bytes(received[:4], "big") if len(received) >= 4 else 4
    return size if size <= _MOST_BYTES else 0


def _probe() -> bytes:
    head = _SASL_HANDSHAKE.to_bytes(2, "big") + _VERSION.to_bytes(2, "big") + _CORRELATION_ID
    request = head + _text(_CLIENT_ID) + _text(_NO_MECHANISM)
    return len(request).to_bytes(4, "big") + request


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def _parse(response: bytes, *, tls: bool) -> Listener | None:
    """Return the listener that has sent this response; None: it is no response to the probe."""
    if response[4:8] != _CORRELATION_ID:
        return None
    error_code, position = int.from_bytes(response[8:10], "big"), 14
    if error_code == _ILLEGAL_SASL_STATE:
        return Listener(tls, ())
    mechanisms: list[str] = []
    for _ in range(min(int.from_bytes(response[10:14], "big"), 20)):
        size = int.from_bytes(response[position : position + 2], "big")
        name = response[position + 2 : position + 2 + size].decode("ascii", "replace")
        if not _MECHANISM.fullmatch(name):
            return None
        mechanisms.append(name)
        position += 2 + size
    return Listener(tls, tuple(mechanisms)) if mechanisms else None

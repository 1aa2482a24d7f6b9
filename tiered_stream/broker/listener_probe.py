"""Probe of a listener that does not respond as expected: it may speak HTTP, TLS, or want a login.

The probe is Kafka's request SaslHandshake, which any listener responds to before a login. Its text has empty lines, so
that an HTTP server responds, too, and does not wait for more.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass

from tiered_stream.broker.faults import TLS, foreign_protocol

_SECONDS = 1.0
_CORRELATION_ID = b"tist"
_CLIENT_ID = b"tiered-stream probe\r\n\r\n"
_NO_MECHANISM = b"\r\n\r\n"
_SASL_HANDSHAKE, _VERSION = 17, 1
_ILLEGAL_SASL_STATE = 34
"""Error code of a listener without SASL."""
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Listener:
    """Protocol of a Kafka listener: with TLS or not, and the SASL mechanisms that it accepts (none: no login)."""

    tls: bool
    mechanisms: tuple[str, ...]

    @property
    def security_protocol(self) -> str:
        return f"SASL_{'SSL' if self.tls else 'PLAINTEXT'}" if self.mechanisms else "SSL" if self.tls else "PLAINTEXT"


def mismatch(host: str, port: int, security_protocol: str, mechanism: str = "") -> str | None:
    """Return why the listener does not fit the settings, and the fix; empty: it may fit; None: nobody is there.

    The text is the end of a sentence that begins with the listener.

    Args:
        security_protocol: value of `kafka.security.protocol`.
        mechanism: value of `kafka.sasl.mechanism`; empty: unknown.
    """
    try:
        plain = _response(host, port, tls=False)
    except OSError:
        return None
    listener, foreign = _parse(plain, tls=False), foreign_protocol(plain)
    if listener is None and (not foreign or _is_tls(plain)):
        encrypted = b""
        with suppress(OSError, ValueError):
            encrypted = _response(host, port, tls=True)
        listener, foreign = _parse(encrypted, tls=True), foreign_protocol(encrypted) or foreign
    if listener is None:
        return "" if _is_tls(plain) and "SSL" in security_protocol else foreign
    offered = " or ".join(listener.mechanisms)
    if listener.security_protocol == security_protocol:
        if not listener.mechanisms or not mechanism or mechanism in listener.mechanisms:
            return ""
        return f"has no logins by kafka.sasl.mechanism = {mechanism}: set kafka.sasl.mechanism to {offered}"
    logins = f" and kafka.sasl.mechanism to {offered}" if listener.mechanisms else ""
    return (
        f"is a Kafka listener of the protocol {listener.security_protocol}, and kafka.security.protocol is "
        f"{security_protocol}: set kafka.security.protocol to {listener.security_protocol}{logins}"
    )


def _response(host: str, port: int, *, tls: bool) -> bytes:
    """Send the probe, and return the first bytes of the response; empty: the listener says nothing, or closes.

    Raises:
        OSError: no connection, or TLS failed.
    """
    with socket.create_connection((host, port), _SECONDS) as connection:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
            with context.wrap_socket(connection, server_hostname=host) as secured:
                return _exchange(secured)
        return _exchange(connection)


def _is_tls(response: bytes) -> bool:
    return response.startswith(TLS)


def _exchange(connection: socket.socket) -> bytes:
    received = b""
    with suppress(OSError):  # what has come until then says enough
        connection.sendall(_probe())
        while len(received) < _wanted(received) and (data := connection.recv(_MOST_BYTES)):
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
    mechanisms = []
    for _ in range(min(int.from_bytes(response[10:14], "big"), 20)):
        size = int.from_bytes(response[position : position + 2], "big")
        mechanisms.append(response[position + 2 : position + 2 + size].decode("ascii", "replace"))
        position += 2 + size
    return Listener(tls, tuple(mechanisms)) if mechanisms else None

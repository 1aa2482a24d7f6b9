"""Check of the brokers at the start of a query or a command, which soon reports wrong addresses and wrong protocols.

Later calls wait longer, because brokers that have responded before will probably be back.

If a listener does not respond as expected, it may speak HTTP, TLS, or want a login. To find out, `mismatch` sends
Kafka's request SaslHandshake, which any listener responds to before a login. The request's text has empty lines, so
that an HTTP server responds, too, and does not wait for more.
"""

from __future__ import annotations

import concurrent.futures
import logging
import re
import socket
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from tiered_stream.broker.client import PATIENCE_S, BrokerClient, open_client
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.kafka_errors import TLS, foreign_protocol
from tiered_stream.errors import BrokerAuthorizationError, ConfigurationError
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.remote_options import LOCATOR
from tiered_stream.options.spark_options import ASSIGN, BOOTSTRAP_SERVERS, FETCH_OFFSET_NUM_RETRIES, SUBSCRIBE
from tiered_stream.options.types import host_and_port

log = logging.getLogger(__name__)

PROBE_AFTER_S = 1.0
"""Seconds without a response after which the listeners are examined."""
_PROBE_S = 2.0
_MAX_PROBED = 10
_MAX_MECHANISMS = 20
_CORRELATION_ID = 0x74697374
_ILLEGAL_SASL_STATE = 34
"""Error code of a listener without SASL."""
_LEAST_S = 0.001
_MOST_BYTES = 4096
_MECHANISM = re.compile(r"[A-Z0-9_-]{1,20}")
"""Form of the name of a SASL mechanism (RFC 4422, 3.1)."""


def meet_brokers(client: BrokerClient, *, advertised: bool = True) -> None:
    """Wait until brokers respond, at the start of a query or a command; do nothing if they have responded before.

    A bootstrap server has to respond. If `advertised` is true, a broker also has to respond at the address that it
    advertises.

    If every address is unknown or refuses connections, give up after `BrokerConfig.start_timeout_ms`. If no broker
    responds within 1 s, or a login is refused, find out what else listens at the bootstrap servers. After 3 s, log a
    warning.

    Raises:
        ConfigurationError: the listeners do not speak Kafka's protocol, or need another `kafka.security.protocol` or
            `kafka.sasl.mechanism`.
        BrokerUnavailableError: nobody responds.
        BrokerAuthorizationError, BrokerError: the login was refused, or the same request would fail again.
    """
    if client.has_met_brokers:
        return
    begin, deadline = time.monotonic(), client.deadline()
    soon = client.deadline(client.config.start_timeout_ms)
    call = client.start(lambda: client.meet(deadline, soon, advertised=advertised))
    if not _is_done(call, PROBE_AFTER_S):
        wrong = wrong_listeners(client.config, min(_PROBE_S, deadline.remaining_ms / 1000))
        if wrong and not call.done():
            deadline.end()
            raise ConfigurationError(wrong)
    if not _is_done(call, PATIENCE_S - (time.monotonic() - begin)):
        servers = f"kafka.bootstrap.servers = {client.config.bootstrap_servers!r}"
        log.warning("still trying to reach %s: %s", servers, client.connections.unanswered(begin) or "no response yet")
    try:
        call.result()
    except BrokerAuthorizationError as error:
        if wrong := wrong_listeners(client.config, _PROBE_S):
            raise ConfigurationError(wrong) from error
        raise


def check_brokers(options: Mapping[str, str], *, topics: bool) -> None:
    """Check the brokers that the source's options name, before Spark is started. Do nothing for an archive.

    If `topics` is true, also check that the topics that the options name exist. Topics are not checked if the user has
    changed `fetchOffset.numRetries` to wait for them.
    """
    given = GivenOptions(options)
    if given.read(LOCATOR) is LocatorName.ARCHIVE or not given.read(BOOTSTRAP_SERVERS):
        return
    client = open_client(given.with_prefix("kafka."))
    meet_brokers(client)
    named = {*given.read(SUBSCRIBE), *(partition.topic for partition in given.read(ASSIGN))}
    awaits_topics = given.read(FETCH_OFFSET_NUM_RETRIES) != FETCH_OFFSET_NUM_RETRIES.default
    if topics and named and not awaits_topics:
        client.metadata(named)


def wrong_listeners(config: BrokerConfig, seconds: float) -> str:
    """Return a text about bootstrap servers whose protocol contradicts the settings: what they speak, and the fix.

    The text is empty if one of the bootstrap servers may be right. Servers that cannot be reached do not count.

    Args:
        seconds: time limit for the examination of all servers, which runs in parallel.
    """
    if seconds <= 0:
        return ""
    servers = config.bootstrap_servers.split(",")[:_MAX_PROBED]
    with ThreadPoolExecutor(len(servers)) as threads:
        protocol, mechanism = config.net["security_protocol"], config.net.get("sasl_mechanism") or ""
        calls = [threads.submit(mismatch, *host_and_port(each), protocol, mechanism, seconds) for each in servers]
        found = [call.result() for call in calls]
    reached = {server: text for server, text in zip(servers, found, strict=True) if text is not None}
    return "; ".join(f"{server} {text}" for server, text in reached.items()) if all(reached.values()) else ""


def _is_done(call: Future[None], seconds: float) -> bool:
    return bool(concurrent.futures.wait([call], max(0.0, seconds)).done)


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
        seconds: time limit for a request without TLS and a request with TLS, each of which has half of it.
    """
    try:
        plain = _response(host, port, seconds / 2, tls=False)
    except OSError:
        return None
    listener, foreign = _parse(plain, tls=False), foreign_protocol(plain)
    if listener is None and (not foreign or plain.startswith(TLS)):
        encrypted = b""
        with suppress(OSError, ValueError):
            encrypted = _response(host, port, seconds / 2, tls=True)
        listener, foreign = _parse(encrypted, tls=True), foreign_protocol(encrypted) or foreign
    if listener is None:
        return "" if plain.startswith(TLS) and "SSL" in security_protocol else foreign
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
    """Send a SaslHandshake, over TLS if `tls` is true; return the first bytes of the response; empty: none came.

    `seconds` is the time limit for the connection and the response.
    """
    from tiered_stream.timed_http import TimedTlsSocket, timed  # imported here, because few listeners are examined

    deadline = time.monotonic() + seconds
    with timed(socket.create_connection((host, port), seconds), lambda: deadline - time.monotonic()) as connection:
        if not tls:
            return _exchange(connection)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
        context.sslsocket_class = TimedTlsSocket
        connection.settimeout(max(connection.time_left(), _LEAST_S))  # holds for the whole handshake
        with context.wrap_socket(connection, server_hostname=host) as secured:
            assert isinstance(secured, TimedTlsSocket)
            secured.time_left = connection.time_left
            return _exchange(secured)


def _exchange(connection: socket.socket) -> bytes:
    """Send a SaslHandshake; return the size field of the response, and the response if it may be Kafka's."""
    with suppress(OSError), connection.makefile("rb") as response:
        connection.sendall(_probe())
        head = response.read(4)
        size = int.from_bytes(head, "big")
        return head + response.read(size if size <= _MOST_BYTES else 0)
    return b""


def _probe() -> bytes:
    request = SaslHandshakeRequest(mechanism="\r\n\r\n")
    request.API_VERSION = 1
    request.with_header(_CORRELATION_ID, "tiered-stream probe\r\n\r\n")
    return bytes(request.encode(framed=True, header=True))


def _parse(response: bytes, *, tls: bool) -> Listener | None:
    """Return the listener that has sent this response; None: it is no response to our request."""
    if response[4:8] != _CORRELATION_ID.to_bytes(4, "big"):
        return None
    try:
        body = SaslHandshakeResponse.decode(response[8:], version=1)
    except Exception:  # noqa: BLE001 - with malformed bytes, the decoder may raise any exception
        return None
    if body.error_code == _ILLEGAL_SASL_STATE:
        return Listener(tls, ())
    mechanisms = tuple(body.mechanisms or ())[:_MAX_MECHANISMS]
    are_names = mechanisms and all(name and _MECHANISM.fullmatch(name) for name in mechanisms)  # a name may be null
    return Listener(tls, mechanisms) if are_names else None

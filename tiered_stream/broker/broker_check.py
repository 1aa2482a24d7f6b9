"""Check at the start of a query or a command that brokers respond. It reports a wrong address or protocol in seconds.

Later calls wait longer, because brokers that have responded before will probably be back.

If a listener does not respond as expected, it may speak HTTP, TLS, or want a login. To find out, `mismatch` sends
Kafka's request SaslHandshake, which every Kafka listener responds to before a login. The text in the request has empty
lines, so that an HTTP server responds at once, too.
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
"""Seconds without a response from a broker after which `meet_brokers` finds out which protocol the listeners speak."""
_PROBE_S = 2.0
_MAX_PROBED = 10
_MAX_MECHANISMS = 20
_CORRELATION_ID = 0x74697374
_ILLEGAL_SASL_STATE = 34
"""Kafka's error code ILLEGAL_SASL_STATE, with which a listener without SASL responds to a SaslHandshake."""
_LEAST_S = 0.001
_MOST_BYTES = 4096
_MECHANISM = re.compile(r"[A-Z0-9_-]{1,20}")
"""Form of the name of a SASL mechanism (RFC 4422, 3.1)."""


def meet_brokers(client: BrokerClient, *, advertised: bool = True) -> None:
    """Wait until brokers respond, at the start of a query or a command; do nothing if they have responded before.

    A bootstrap server has to respond. If `advertised` is true, a broker also has to respond at the address that it
    advertises.

    The time limit is `default.api.timeout.ms`, or `BrokerConfig.start_timeout_ms` if every address is unknown or
    refuses connections. If no broker responds within 1 s, or a login is refused, find out which protocol the bootstrap
    servers speak. After 3 s without a response, log a warning.

    Raises:
        ConfigurationError: the bootstrap servers do not speak Kafka's protocol, or need another
            `kafka.security.protocol` or `kafka.sasl.mechanism`.
        BrokerUnavailableError: no broker responds in time.
        BrokerAuthorizationError: a broker refused the login.
        BrokerError: a broker responded with an error, and the same request would fail again.
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
    """Check before Spark is started that the brokers in the source's `options` respond.

    Do nothing if `options` name no bootstrap servers, or have `remote.log.locator=archive`. If `topics` is true, also
    check that the topics in `subscribe` and `assign` exist. This second check is left out if the user has changed
    `fetchOffset.numRetries`, because the query may then wait for its topics.

    Raises:
        UnknownTopicError: a topic does not exist.
        ConfigurationError, BrokerError: an option is wrong, or no broker responds as `meet_brokers` requires.
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
    """Return an error text that says which protocol each bootstrap server speaks, and which setting to change.

    The text is empty if no bootstrap server can be reached, or if one that can be reached may fit the settings. At most
    the first 10 servers in `config` are examined, in parallel.

    Args:
        seconds: time limit for the examination of all servers.
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
    """Protocol of a Kafka listener: whether it has TLS, and the SASL mechanisms that it accepts (none: no login).

    The protocol is taken from a response that is not authenticated, so an attacker on the network may have forged it.
    """

    tls: bool
    mechanisms: tuple[str, ...]

    @property
    def security_protocol(self) -> str:
        return f"SASL_{'SSL' if self.tls else 'PLAINTEXT'}" if self.mechanisms else "SSL" if self.tls else "PLAINTEXT"

    def lacks(self, security_protocol: str) -> str:
        """Return `TLS`, `logins` or both, if `security_protocol` has them and this listener does not; else empty."""
        missing = ["TLS"] * ("SSL" in security_protocol and not self.tls)
        missing += ["logins"] * (security_protocol.startswith("SASL") and not self.mechanisms)
        return " and ".join(missing)


def mismatch(host: str, port: int, security_protocol: str, mechanism: str = "", seconds: float = 2.0) -> str | None:
    """Return why the listener at `host` and `port` does not fit the settings, and which setting to change.

    The result is empty if the listener may fit, and None if no connection to it can be made. The text continues a
    sentence whose subject is the listener. It never advises less security than the settings have, because the
    listener's response may be forged.

    Args:
        security_protocol: value of `kafka.security.protocol`.
        mechanism: value of `kafka.sasl.mechanism`; empty: unknown.
        seconds: time limit. A request without TLS has half of it, and a request with TLS has the other half.
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
    """Send a SaslHandshake to a listener, over TLS if `tls` is true, and return the bytes that `_exchange` returns.

    `seconds` is the time limit for the connection and the response. Raises OSError if no connection can be made.
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
    """Send a SaslHandshake; return the response's size field (4 bytes) and the response; empty: no response came.

    A response of more than 4 KiB is not Kafka's. Only its size field is returned.
    """
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
    """Return the protocol of the listener that has sent `response`; None: it is not a response to our SaslHandshake.

    `response` begins with its size field. `tls` is true if the response came over TLS.
    """
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

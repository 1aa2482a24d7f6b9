"""Kafka's Java client properties, checked and turned into kafka-python's settings.

Names, defaults and ranges are those of Kafka's `ConsumerConfig` and `AdminClientConfig`, so that what a user gave
Spark's `kafka` source means the same here. What becomes of each is in `property_table`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiered_stream.broker.config.property_names import check_names, warn_of_unread
from tiered_stream.broker.config.property_table import CLIENT_PROPERTIES
from tiered_stream.broker.config.property_values import ConfigValues
from tiered_stream.broker.config.sasl import sasl_settings
from tiered_stream.broker.config.tls import tls_context
from tiered_stream.broker.config.unused_properties import check_unused
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.types import INT_MAX, LONG_MIN

if TYPE_CHECKING:
    from tiered_stream.broker.held_login import HeldLogin

_SMALLEST_RECEIVE_LIMIT = 256 << 20  # below 0x15030100, which a TLS alert reads as when taken for a length

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DNS_LOOKUPS = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
_SERVER = re.compile(r"(?:[\w+.-]+://)?(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Checked client properties. Times in milliseconds, sizes in bytes.

    `net` holds the arguments of kafka-python's KafkaConnectionManager, the password among them: it stays out of the
    repr. `isolation_level` is None where the user left it to us.
    """

    bootstrap_servers: str
    net: Mapping[str, Any] = field(repr=False)
    request_timeout_ms: int
    api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    isolation_level: IsolationLevel | None
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    check_crcs: bool
    client_rack: str

    @property
    def security(self) -> str:
        """The protocol and mechanism in the user's own terms, for errors."""
        mechanism = self.net.get("sasl_mechanism")
        login = f" with kafka.sasl.mechanism = {mechanism}" if mechanism else ""
        return f"kafka.security.protocol = {self.net['security_protocol']}{login}"

    @property
    def held_login(self) -> HeldLogin[Any] | None:
        """The tokens of OAUTHBEARER, the credentials of AWS_MSK_IAM; None: logins need nothing that ends."""
        login: HeldLogin[Any] | None = self.net.get("sasl_oauth_token_provider")
        return login

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Reads Kafka client properties, named without the `kafka.` prefix.

        Raises:
            ConfigurationError: a value is missing, malformed, or asks for what is not supported.
        """
        values = ConfigValues(properties)
        check_names(properties)
        check_unused(ConfigValues(properties))
        config = cls.read(values)
        warn_of_unread(properties, values.read, config.security)
        return config

    @classmethod
    def read(cls, values: ConfigValues) -> BrokerConfig:
        """What `parse` gives, of what it has checked the names of."""
        level = values.word("isolation.level", ("", *(level.value for level in IsolationLevel)))
        return cls(
            bootstrap_servers=_bootstrap_servers(values),
            net=_net_settings(values),
            request_timeout_ms=values.integer("request.timeout.ms"),
            api_timeout_ms=values.integer("default.api.timeout.ms"),
            retry_backoff_ms=values.milliseconds("retry.backoff.ms"),
            retry_backoff_max_ms=values.milliseconds("retry.backoff.max.ms"),
            metadata_max_age_ms=values.milliseconds("metadata.max.age.ms"),
            isolation_level=IsolationLevel(level) if level else None,
            fetch_max_bytes=_fetch_max_bytes(values),
            fetch_max_wait_ms=values.integer("fetch.max.wait.ms"),
            fetch_min_bytes=values.integer("fetch.min.bytes"),
            check_crcs=values.boolean("check.crcs"),
            client_rack=values.text("client.rack"),
        )


def _bootstrap_servers(values: ConfigValues) -> str:
    servers = [server.strip() for server in values.text("bootstrap.servers").split(",") if server.strip()]
    if not servers:
        raise ConfigurationError("kafka.bootstrap.servers is missing: give host:port of one broker or more")
    for server in servers:
        match = _SERVER.fullmatch(server)
        if match is None or not 0 < int(match[2]) < 65_536:
            raise ConfigurationError(f"kafka.bootstrap.servers: {server!r} is not host:port")
    return ",".join(servers)


def _fetch_max_bytes(values: ConfigValues) -> int:
    """One Fetch asks for one partition, so the smaller of Kafka's two limits holds."""
    whole = values.integer("fetch.max.bytes")
    partition = values.integer("max.partition.fetch.bytes")
    return min(whole, partition)


def _net_settings(values: ConfigValues) -> dict[str, Any]:
    protocol = values.choice("security.protocol", _PROTOCOLS)
    idle_ms = values.milliseconds("connections.max.idle.ms", low=LONG_MIN)
    settings: dict[str, Any] = {
        "bootstrap_servers": _bootstrap_servers(values),
        "client_id": values.text("client.id") or CLIENT_PROPERTIES["client.id"].default,
        "client_dns_lookup": values.word("client.dns.lookup", _DNS_LOOKUPS),
        "security_protocol": protocol,
        "request_timeout_ms": values.integer("request.timeout.ms"),
        "reconnect_backoff_ms": values.milliseconds("reconnect.backoff.ms"),
        "reconnect_backoff_max_ms": values.milliseconds("reconnect.backoff.max.ms"),
        "socket_connection_setup_timeout_ms": values.milliseconds("socket.connection.setup.timeout.ms"),
        "socket_connection_setup_timeout_max_ms": values.milliseconds("socket.connection.setup.timeout.max.ms"),
        "connections_max_idle_ms": INT_MAX if idle_ms < 0 else idle_ms,
        "socket_options": list(_socket_options(values)),
        # A Fetch answer may exceed what was asked for by one batch.
        "receive_message_max_bytes": min(INT_MAX, max(_SMALLEST_RECEIVE_LIMIT, 2 * _fetch_max_bytes(values))),
        # kafka-python refuses a request beyond this many instead of letting it wait.
        "max_in_flight_requests_per_connection": 1_000,
    }
    if protocol in ("SSL", "SASL_SSL"):
        settings["ssl_context"] = tls_context(values)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        settings.update(sasl_settings(values, protocol))
    return settings


def _socket_options(values: ConfigValues) -> Iterable[tuple[int, int, int]]:
    yield socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
    for name, option in (("receive.buffer.bytes", socket.SO_RCVBUF), ("send.buffer.bytes", socket.SO_SNDBUF)):
        size = values.integer(name, low=-1)
        if size > 0:  # unset: the system tunes it, which is faster than Kafka's default of 64 KiB
            yield socket.SOL_SOCKET, option, size

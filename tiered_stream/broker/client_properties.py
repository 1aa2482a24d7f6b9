"""Check of Kafka's Java client properties, and conversion into kafka-python's settings.

Names, defaults and ranges are those of Kafka's `ConsumerConfig` and `AdminClientConfig`. So properties that a user gave
to Spark's `kafka` source mean the same here. `property_table` lists the effect of each property.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiered_stream.broker.login.sasl import sasl_settings
from tiered_stream.broker.login.tls import tls_context
from tiered_stream.broker.properties.property_table import CLIENT_PROPERTIES, check_names, warn_of_unread
from tiered_stream.broker.properties.property_values import ConfigValues
from tiered_stream.broker.properties.unused_properties import check_unused
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.types import INT_MAX, LONG_MIN

if TYPE_CHECKING:
    from tiered_stream.broker.login.held_login import HeldLogin

_SMALLEST_RECEIVE_LIMIT = 256 << 20  # less than 0x15030100, the first bytes of a TLS alert read as a length

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DNS_LOOKUPS = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
_SERVER = re.compile(r"(?:[\w+.-]+://)?(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Checked client properties. Times are in milliseconds, sizes in bytes.

    `net` holds the arguments of kafka-python's KafkaConnectionManager. It may contain a password, so it is not in the
    repr. `isolation_level` is None if the user did not set it.
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
        """Security protocol and SASL mechanism as a user would write them, for errors."""
        mechanism = self.net.get("sasl_mechanism")
        login = f" with kafka.sasl.mechanism = {mechanism}" if mechanism else ""
        return f"kafka.security.protocol = {self.net['security_protocol']}{login}"

    @property
    def held_login(self) -> HeldLogin[Any] | None:
        """Tokens for OAUTHBEARER or credentials for AWS_MSK_IAM; None: logins need nothing that expires."""
        login: HeldLogin[Any] | None = self.net.get("sasl_oauth_token_provider")
        return login

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parse and check Kafka client properties, named without the `kafka.` prefix. Warn of names without effect.

        Raises:
            ConfigurationError: a value is missing, malformed or not supported.
        """
        values = ConfigValues(properties)
        check_names(properties)
        check_unused(ConfigValues(properties))
        config = cls.read(values)
        warn_of_unread(properties, values.read, config.security)
        return config

    @classmethod
    def read(cls, values: ConfigValues) -> BrokerConfig:
        """Parse Kafka client properties without a check of their names. Raises ConfigurationError for a wrong value."""
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
    """Return the smaller of `fetch.max.bytes` and `max.partition.fetch.bytes`: one Fetch asks for one partition."""
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
        # A Fetch response may be larger than requested, by one batch.
        "receive_message_max_bytes": min(INT_MAX, max(_SMALLEST_RECEIVE_LIMIT, 2 * _fetch_max_bytes(values))),
        # kafka-python refuses further requests beyond this number; it does not let them wait.
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
        if size > 0:  # else the system tunes the buffer, which is faster than Kafka's default of 64 KiB
            yield socket.SOL_SOCKET, option, size

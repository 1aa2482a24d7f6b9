"""Check of Kafka's Java client properties, and conversion into kafka-python's settings.

Names, defaults and ranges are as in Kafka's `ConsumerConfig` and `AdminClientConfig`. So properties that a user gave to
Spark's `kafka` source mean the same here. `kafka_properties` declares each property.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiered_stream.broker import kafka_properties as kafka
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.sasl import sasl_settings
from tiered_stream.broker.login.tls import tls_context
from tiered_stream.errors import ConfigurationError
from tiered_stream.options import spark_options as spark
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.given_options import declared, of
from tiered_stream.options.types import INT_MAX, Option

if TYPE_CHECKING:
    from tiered_stream.broker.login.kerberos import KerberosLogin
    from tiered_stream.broker.login.renewed_login import RenewedLogin

_START_TIMEOUT_MS = 2_500
_SMALLEST_RECEIVE_LIMIT = 256 << 20  # below 0x15030100, the size that a TLS alert seems to announce, so it is refused
_KAFKA_PYTHON_SETTINGS: dict[str, Option[Any]] = {
    "client_dns_lookup": kafka.CLIENT_DNS_LOOKUP,
    "security_protocol": kafka.SECURITY_PROTOCOL,
    "request_timeout_ms": kafka.INTEGERS["request.timeout.ms"],
    "reconnect_backoff_ms": kafka.INTEGERS["reconnect.backoff.ms"],
    "reconnect_backoff_max_ms": kafka.INTEGERS["reconnect.backoff.max.ms"],
    "socket_connection_setup_timeout_ms": kafka.INTEGERS["socket.connection.setup.timeout.ms"],
    "socket_connection_setup_timeout_max_ms": kafka.INTEGERS["socket.connection.setup.timeout.max.ms"],
}
"""Declarations of the properties that have a setting of the same meaning in kafka-python, by the setting's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Kafka's client properties, parsed and checked. Times are in milliseconds, sizes in bytes.

    `net` holds the arguments of kafka-python's KafkaConnectionManager. It may contain a password, so it is not in the
    repr.
    """

    bootstrap_servers: str
    net: Mapping[str, Any] = field(repr=False)
    fetch_max_bytes: int
    """The smaller of `fetch.max.bytes` and `max.partition.fetch.bytes`, because one Fetch asks for one partition."""
    request_timeout_ms: int = of(kafka.INTEGERS["request.timeout.ms"])
    api_timeout_ms: int = of(kafka.INTEGERS["default.api.timeout.ms"])
    retry_backoff_ms: int = of(kafka.INTEGERS["retry.backoff.ms"])
    retry_backoff_max_ms: int = of(kafka.INTEGERS["retry.backoff.max.ms"])
    metadata_max_age_ms: int = of(kafka.INTEGERS["metadata.max.age.ms"])
    isolation_level: IsolationLevel = of(spark.ISOLATION_LEVEL)
    fetch_max_wait_ms: int = of(kafka.INTEGERS["fetch.max.wait.ms"])
    fetch_min_bytes: int = of(kafka.INTEGERS["fetch.min.bytes"])
    check_crcs: bool = of(spark.CHECK_CRCS)
    client_rack: str
    start_timeout_ms: int
    """Time limit of the check at the start of a query, if every broker's address is unknown or refuses connections.

    It is `default.api.timeout.ms` if the user has set that property, and 2,500 ms otherwise.
    """

    @property
    def security(self) -> str:
        """Security protocol and SASL mechanism as a user would write them, for errors."""
        mechanism = self.net.get("sasl_mechanism")
        login = f" with kafka.sasl.mechanism = {mechanism}" if mechanism else ""
        return f"kafka.security.protocol = {self.net['security_protocol']}{login}"

    @property
    def renewed_login(self) -> RenewedLogin[Any] | KerberosLogin | None:
        """Source of tokens (OAUTHBEARER), credentials (AWS_MSK_IAM) or tickets (GSSAPI).

        None: the login uses another SASL mechanism, or there is no login.
        """
        login: RenewedLogin[Any] | KerberosLogin | None = self.net.get("sasl_oauth_token_provider")
        return login

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parse and check Kafka's client properties, by name without the `kafka.` prefix.

        Log a warning for each property that is unknown or has no effect.

        Raises:
            ConfigurationError: a property is missing, malformed or not supported.
        """
        values = ConfigValues(properties)
        kafka.check_names(properties)
        servers = values.read(spark.BOOTSTRAP_SERVERS)
        if not servers:
            raise ConfigurationError("kafka.bootstrap.servers is missing: give host:port of one broker or more")
        fetch_max_bytes = min(
            values.read(kafka.INTEGERS["fetch.max.bytes"]), values.read(kafka.INTEGERS["max.partition.fetch.bytes"])
        )
        api_timeout = kafka.INTEGERS["default.api.timeout.ms"]
        config = cls(
            bootstrap_servers=servers,
            net=_net_settings(values, servers, fetch_max_bytes),
            fetch_max_bytes=fetch_max_bytes,
            client_rack=values.text("client.rack"),
            start_timeout_ms=values.read(api_timeout) if "default.api.timeout.ms" in values else _START_TIMEOUT_MS,
            **{name: values.read(option) for name, option in declared(cls).items()},
        )
        kafka.warn_of_unread(properties, values.names_read, config.security)
        return config


def _net_settings(values: ConfigValues, servers: str, fetch_max_bytes: int) -> dict[str, Any]:
    idle_ms = values.read(kafka.INTEGERS["connections.max.idle.ms"])
    settings: dict[str, Any] = {
        **{name: values.read(option) for name, option in _KAFKA_PYTHON_SETTINGS.items()},
        "bootstrap_servers": servers,
        "client_id": values.read(kafka.CLIENT_ID) or kafka.CLIENT_ID.default,
        "connections_max_idle_ms": INT_MAX if idle_ms < 0 else idle_ms,
        "socket_options": list(_socket_options(values)),
        # A Fetch response may be larger than requested, by one batch.
        "receive_message_max_bytes": min(INT_MAX, max(_SMALLEST_RECEIVE_LIMIT, 2 * fetch_max_bytes)),
        # kafka-python refuses further requests beyond this number; it does not let them wait.
        "max_in_flight_requests_per_connection": 1_000,
    }
    protocol = settings["security_protocol"]
    if protocol in ("SSL", "SASL_SSL"):
        settings["ssl_context"] = tls_context(values)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        settings.update(sasl_settings(values, protocol))
    return settings


def _socket_options(values: ConfigValues) -> Iterable[tuple[int, int, int]]:
    yield socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
    for declaration, option in (
        (kafka.INTEGERS["receive.buffer.bytes"], socket.SO_RCVBUF),
        (kafka.INTEGERS["send.buffer.bytes"], socket.SO_SNDBUF),
    ):
        size = values.read(declaration)
        if size > 0:  # else the system tunes the buffer, which is faster than Kafka's default of 64 KiB
            yield socket.SOL_SOCKET, option, size

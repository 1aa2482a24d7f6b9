"""The gateway's settings: its own `gateway.*`, Kafka's client properties, and the storage options of the source."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tiered_stream.broker.config.tls import tls_context
from tiered_stream.broker.config.values import ConfigValues
from tiered_stream.errors import ConfigurationError
from tiered_stream.options import types
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.parsing import StorageOptions, parse_storage_options
from tiered_stream.options.types import Option

_PORT = types.integer(0, 65535)
_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")


def _ports(text: str) -> range:
    match = _PORTS.fullmatch(text.strip())
    if match is None or not 0 < int(match[1]) <= int(match[2]) < 65536:
        raise ValueError("must be a range of ports such as 19100-19199")
    return range(int(match[1]), int(match[2]) + 1)


LISTENER_HOST: Option[str] = Option("gateway.listener.host", types.text, "0.0.0.0", "", "")
ADVERTISED_HOST: Option[str | None] = Option("gateway.advertised.host", types.text, None, "", "")
BOOTSTRAP_PORT: Option[int] = Option("gateway.bootstrap.port", _PORT, 19092, "", "")
BROKER_PORTS: Option[range] = Option("gateway.broker.ports", _ports, range(19100, 19200), "", "")
LISTENER_PROTOCOL: Option[str] = Option(
    "gateway.listener.security.protocol", types.one_of("plaintext", "ssl"), "plaintext", "", ""
)
KEYSTORE: Option[str | None] = Option("gateway.listener.ssl.keystore.location", types.text, None, "", "")
KEY_PASSWORD: Option[str] = Option("gateway.listener.ssl.key.password", types.text, "", "", "", secret=True)
MONITOR_HOST: Option[str] = Option("gateway.monitor.host", types.text, "127.0.0.1", "", "")
MONITOR_PORT: Option[int] = Option("gateway.monitor.port", _PORT, 19080, "", "")
SIGNED_SECONDS: Option[int] = Option(
    "gateway.signed.location.lifetime.seconds", types.integer(0, 7 * 24 * 3600), 900, "", ""
)
INDEX_CACHE: Option[int] = Option("gateway.index.cache.bytes", types.byte_size(1 << 20), 256 << 20, "", "")
ANSWER_CACHE: Option[int] = Option("gateway.answer.cache.bytes", types.byte_size(0), 256 << 20, "", "")
FRESH_MS: Option[int] = Option("gateway.metadata.max.age.ms", types.integer(0, 60_000), 500, "", "")
MAX_CONNECTIONS: Option[int] = Option("gateway.max.connections", types.integer(1, types.INT_MAX), 10_000, "", "")
SHUTDOWN_MS: Option[int] = Option("gateway.shutdown.timeout.ms", types.integer(0, types.INT_MAX), 30_000, "", "")

_OWN = (
    LISTENER_HOST, ADVERTISED_HOST, BOOTSTRAP_PORT, BROKER_PORTS, LISTENER_PROTOCOL, KEYSTORE, KEY_PASSWORD,
    MONITOR_HOST, MONITOR_PORT, SIGNED_SECONDS, INDEX_CACHE, ANSWER_CACHE, FRESH_MS, MAX_CONNECTIONS, SHUTDOWN_MS,
)  # fmt: skip
_NAMES = {option.name for option in _OWN}
_OF_OUR_OWN_LOGIN = ("ssl.keystore.", "ssl.key.")


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Checked settings; times in seconds, sizes in bytes. What may hold a secret is not in the repr.

    `listener_tls` is for connections of clients, `broker_tls` for those that carry clients' requests to brokers: it
    has no certificate of the gateway's own, so that no client comes to the broker under the gateway's name.
    """

    listener_host: str
    advertised_host: str
    bootstrap_port: int
    broker_ports: range
    listener_tls: ssl.SSLContext | None
    broker_tls: ssl.SSLContext | None
    monitor_host: str
    monitor_port: int
    signed_location_seconds: int
    index_cache_bytes: int
    answer_cache_bytes: int
    fresh_seconds: float
    max_connections: int
    shutdown_seconds: float
    kafka: Mapping[str, str] = field(repr=False)
    storage: StorageOptions

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> GatewaySettings:
        """Reads a settings file's names and values.

        Raises:
            ConfigurationError: a setting is missing, unknown or malformed.
        """
        given = GivenOptions(raw)
        unknown = sorted(given.with_prefix("gateway.").keys() - {name.removeprefix("gateway.") for name in _NAMES})
        if unknown:
            raise ConfigurationError(f"gateway.{unknown[0]} is unknown; there are {', '.join(sorted(_NAMES))}")
        advertised = given.read(ADVERTISED_HOST)
        if advertised is None:
            raise ConfigurationError("gateway.advertised.host is missing: the host by which clients reach this gateway")
        storage = parse_storage_options({name: value for name, value in raw.items() if name not in _NAMES})
        if storage.uri is None:
            raise ConfigurationError("remote.storage.uri is missing: it says where the tiered segments are")
        kafka = given.with_prefix("kafka.")
        return cls(
            listener_host=given.read(LISTENER_HOST),
            advertised_host=advertised,
            bootstrap_port=given.read(BOOTSTRAP_PORT),
            broker_ports=given.read(BROKER_PORTS),
            listener_tls=_listener_tls(given),
            broker_tls=_broker_tls(kafka),
            monitor_host=given.read(MONITOR_HOST),
            monitor_port=given.read(MONITOR_PORT),
            signed_location_seconds=given.read(SIGNED_SECONDS),
            index_cache_bytes=given.read(INDEX_CACHE),
            answer_cache_bytes=given.read(ANSWER_CACHE),
            fresh_seconds=given.read(FRESH_MS) / 1000,
            max_connections=given.read(MAX_CONNECTIONS),
            shutdown_seconds=given.read(SHUTDOWN_MS) / 1000,
            kafka=kafka,
            storage=storage,
        )


def _listener_tls(given: GivenOptions) -> ssl.SSLContext | None:
    if given.read(LISTENER_PROTOCOL) == "plaintext":
        return None
    location = given.read(KEYSTORE)
    if location is None or not Path(location).is_file():
        raise ConfigurationError(f"{KEYSTORE.name} = {location!r}: {LISTENER_PROTOCOL.name}=SSL needs a PEM file there")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(location, password=lambda: given.read(KEY_PASSWORD))
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"{KEYSTORE.name} = {location!r}: key and certificate chain could not be read (is {KEY_PASSWORD.name} "
            f"right?): {getattr(error, 'reason', None) or type(error).__name__}"
        ) from error
    return context


def _broker_tls(kafka: Mapping[str, str]) -> ssl.SSLContext | None:
    if not kafka.get("security.protocol", "").upper().strip().endswith("SSL"):
        return None
    return tls_context(
        ConfigValues({name: value for name, value in kafka.items() if not name.startswith(_OF_OUR_OWN_LOGIN)})
    )

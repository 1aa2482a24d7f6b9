"""Gateway settings: `gateway.*`, Kafka's client properties (`kafka.*`), and the Spark source's storage options."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tiered_stream.broker.kafka_properties import CLIENT_PROPERTIES, ConfigValues
from tiered_stream.broker.login.tls import tls_context
from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.listener_tls import PREFIX, ListenerTls
from tiered_stream.options import remote_options, types
from tiered_stream.options.given_options import GivenOptions, check_placeholders, declared, is_known, of, read_fields
from tiered_stream.options.parsing import StorageOptions, parse_storage_options, storage_option_names
from tiered_stream.options.remote_options import METADATA_SNAPSHOT_DIR
from tiered_stream.options.types import Option, declared_in, option, optional
from tiered_stream.options.unknown_names import unknown_setting

log = logging.getLogger(__name__)

T = TypeVar("T")

_PORT = types.integer(0, 65535)
_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")


def _ports(text: str) -> range:
    match = _PORTS.fullmatch(text.strip())
    if match is None or not 0 < int(match[1]) <= int(match[2]) < 65536:
        raise ValueError("must be a range of ports such as 19100-19199")
    return range(int(match[1]), int(match[2]) + 1)


def _seconds(max_ms: int, min_ms: int = 0) -> Callable[[str], float]:
    """Return a function that parses a number of milliseconds from `min_ms` to `max_ms`, and returns it in seconds."""
    parse = types.integer(min_ms, max_ms)
    return lambda text: parse(text) / 1000


def _setting(name: str, parse: Callable[[str], T], default: str, doc: str) -> T:
    """Declare a `gateway.*` option, and return the dataclass field for its value.

    `parse` makes the value from the option's text, and raises ValueError for a malformed text. `default` is a text,
    too. `doc` describes the option for users.
    """
    return of(option(name, parse, default, doc))


ADVERTISED_HOST: Option[str] = Option(
    "gateway.advertised.host", types.text, "", "", "Host by which clients reach this gateway. Required."
)
LISTENER_PROTOCOL = option(
    "gateway.listener.security.protocol", types.one_of("plaintext", "ssl"), "PLAINTEXT",
    "`SSL`: clients connect by TLS. Brokers check clients' SASL logins with either value.",
)  # fmt: skip
KEYSTORE = optional(
    "gateway.listener.ssl.keystore.location", types.text,
    "PEM file with the private key and the certificate chain. If it changes, new connections use the new content.",
)  # fmt: skip
KEY_PASSWORD = optional(
    "gateway.listener.ssl.key.password", types.text, "Password of the private key, if it has one.", secret=True
)
CLIENT_AUTH = option(
    "gateway.listener.ssl.client.auth", types.one_of("none", "requested", "required"), "none",
    "`required`: a client must show a certificate by an authority in the trust store. `requested`: a certificate must "
    "be valid if the client shows one. `none`: no certificate is requested. Brokers do not see the certificate.",
)  # fmt: skip
TRUSTSTORE = optional(
    "gateway.listener.ssl.truststore.location", types.text,
    "PEM, PKCS12 or JKS file with the authorities of clients' certificates.",
)  # fmt: skip
TRUSTSTORE_TYPE = optional(
    "gateway.listener.ssl.truststore.type", types.text, "Type: `PEM`, `PKCS12` or `JKS`; by default, as the file."
)
TRUSTSTORE_PASSWORD = optional(
    "gateway.listener.ssl.truststore.password", types.text, "Password of the trust store.", secret=True
)
TRUSTSTORE_CERTIFICATES = optional(
    "gateway.listener.ssl.truststore.certificates", types.text, "Certificates of the authorities, as PEM text."
)
_STORES: tuple[Option[Any], ...] = (TRUSTSTORE, TRUSTSTORE_TYPE, TRUSTSTORE_PASSWORD, TRUSTSTORE_CERTIFICATES)
SIGNED_SECONDS = option(
    "gateway.signed.location.lifetime.seconds", types.integer(0, 7 * 24 * 3600), "900",
    "Lifetime of a signed URL. 0: no URLs are signed, and readers need storage credentials.",
)  # fmt: skip

_REQUEST_TIMEOUT_MS = "20000"
"""Default timeout of a storage request: shorter than the 30 s that Kafka's clients wait for the gateway's response."""
_OWN_CERTIFICATE = ("ssl.keystore.", "ssl.key.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Checked settings of a gateway; times in seconds, sizes in bytes. The repr leaves out secrets.

    `listener_tls` is for connections from clients, and `broker_tls` for connections that carry clients' requests to
    brokers. None stands for plaintext. `broker_tls` has no client certificate, so that brokers never take a client for
    the gateway. `login_asked` is True if the brokers' listener uses SASL; clients and the gateway's own client use the
    same listener. `kafka` has Kafka's client properties by name, without the prefix `kafka.`. The other fields have
    the option's description next to them.
    """

    advertised_host: str = of(ADVERTISED_HOST)
    listener_host: str = _setting("gateway.listener.host", types.text, "0.0.0.0", "Address on which clients connect.")
    bootstrap_port: int = _setting("gateway.bootstrap.port", _PORT, "19092", "Port for clients' `bootstrap.servers`.")
    broker_ports: range = _setting(
        "gateway.broker.ports", _ports, "19100-19199", "Range of ports; each broker gets one of them."
    )
    listener_tls: ListenerTls | None
    broker_tls: ssl.SSLContext | None
    monitor_host: str = _setting(
        "gateway.monitor.host", types.text, "127.0.0.1", "Address of `/health` and `/metrics`."
    )
    monitor_port: int = _setting("gateway.monitor.port", _PORT, "19080", "Port of `/health` and `/metrics`.")
    signed_location_seconds: int = of(SIGNED_SECONDS)
    index_cache_bytes: int = _setting(
        "gateway.index.cache.bytes", types.byte_size(1 << 20), "64m", "Maximum bytes of indexes in the cache."
    )
    answer_cache_bytes: int = _setting(
        "gateway.answer.cache.bytes", types.byte_size(0), "96m", "Maximum bytes of encoded responses in the cache."
    )
    fresh_seconds: float = _setting(
        "gateway.metadata.max.age.ms", _seconds(60_000), "500",
        "Age at which a partition's offsets are requested again.",
    )  # fmt: skip
    max_connections: int = _setting(
        "gateway.max.connections", types.integer(1, types.INT_MAX), "10000", "Maximum number of client connections."
    )
    max_connections_per_ip: int = _setting(
        "gateway.max.connections.per.ip", types.integer(1, types.INT_MAX), "2147483647",
        "Maximum number of connections from one address. Brokers see the gateway's address only.",
    )  # fmt: skip
    setup_seconds: float = _setting(
        "gateway.socket.connection.setup.timeout.ms", _seconds(types.INT_MAX, min_ms=1), "10000",
        "Time limit of a client's TLS handshake, and then of the connection to the broker.",
    )  # fmt: skip
    request_bytes: int = _setting(
        "gateway.socket.request.max.bytes", types.byte_size(1, types.INT_MAX), "100m", "Maximum size of a request."
    )
    login_bytes: int = _setting(
        "gateway.sasl.server.max.receive.size", types.byte_size(1, types.INT_MAX), "512k",
        "Maximum size of a request before the login, if brokers require a login.",
    )  # fmt: skip
    in_flight: int = _setting(
        "gateway.max.in.flight.requests.per.connection", types.integer(1, types.INT_MAX), "5",
        "Requests without a response after which no further request of a connection is read. Brokers handle one at "
        "once.",
    )  # fmt: skip
    unread_bytes: int = _setting(
        "gateway.max.unread.bytes", types.byte_size(1 << 10, 1 << 30), "64k",
        "Bytes that a client or a broker has not read, after which the gateway reads no more from the other side.",
    )  # fmt: skip
    queued_bytes: int = _setting(
        "gateway.queued.max.bytes", types.byte_size(16 << 20), "256m",
        "Maximum memory of all connections for complete requests and responses, and for bytes that peers have not "
        "read. If it is exhausted, connections are closed that use it because their peer reads slowly.",
    )  # fmt: skip
    storage_requests: int = _setting(
        "gateway.max.storage.requests.per.second", types.integer(1, types.INT_MAX), "1000",
        "Maximum number of storage requests in a second, for all clients together.",
    )  # fmt: skip
    shutdown_seconds: float = _setting(
        "gateway.shutdown.timeout.ms", _seconds(types.INT_MAX), "30000",
        "Time for a connection's open requests when the gateway stops, or when the client has closed its side.",
    )  # fmt: skip
    metadata_snapshot_dir: str = of(METADATA_SNAPSHOT_DIR)
    login_asked: bool
    kafka: Mapping[str, str] = field(repr=False)
    storage: StorageOptions

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> GatewaySettings:
        """Check the settings in `raw` (texts by name, as in a settings file), and return them parsed.

        Raises:
            ConfigurationError: a setting is missing, unknown or malformed.
        """
        options = GivenOptions(raw)
        _check_names(raw, options)
        if not options.has(ADVERTISED_HOST):
            raise ConfigurationError("gateway.advertised.host is missing: the host by which clients reach this gateway")
        storage_options = {name: value for name, value in raw.items() if name not in _NAMES}
        storage = parse_storage_options(
            {remote_options.REQUEST_TIMEOUT_MS.name: _REQUEST_TIMEOUT_MS, **storage_options}
        )
        if storage.uri is None:
            raise ConfigurationError("remote.storage.uri is missing: it says where the tiered segments are")
        kafka = options.with_prefix("kafka.")
        return cls(
            listener_tls=_listener_tls(options),
            broker_tls=_broker_tls(kafka),
            login_asked=_security_protocol(kafka).startswith("SASL_"),
            kafka=kafka,
            storage=replace(storage, has_fallback=True),  # offsets without a location are read from the brokers
            **read_fields(cls, options),
        )


GATEWAY_OPTIONS: tuple[Option[Any], ...] = tuple(
    dict.fromkeys((*declared(GatewaySettings).values(), *declared_in(globals())))
)
"""All settings `gateway.*`, and `METADATA_SNAPSHOT_DIR`, which the Spark source has, too."""
_NAMES = {setting.name for setting in GATEWAY_OPTIONS}
_KNOWN = {
    name.lower(): name for name in (*_NAMES, *storage_option_names(), *(f"kafka.{name}" for name in CLIENT_PROPERTIES))
}


def _check_names(raw: Mapping[str, str], options: GivenOptions) -> None:
    """Check that all names in `raw` are settings of a gateway, and that no value is a placeholder.

    Names that begin with `kafka.`, `remote.` or the prefix of plugin options are not checked here. A warning is logged
    for each option of the Spark source that has no effect on a gateway.

    Args:
        raw: settings as texts, by name.
        options: the same settings, for lookups that ignore case.

    Raises:
        ConfigurationError: a name is unknown, or a value is a placeholder.
    """
    check_placeholders(raw, ("gateway.", "kafka."))
    elsewhere = ("kafka.", "remote.", options.plugin_prefix)
    for name in sorted(raw):
        lower = name.lower()
        if lower in _KNOWN:
            continue
        if not lower.startswith(elsewhere):
            raise unknown_setting(name, _KNOWN)
        if is_known(lower):
            log.warning("setting %s has no effect on a gateway: remove it", name)


def _listener_tls(options: GivenOptions) -> ListenerTls | None:
    auth = options.read(CLIENT_AUTH)
    is_plaintext = options.read(LISTENER_PROTOCOL) == "plaintext"
    idle: tuple[Option[Any], ...] = _STORES if auth == "none" else ()
    needed = f"{CLIENT_AUTH.name}=required or requested"
    if is_plaintext:
        idle, needed = (KEYSTORE, CLIENT_AUTH, *_STORES), f"{LISTENER_PROTOCOL.name}=SSL"
    if unused := [setting.name for setting in idle if options.has(setting) and options.read(setting)]:
        log.warning("%s has no effect without %s", unused[0], needed)
    if is_plaintext:
        return None
    location = options.read(KEYSTORE)
    if location is None or not os.path.isfile(location):
        raise ConfigurationError(f"{KEYSTORE.name} = {location!r}: {LISTENER_PROTOCOL.name}=SSL needs a PEM file there")
    if auth != "none" and not (options.read(TRUSTSTORE) or options.read(TRUSTSTORE_CERTIFICATES)):
        # Without a trust store, Kafka trusts all public authorities, so anybody with a public certificate gets in.
        raise ConfigurationError(f"{CLIENT_AUTH.name} = {auth}: {TRUSTSTORE.name} is missing; set it")
    trust = {setting.name.removeprefix(PREFIX): str(value) for setting in _STORES if (value := options.read(setting))}
    return ListenerTls(location, options.read(KEY_PASSWORD) or "", auth, trust)


def _broker_tls(kafka: Mapping[str, str]) -> ssl.SSLContext | None:
    if not _security_protocol(kafka).endswith("SSL"):
        return None
    return tls_context(
        ConfigValues({name: value for name, value in kafka.items() if not name.startswith(_OWN_CERTIFICATE)})
    )


def _security_protocol(kafka: Mapping[str, str]) -> str:
    return kafka.get("security.protocol", "").upper().strip()

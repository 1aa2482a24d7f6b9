"""Kafka's producer properties, as a user of Kafka's Java clients writes them, as librdkafka's settings.

Where a property means the same in both it goes through as it is; the way into the cluster (SASL, TLS) is said
differently. librdkafka's own names are not taken: one vocabulary for the source and for the target.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tiered_stream.broker.config.property_values import ConfigValues
from tiered_stream.broker.config.sasl import credentials
from tiered_stream.broker.config.tls import pem_store, with_line_ends
from tiered_stream.errors import ConfigurationError

PREFIX = "target.kafka."

Config = dict[str, str | int | float | bool]
"""Settings of librdkafka's; they hold secrets."""

_SAME_CONNECTION = frozenset(
    ("bootstrap.servers", "client.dns.lookup", "client.id", "connections.max.idle.ms", "metadata.max.age.ms",
     "reconnect.backoff.max.ms", "reconnect.backoff.ms", "security.protocol", "socket.connection.setup.timeout.ms",
     "ssl.endpoint.identification.algorithm", "ssl.key.password")
)  # fmt: skip
_SAID_DIFFERENTLY = frozenset(
    ("sasl.jaas.config", "sasl.mechanism", "ssl.keystore.certificate.chain", "ssl.keystore.key",
     "ssl.keystore.location", "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location",
     "ssl.truststore.type")
)  # fmt: skip
_CONNECTION = _SAME_CONNECTION | _SAID_DIFFERENTLY
"""What a target in the source's own cluster takes over from the source's properties."""
_SAME = _SAME_CONNECTION | {
    *("acks", "batch.size", "compression.type", "delivery.timeout.ms", "linger.ms", "request.timeout.ms", "retries"),
    *("max.in.flight.requests.per.connection", "retry.backoff.max.ms", "retry.backoff.ms", "transaction.timeout.ms"),
}
_RENAMED = {
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "max.request.size": "message.max.bytes",
}
_BUFFER_MEMORY = "buffer.memory"
_OURS = {
    "enable.idempotence": "it is always on",
    "key.serializer": "keys are written as they are",
    "partitioner.class": "target.partition.by says how records are partitioned",
    "transactional.id": "set target.transactional=true; the ids are made of the replay's name",
    "value.serializer": "values are written as they are",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_QUIET: Config = {"client.id": "tiered-stream", "log_level": 2}
"""It would report each lost connection on standard error; what matters comes as an error."""
_BUFFER_BYTES = 32 << 20
"""Kafka's default of `buffer.memory`; librdkafka's is 1 GiB."""


def target_properties(given: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """The target's properties: those `given`, and with them, if they name no cluster, the way into the source's.

    Both without their prefix, names in lower case.

    Raises:
        ConfigurationError: no cluster is named.
    """
    if given.get("bootstrap.servers"):
        return dict(given)
    if not source.get("bootstrap.servers"):
        raise ConfigurationError(f"{PREFIX}bootstrap.servers is missing: it says where the target's cluster is")
    return {name: value for name, value in source.items() if name in _CONNECTION} | dict(given)


def connection_config(properties: Mapping[str, str]) -> Config:
    """What any client of librdkafka's needs to reach the cluster. It holds secrets.

    Raises:
        ConfigurationError: a property cannot be said to librdkafka, or a store cannot be read.
    """
    values = ConfigValues(properties)
    config: Config = {name: values.secret(name) or "" for name in properties if name in _SAME_CONNECTION}
    with _of_the_target():
        return _QUIET | config | _tls(values) | _sasl(values)


def producer_config(properties: Mapping[str, str]) -> Config:
    """`connection_config`, and how to produce.

    Raises:
        ConfigurationError: as there, or a property is not known, or not for the user to set.
    """
    for name in properties:
        _check_name(name)
    values = ConfigValues(properties)
    with _of_the_target():
        buffered = values.integer(_BUFFER_MEMORY, _BUFFER_BYTES, low=1 << 20)
    how: Config = {"queue.buffering.max.kbytes": buffered >> 10}
    how |= {_RENAMED.get(name, name): values.text(name) for name in properties if name in _SAME or name in _RENAMED}
    return how | connection_config(properties)


def _check_name(name: str) -> None:
    known = _SAME | _SAID_DIFFERENTLY | {*_RENAMED, _BUFFER_MEMORY}
    if name in _OURS:
        raise ConfigurationError(f"{PREFIX}{name} is not to be set: {_OURS[name]}")
    if name not in known:
        near = "".join(f", did you mean {PREFIX}{each}" for each in difflib.get_close_matches(name, known, 1))
        raise ConfigurationError(f"{PREFIX}{name} is not known, or has no meaning for librdkafka{near}?")


@contextmanager
def _of_the_target() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"the target's {error}") from error


def _tls(values: ConfigValues) -> Config:
    config: Config = {}
    if "ssl.endpoint.identification.algorithm" in values:
        # Kafka's way to switch the check off is the empty text.
        algorithm = values.choice("ssl.endpoint.identification.algorithm", "https", ("https", "", "none"))
        config["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    certificates = values.secret("ssl.truststore.certificates")
    if certificates:
        config["ssl.ca.pem"] = with_line_ends(certificates)
    elif trusted := pem_store(values, "truststore"):
        config["ssl.ca.location"] = trusted
    chain, key = values.secret("ssl.keystore.certificate.chain"), values.secret("ssl.keystore.key")
    if bool(chain) != bool(key):
        raise ConfigurationError("kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain go together")
    if chain and key:
        config |= {"ssl.certificate.pem": with_line_ends(chain), "ssl.key.pem": with_line_ends(key)}
    elif store := pem_store(values, "keystore"):
        config |= {"ssl.certificate.location": store, "ssl.key.location": store}
    return config


def _sasl(values: ConfigValues) -> Config:
    if not values.text("security.protocol").upper().startswith("SASL"):
        return {}
    mechanism = values.text("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise ConfigurationError(
            f"kafka.sasl.mechanism = {mechanism!r} cannot be used to write to a topic: use {', '.join(_MECHANISMS)}, "
            "or TLS client certificates"
        )
    username, password = credentials(values, mechanism)
    return {"sasl.mechanisms": mechanism, "sasl.username": username, "sasl.password": password}

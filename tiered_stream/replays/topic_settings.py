"""Settings of a replay into a topic. The tasks that produce the records get them as options of a Spark data source.

A user writes the producer's properties as for Kafka's Java clients, and this module converts them to librdkafka's
settings. A property with the same name and meaning in both is passed on unchanged. Properties for SASL and TLS are
translated. librdkafka's own names are not accepted, so that source and target use the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tiered_stream.broker import kafka_properties as kafka
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.key_stores import StoreType, private_key, store_file, trusted_certificates
from tiered_stream.broker.login.sasl import credentials
from tiered_stream.broker.login.tls import check_is_pem, inline_identity, with_line_ends
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import TopicPartition
from tiered_stream.options import types
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.types import Option
from tiered_stream.options.unknown_names import nearest_name, unknown_setting
from tiered_stream.replays.replay_plan import ReplayPlan

TRANSACTIONAL: Option[bool] = Option(
    "target.transactional", types.boolean, False, "false", "Produce in transactions: each record once, crash or not."
)
PARTITION_BY: Option[str] = Option(
    "target.partition.by", types.one_of("partition", "key"), "partition", "partition",
    "`partition`: as in the source. `key`: as Kafka's own producer partitions records.",
)  # fmt: skip
_TOPIC: Option[str] = Option("target.topic", str, "", "", "The topic, or its template.", internal=True)
_REPLAY: Option[str] = Option("target.replay", str, "", "", "The replay's name in Kafka.", internal=True)
_ARGUMENTS: Option[str] = Option("target.arguments", str, "", "", "The replay's arguments.", internal=True)
_TARGET_PREFIX = "target."
_KNOWN = {option.name.lower(): option.name for option in (TRANSACTIONAL, PARTITION_BY, _TOPIC, _REPLAY, _ARGUMENTS)}
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_SOURCE = "{topic}"
_TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's default of `transaction.timeout.ms`."""

PREFIX = "target.kafka."

Config = dict[str, str | int | float | bool]
"""Settings of librdkafka by name. They may contain secrets."""

_SAME_CONNECTION = frozenset(
    ("bootstrap.servers", "client.dns.lookup", "client.id", "connections.max.idle.ms", "metadata.max.age.ms",
     "reconnect.backoff.max.ms", "reconnect.backoff.ms", "security.protocol", "socket.connection.setup.timeout.ms",
     "ssl.endpoint.identification.algorithm", "ssl.key.password")
)  # fmt: skip
_TRANSLATED = frozenset(
    ("sasl.jaas.config", "sasl.mechanism", "ssl.keystore.certificate.chain", "ssl.keystore.key",
     "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.certificates",
     "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type")
)  # fmt: skip
_CONNECTION = _SAME_CONNECTION | _TRANSLATED
"""Properties of the source's connection that also apply to the target if the target's properties name no cluster."""
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
_BUFFER_MEMORY = types.option("kafka.buffer.memory", types.integer(1 << 20, types.INT_MAX), str(32 << 20), "")
"""Option for the bytes of memory of records that wait to be sent. Kafka's default is 32 MiB; librdkafka's is 1 GiB."""
_ENDPOINT_IDENTIFICATION = types.option(
    "kafka.ssl.endpoint.identification.algorithm", types.one_of("https", "", "none"), "https", ""
)
_NOT_TO_BE_SET = {
    "enable.idempotence": "it is always on",
    "key.serializer": "keys are written as they are",
    "partitioner.class": "target.partition.by says how records are partitioned",
    "transactional.id": "set target.transactional=true; the ids are made of the replay's name",
    "value.serializer": "values are written as they are",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_QUIET: Config = {"client.id": "tiered-stream", "log_level": 2}
"""Settings by which librdkafka does not print lost connections on standard error. Failed calls still raise errors."""
_PRODUCER: Config = {
    "enable.idempotence": True,
    # As Kafka's own producer does. By librdkafka's default, the records of a key would go to another partition.
    "partitioner": "murmur2_random",
    # A callback into Python for each delivered record would cost more than the record itself.
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 1_000_000,
}


@dataclass(frozen=True, slots=True)
class TopicWrites:
    """Target topic of a replay, and settings for producing to it.

    `topic` is the target topic's name, in which `{topic}` stands for the source topic's name. If `transactional` is
    true, records are produced in transactions. If `by_key` is true, a record's key decides the record's partition, as
    in Kafka's own producer. Otherwise a record keeps the number of its source partition. `producer` has librdkafka's
    settings for a producer.
    """

    topic: str
    transactional: bool
    by_key: bool
    producer: Config = field(repr=False)
    connection: Config = field(repr=False)
    """librdkafka's settings for a client that does not produce."""
    properties: Mapping[str, str] = field(repr=False)
    """Target's properties with Kafka's own names, for this package's `BrokerClient`."""
    replay: str
    """Name of the replay in Kafka (`ReplayPlan.transaction_id`)."""
    arguments: str
    """Short hash of the replay's arguments, which distinguishes two replays with the same name."""

    def producer_of(self, source: TopicPartition) -> Config:
        """Return librdkafka's settings for the producer of one source partition's records.

        If `transactional` is true, the settings have the partition's transactional id.
        """
        transactional_id: Config = {"transactional.id": self.name_of(source)} if self.transactional else {}
        return {**self.producer, **_PRODUCER, **transactional_id}

    def target(self, source_topic: str) -> str:
        """Return the name of the target topic for a source topic: `topic`, with `{topic}` replaced."""
        return self.topic.replace(_SOURCE, source_topic)

    @property
    def commit_seconds(self) -> float:
        """Return the maximum time between two commits in seconds: a sixth of the producer's transaction timeout."""
        return int(self.producer.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)) / 6000

    def name_of(self, source: TopicPartition) -> str:
        """Return the name that identifies this replay's work on one source partition in the target's cluster.

        The name is the partition's transactional id, and the id of the consumer group that stores its position. Names
        are unique, because names of replays and of topics have no colon.
        """
        return f"{self.replay}:{source}"


def without_target(settings: Mapping[str, str]) -> dict[str, str]:
    """Return `settings` without the target's settings (`target.*`)."""
    return {name: value for name, value in settings.items() if not name.lower().startswith(_TARGET_PREFIX)}


def topic_writes(options: Mapping[str, str]) -> TopicWrites:
    """Parse the target's settings: the user's `target.*` and `kafka.*`, and the options that `as_options` has added.

    Raises:
        ConfigurationError: a setting is unknown or malformed, no cluster is named, or the topic's name is not valid.
    """
    values = GivenOptions(options)
    for name in map(str.lower, options):
        if name.startswith(_TARGET_PREFIX) and not name.startswith(PREFIX) and name not in _KNOWN:
            raise unknown_setting(name, _KNOWN)
    topic = values.read(_TOPIC)
    properties = target_properties(values.with_prefix(PREFIX), values.with_prefix("kafka."))
    if not _TOPIC_NAME.fullmatch(topic.replace(_SOURCE, "t")) or topic in (".", ".."):
        raise ConfigurationError(
            f"the target {topic!r} is not a topic's name, which has letters, digits, '.', '_' and '-', at most 249; "
            f"{_SOURCE} stands for the source's"
        )
    return TopicWrites(
        topic=topic,
        transactional=values.read(TRANSACTIONAL),
        by_key=values.read(PARTITION_BY) == "key",
        producer=producer_config(properties),
        connection=connection_config(properties),
        properties=properties,
        replay=values.read(_REPLAY),
        arguments=values.read(_ARGUMENTS),
    )


def as_options(settings: Mapping[str, str], topic: str, plan: ReplayPlan) -> dict[str, str]:
    """Return the settings with three options added: the target topic, the replay's name, and a hash of its arguments.

    `topic_writes` parses the result.

    Args:
        settings: the user's settings.
        topic: name of the target topic, in which `{topic}` stands for the source topic's name.
    """
    replay, arguments = plan.transaction_id, plan.arguments.default_name()
    return {**settings, _TOPIC.name: topic, _REPLAY.name: replay, _ARGUMENTS.name: arguments}


def target_properties(own: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """Return the client properties for the target's cluster.

    If `own` has `bootstrap.servers`, the result is `own`. Otherwise the target is in the source's cluster: the result
    has the connection properties in `source`, overridden by `own`.

    Args:
        own: the target's properties, by name in lower case without `target.kafka.`.
        source: the source's properties, by name in lower case without `kafka.`.

    Raises:
        ConfigurationError: no cluster is named.
    """
    if own.get("bootstrap.servers"):
        return dict(own)
    if not source.get("bootstrap.servers"):
        raise ConfigurationError(f"{PREFIX}bootstrap.servers is missing: it names the target's cluster")
    return {name: value for name, value in source.items() if name in _CONNECTION} | dict(own)


def connection_config(properties: Mapping[str, str]) -> Config:
    """Return librdkafka's settings for a client of the target's cluster, from Kafka's client properties.

    Raises:
        ConfigurationError: a property is malformed or has no equivalent in librdkafka, or a key store or trust store
            cannot be read.
    """
    values = ConfigValues(properties)
    config: Config = {name: values.secret(name) or "" for name in properties if name in _SAME_CONNECTION}
    with _naming_the_target():
        return _QUIET | config | _tls(values) | _sasl(values)


def producer_config(properties: Mapping[str, str]) -> Config:
    """Return librdkafka's settings for a producer to the target's cluster, from Kafka's producer properties.

    Raises:
        ConfigurationError: a property is not known, must not be set, or has no equivalent in librdkafka; or a key store
            or trust store cannot be read.
    """
    for name in properties:
        _check_name(name)
    values = ConfigValues(properties)
    with _naming_the_target():
        buffered = values.read(_BUFFER_MEMORY)
    config: Config = {"queue.buffering.max.kbytes": buffered >> 10}
    config |= {_RENAMED.get(name, name): values.text(name) for name in properties if name in _SAME or name in _RENAMED}
    return config | connection_config(properties)


def _check_name(name: str) -> None:
    known = _SAME | _TRANSLATED | {*_RENAMED, "buffer.memory"}
    if name in _NOT_TO_BE_SET:
        raise ConfigurationError(f"{PREFIX}{name} must not be set: {_NOT_TO_BE_SET[name]}")
    if name not in known:
        near = f"the nearest known one is {PREFIX}{nearest_name(name, known)}"
        raise ConfigurationError(f"{PREFIX}{name} is not known, or has no meaning for librdkafka; {near}")


@contextmanager
def _naming_the_target() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"the target's {error}") from error


def _tls(values: ConfigValues) -> Config:
    config: Config = {}
    if "ssl.endpoint.identification.algorithm" in values:
        # In Kafka, an empty text turns off the check of the host's name; in librdkafka, `none` does.
        config["ssl.endpoint.identification.algorithm"] = values.read(_ENDPOINT_IDENTIFICATION) or "none"
    if certificates := values.secret("ssl.truststore.certificates"):
        check_is_pem(values, "truststore")
        config["ssl.ca.pem"] = with_line_ends(certificates)
    elif trusted := store_file(values, "truststore"):
        if trusted.kind is StoreType.PEM:
            config["ssl.ca.location"] = trusted.location
        else:
            config["ssl.ca.pem"] = trusted_certificates(trusted)
    pair, store = inline_identity(values), store_file(values, "keystore")
    if store and store.kind is not StoreType.PEM:
        pair = private_key(store, values)
    if pair:
        config |= {"ssl.key.pem": pair[0], "ssl.certificate.pem": pair[1]}
    elif store:
        config |= {"ssl.certificate.location": store.location, "ssl.key.location": store.location}
    return config


def _sasl(values: ConfigValues) -> Config:
    if not values.read(kafka.SECURITY_PROTOCOL).startswith("SASL"):
        return {}
    mechanism = values.read(kafka.SASL_MECHANISM)
    if mechanism not in _MECHANISMS:
        raise ConfigurationError(
            f"kafka.sasl.mechanism = {mechanism!r} cannot be used to write to a topic: use {', '.join(_MECHANISMS)}, "
            "or TLS client certificates"
        )
    username, password = credentials(values, mechanism)
    return {"sasl.mechanisms": mechanism, "sasl.username": username, "sasl.password": password}

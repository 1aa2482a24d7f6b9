"""What a replay into a topic is told, and how its tasks come to know it: as options of their source."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import TopicPartition
from tiered_stream.options import types
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.types import Option
from tiered_stream.replay.producer_config import PREFIX, Config, connection_config, producer_config, target_properties
from tiered_stream.replay.replay_plan import ReplayPlan

TRANSACTIONAL: Option[bool] = Option(
    "target.transactional", types.boolean, False, "false", "Produce in transactions: each record once, crash or not."
)
PARTITION_BY: Option[str] = Option(
    "target.partition.by",
    types.one_of("partition", "key"),
    "partition",
    "partition",
    "`partition`: as in the source. `key`: as Kafka's own producer partitions records.",
)
_TOPIC: Option[str] = Option("target.topic", str, "", "", "The topic, or its template.", internal=True)
_REPLAY: Option[str] = Option("target.replay", str, "", "", "The replay's name in Kafka.", internal=True)
_ARGUMENTS: Option[str] = Option("target.arguments", str, "", "", "What the replay was asked for.", internal=True)
_OURS = "target."
_KNOWN = {option.name.lower(): option.name for option in (TRANSACTIONAL, PARTITION_BY, _TOPIC, _REPLAY, _ARGUMENTS)}
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_SOURCE = "{topic}"
_TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's default."""


@dataclass(frozen=True, slots=True)
class TopicWrites:
    """Where records go, and how. `topic` may hold `{topic}`, for the source's; the settings are librdkafka's."""

    topic: str
    transactional: bool
    by_key: bool
    producer: Config = field(repr=False)
    connection: Config = field(repr=False)
    """For a client that does not produce."""
    properties: Mapping[str, str] = field(repr=False)
    """The same in Kafka's own names, for our own client."""
    replay: str
    """The replay's `transaction_id`."""
    arguments: str
    """A short hash of what the replay was asked for: two by one name are told apart by it."""

    def target(self, source_topic: str) -> str:
        """The topic into which the source's records go."""
        return self.topic.replace(_SOURCE, source_topic)

    @property
    def commit_seconds(self) -> float:
        """For how long a transaction may be open: well below its timeout, and readers wait for its end."""
        return int(self.producer.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)) / 6000

    def name_of(self, source: TopicPartition) -> str:
        """The transactional id of one source partition, and the consumer group that has its position.

        Neither replays nor topics have a colon in their names, so that no two share one.
        """
        return f"{self.replay}:{source}"


def topic_writes(options: Mapping[str, str]) -> TopicWrites:
    """What `as_options` has put together, read.

    Raises:
        ConfigurationError: a setting is unknown or malformed, no cluster is named, or there can be no such topic.
    """
    given = GivenOptions(options)
    _check_names(options)
    topic = given.read(_TOPIC)
    properties = target_properties(given.with_prefix(PREFIX), given.with_prefix("kafka."))
    if not _TOPIC_NAME.fullmatch(topic.replace(_SOURCE, "t")) or topic in (".", ".."):
        raise ConfigurationError(
            f"the target {topic!r} is no topic's name: that has letters, digits, '.', '_' and '-', at most 249; "
            f"{_SOURCE} stands for the source's"
        )
    return TopicWrites(
        topic=topic,
        transactional=given.read(TRANSACTIONAL),
        by_key=given.read(PARTITION_BY) == "key",
        producer=producer_config(properties),
        connection=connection_config(properties),
        properties=properties,
        replay=given.read(_REPLAY),
        arguments=given.read(_ARGUMENTS),
    )


def as_options(settings: Mapping[str, str], topic: str, plan: ReplayPlan) -> dict[str, str]:
    """The source's options from which `topic_writes` knows the target."""
    replay, arguments = plan.transaction_id, plan.arguments.default_name()
    return {**settings, _TOPIC.name: topic, _REPLAY.name: replay, _ARGUMENTS.name: arguments}


def source_only(options: Mapping[str, str]) -> dict[str, str]:
    """The options of `format("tiered_stream")` among them."""
    return {name: value for name, value in options.items() if not name.lower().startswith(_OURS)}


def _check_names(options: Mapping[str, str]) -> None:
    for name in (each.lower() for each in options):
        if name.startswith(_OURS) and not name.startswith(PREFIX) and name not in _KNOWN:
            nearest = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.0)[0]
            raise ConfigurationError(f"setting {name} is unknown; the nearest known one is {_KNOWN[nearest]}")

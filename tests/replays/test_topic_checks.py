"""Checks of target topics that need only the brokers' metadata, which a test makes up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType
from uuid import UUID

import pytest

from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.replays import topic_checks
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan
from tiered_stream.replays.topic_settings import as_options, topic_writes

IDS = {topic: UUID(int=number) for number, topic in enumerate(("a", "b", "c", "a-copy", "a-copy-copy"), 1)}
PARTITIONS = {"a": 3, "b": 1, "c": 1, "a-copy": 3, "a-copy-copy": 3}
"""Numbers of partitions of the topics in the cluster."""


class Brokers:
    """Client of brokers that have the topics in `PARTITIONS`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        assert properties["bootstrap.servers"] == "b:9092"

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        pass

    def metadata(self, topics: Collection[str]) -> dict[str, TopicMetadata]:
        made_up = {topic: dict.fromkeys(range(PARTITIONS[topic])) for topic in topics}
        return {
            topic: TopicMetadata(topic, IDS[topic], False, partitions)  # type: ignore[arg-type]
            for topic, partitions in made_up.items()
        }


def no_admin(connection: Mapping[str, object]) -> None:
    raise AssertionError("the metadata should have been refused")


@pytest.mark.parametrize(
    ("sources", "into"),
    [("a,b", "a"), ("a,b", "b"), ("a,b", "{topic}"), ("a,b", "c"), ("a,a-copy", "{topic}-copy")],
)
def test_no_source_is_replayed_into_a_topic_that_is_replayed_or_has_too_few_partitions(
    sources: str, into: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_checks, "BrokerClient", Brokers)
    monkeypatch.setattr(topic_checks, "AdminClient", no_admin)
    ranges = {TopicPartition(topic, PARTITIONS[topic] - 1): OffsetRange(0, 9) for topic in sources.split(",")}
    plan = ReplayPlan(
        "again", ReplayArguments(("subscribe", sources), "0", None, f"topic {into}"), TimeRange(0), ranges,
        {topic: IDS[topic] for topic in sources.split(",")},
    )  # fmt: skip
    writes = topic_writes(as_options({"target.kafka.bootstrap.servers": "b:9092"}, into, plan))
    with pytest.raises(ConfigurationError):
        topic_checks.check_topics(writes, plan)

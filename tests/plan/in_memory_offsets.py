"""An `OffsetReader` over a dictionary.

It leaves out: leaders and leader epochs, transactions (but for the two ends that an open one makes), authorization,
timestamps out of order, and time: what a test changes is seen by the next question.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.errors import TieredStreamError, UnknownTopicError
from tiered_stream.model import PartitionOffsets, TopicDescription, TopicPartition
from tiered_stream.options.offset_json import LastOffsets


@dataclass
class Log:
    """Offsets `earliest` to `latest`; `timestamps` are those of its records, by offset, ascending.

    With a `high_watermark`, `latest` is the last stable offset: a transaction is open there.
    """

    earliest: int = 0
    latest: int = 0
    timestamps: dict[int, int] = field(default_factory=dict)
    high_watermark: int | None = None


class InMemoryOffsets(OffsetReader):
    def __init__(self, topics: Mapping[str, list[Log]] | None = None) -> None:
        self.logs: dict[str, list[Log]] = {}
        self.ids: dict[str, UUID] = {}
        self.failures: list[TieredStreamError] = []
        """Raised by the next questions, one each."""
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.questions = 0
        self.watermark_questions = 0
        for topic, logs in (topics or {}).items():
            self.create(topic, *logs)

    def create(self, topic: str, *logs: Log) -> None:
        self.logs[topic], self.ids[topic] = list(logs), uuid4()

    def delete(self, topic: str) -> None:
        del self.logs[topic], self.ids[topic]

    def matching(self, accepts: Callable[[str], bool]) -> dict[str, TopicDescription]:
        topics = {topic for topic in self.logs if not topic.startswith("__") and accepts(topic)}
        return self.partitions(topics) if topics else {}

    def partitions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        self.questions += 1
        if self.failures:
            raise self.failures.pop(0)
        for topic in topics:
            if topic not in self.logs:
                raise UnknownTopicError(f"the topic {topic} does not exist")
        return {
            topic: TopicDescription(topic, self.ids[topic], tuple(range(len(self.logs[topic]))), topic.startswith("__"))
            for topic in topics
        }

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.log(partition).earliest for partition in partitions}

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.log(partition).latest for partition in partitions}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.watermark_questions += 1
        logs = {partition: self.log(partition) for partition in partitions}
        return {each: log.latest if log.high_watermark is None else log.high_watermark for each, log in logs.items()}

    def for_timestamps(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for partition, wanted in timestamps.items():
            records = self.log(partition).timestamps.items()
            found[partition] = next((offset for offset, timestamp in records if timestamp >= wanted), None)
        return found

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        offsets = self.groups.get(group, {})
        return {partition: offsets.get(partition) for partition in partitions}

    def log(self, partition: TopicPartition) -> Log:
        if partition.partition >= len(self.logs.get(partition.topic, ())):
            raise UnknownTopicError(f"{partition} does not exist")
        return self.logs[partition.topic][partition.partition]


def through_log(end: PartitionOffsets) -> PartitionOffsets:
    """The end of a micro-batch, as the next run finds it in Spark's offset log."""
    return LastOffsets().from_dict(json.loads(json.dumps(LastOffsets().to_dict(end))))

"""Where the partitions begin and end: what the brokers are asked, or an archive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import TopicDescription, TopicPartition


class OffsetReader(ABC):
    """Which partitions there are and where they begin and end: asked of the brokers, or of an archive.

    (Spark: `KafkaOffsetReader`.) Errors are of `tiered_stream.errors`.
    """

    @abstractmethod
    def topics(self) -> frozenset[str]:
        """Every topic that the user may see, internal ones left out; what `subscribePattern` matches against."""

    @abstractmethod
    def partitions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """The wanted topics, described.

        Raises:
            UnknownTopicError: one of them does not exist.
        """

    def matching(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """Those of `topics` whose names are wanted, described."""
        found = {topic for topic in self.topics() if wanted(topic)}
        return self.partitions(found) if found else {}

    @abstractmethod
    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offsets: the first offset that may still be read, in remote storage or at a broker."""

    @abstractmethod
    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends: last stable offset under read_committed, high watermark under read_uncommitted."""

    @abstractmethod
    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends under read_uncommitted, whichever the isolation level is."""

    @abstractmethod
    def for_timestamps(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """By partition, the earliest offset whose timestamp (ms) is at or after the given one; None: there is none.

        -1 and -2 mean latest and earliest, as in Kafka's ListOffsets.
        """

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """By partition, the offset that a consumer group has committed; None: it has committed none."""
        raise ConfigurationError(f"consumer group {group!r}: only brokers know what a group has committed")

    def topic_configs(self, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
        """By topic, its settings of these names. Topics are left out of which nothing is told, as by an archive."""
        return {}

    def close(self) -> None:  # noqa: B027 - a reader without connections has nothing to close
        """Let go of connections."""

"""The interface that gives topics, partitions, and the offsets where partitions begin and end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import TopicDescription, TopicPartition


class OffsetReader(ABC):
    """Reader of topics, partitions and offsets, from the brokers or from an archive (Spark: `KafkaOffsetReader`).

    Its errors are those of `tiered_stream.errors`.
    """

    @abstractmethod
    def topics(self) -> frozenset[str]:
        """Return all topics that the user may describe, except internal ones, for `subscribePattern` to match."""

    @abstractmethod
    def partitions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return the id and the partitions of each topic.

        Raises:
            UnknownTopicError: one of the topics does not exist.
        """

    def matching(self, accepts: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """Return the id and the partitions of each non-internal topic whose name `accepts` accepts."""
        topics = {topic for topic in self.topics() if accepts(topic)}
        return self.partitions(topics) if topics else {}

    @abstractmethod
    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets: the first offset that can still be read, from remote storage or a broker."""

    @abstractmethod
    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets: last stable offsets under read_committed, high watermarks under read_uncommitted."""

    @abstractmethod
    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks, whatever the isolation level is."""

    @abstractmethod
    def for_timestamps(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return, by partition, the first offset with a timestamp (ms) at or after the given one; None: there is none.

        -1 and -2 mean latest and earliest, as in Kafka's ListOffsets.
        """

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return, by partition, the offset that a consumer group has committed; None: it has committed none."""
        raise ConfigurationError(f"consumer group {group!r}: only brokers know what a group has committed")

    def topic_configs(self, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return, by topic, the values of the named settings. Topics without known settings are left out."""
        return {}

    def close(self) -> None:  # noqa: B027 - a reader without connections has nothing to close
        """Close the reader's connections."""

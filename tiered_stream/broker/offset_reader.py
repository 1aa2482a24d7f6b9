"""Interface of readers of topics, partitions, and the offsets at which partitions begin and end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import PartitionOffsets, TopicDescription, TopicPartition


class OffsetReader(ABC):
    """Reader of topics, partitions and offsets (Spark: `KafkaOffsetReader`).

    It reads from the brokers, or from an archive: a bucket of tiered segments that is read without its Kafka cluster.
    Its methods raise the errors of `tiered_stream.errors`.
    """

    @abstractmethod
    def partitions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return the id and the partitions of each topic, by its name.

        Raises:
            UnknownTopicError: one of the topics does not exist.
        """

    @abstractmethod
    def matching(self, accepts: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """Return, by name, the id and the partitions of each topic for whose name `accepts` is true.

        Only topics that the user may describe are returned, and no internal topics (`subscribePattern`).
        """

    @abstractmethod
    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return, by partition, the log start offset: the first offset that remote storage or a broker still has."""

    @abstractmethod
    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return, by partition, the end offset (exclusive): last stable offset (read_committed), or high watermark."""

    @abstractmethod
    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return, by partition, the high watermark, whatever the isolation level is."""

    def final_ends(self, watermarks: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return, by partition, the end offset (`latest`), without partitions where it is below its high watermark.

        `watermarks` has earlier high watermarks, by partition. A partition is left out while a transaction is open that
        began before its high watermark.
        """
        return {each: end for each, end in self.latest(watermarks).items() if end >= watermarks[each]}

    @abstractmethod
    def for_timestamps(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return, by partition, the first offset whose timestamp is at or after `timestamps[partition]` (ms).

        None: no record has such a timestamp. The timestamps -1 and -2 mean latest and earliest, as in ListOffsets.
        """

    def tiered_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return, by partition, the offset (exclusive) up to which the brokers have tiered the log.

        A partition is left out if it is not tiered, or if its brokers do not know the offset. The implementation in
        this class leaves out all partitions.
        """
        return {}

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return, by partition, the offset that the consumer group has committed; None: no offset is committed.

        Raises:
            ConfigurationError: the reader does not read from brokers.
        """
        raise ConfigurationError(f"consumer group {group!r}: only brokers know what a group has committed")

    def topic_configs(self, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return, for each topic, the values of its settings in `names` (such as `retention.ms`), by setting name.

        A topic is left out if its settings cannot be read. The implementation in this class leaves out all topics.
        """
        return {}

    def close(self) -> None:  # noqa: B027 - a reader without connections has nothing to close
        """Close the reader's connections."""

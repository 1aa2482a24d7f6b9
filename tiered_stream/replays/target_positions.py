"""Positions of a replay, which are stored in the target's cluster in one consumer group for each source partition.

A position is the next offset of the source partition that the replay will produce. The consumer group commits it as the
offset of partition 0 of the target topic, because a cluster accepts offsets only for its own topics. The metadata of
the committed offset says to which replay the position belongs.

Positions are looked up and committed through consumers that never read a record. The admin client of librdkafka is not
used, because it would end the process after a request to a broker that does not coordinate the group yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from tiered_stream.errors import ConfigurationError, DataLossError
from tiered_stream.model import TopicPartition as Source
from tiered_stream.model import listed
from tiered_stream.replays.librdkafka_errors import retry
from tiered_stream.replays.topic_settings import TopicWrites

T = TypeVar("T")

_ATTEMPT_SECONDS = 10.0
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a replay in one source partition.

    `offset` is the next offset to produce. `begun_at` is the first offset that the replay has produced or will produce.
    """

    offset: int
    begun_at: int


class PositionGroup:
    """Consumer group in the target's cluster that stores the replay's position in one source partition.

    If `stable` is true, `read` waits while an open transaction has sent a position that is not committed yet (KIP-447).
    """

    def __init__(self, writes: TopicWrites, source: Source, *, stable: bool = False) -> None:
        self._writes = writes
        self._source = source
        self._topic = writes.target(source.topic)
        level = "read_committed" if stable else "read_uncommitted"
        own = {"group.id": writes.name_of(source), "enable.auto.commit": False, "isolation.level": level}
        self._consumer = Consumer({**writes.connection, **own})

    def read(self) -> Position | None:
        """Return the committed position, or None if nothing is committed.

        Raises:
            ConfigurationError: the position belongs to a replay with the same name, but with other arguments.
            BrokerError: the target's cluster does not return the position.
        """
        partitions, replay = [TopicPartition(self._topic, 0)], self._writes.replay
        doing = f"looking up how far {replay} is"
        (entry,) = retry(lambda: self._consumer.committed(partitions, _ATTEMPT_SECONDS), doing)
        if entry.offset == OFFSET_INVALID:
            return None
        arguments, _, begun_at = (entry.metadata or "").partition(" ")
        if arguments != self._writes.arguments or not begun_at.isdecimal():
            raise ConfigurationError(
                f"{self._topic} has records of {self._source} from a replay by the same name ({replay}) with "
                "other arguments: give another --name"
            )
        return Position(entry.offset, int(begun_at))

    def commit(self, position: Position) -> None:
        """Commit a position outside of any transaction.

        Raises:
            BrokerError: the target's cluster refuses the commit.
        """
        doing = f"committing how far {self._writes.replay} is"
        retry(lambda: self._consumer.commit(offsets=self.offsets(position), asynchronous=False), doing)

    def offsets(self, position: Position) -> list[TopicPartition]:
        """Return the position as a list of one librdkafka offset, to commit it alone or in a transaction."""
        return [TopicPartition(self._topic, 0, position.offset, f"{self._writes.arguments} {position.begun_at}")]

    @property
    def metadata(self) -> Any:
        """Return the consumer group's metadata, which `send_offsets_to_transaction` needs."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Close the connections to the target's cluster."""
        self._consumer.close()


def read_positions(writes: TopicWrites, sources: Collection[Source]) -> dict[Source, Position]:
    """Return the replay's committed positions, by source partition. Partitions without a position are left out.

    Raises:
        ConfigurationError: a position belongs to a replay with the same name, but with other arguments.
        BrokerError: the target's cluster does not return a position.
    """
    positions = zip(sources, _for_all(writes, sources, lambda group, source: group.read()), strict=True)
    return {source: position for source, position in positions if position is not None}


def commit_positions(writes: TopicWrites, positions: Mapping[Source, Position]) -> None:
    """Commit the replay's positions, by source partition, outside of any transaction.

    Raises:
        BrokerError: the target's cluster refuses a commit.
    """
    _for_all(writes, positions, lambda group, source: group.commit(positions[source]))


def _for_all(writes: TopicWrites, sources: Collection[Source], use: Callable[[PositionGroup, Source], T]) -> list[T]:
    def call(source: Source) -> T:
        with closing(PositionGroup(writes, source)) as group:
            return use(group, source)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(call, sources))


def lost_positions(writes: TopicWrites, sources: Collection[Source]) -> DataLossError:
    """Return the error for a replay that has begun, but whose positions are missing in the target's cluster.

    Args:
        sources: source partitions without a position.
    """
    return DataLossError(
        f"the target's cluster no longer has the committed offsets of {writes.replay} for {listed(sources)} (see its "
        "offsets.retention.minutes): the position of the replay is unknown. Look at what is in the target, and start "
        "another replay with another --name and a later --from"
    )

"""How far a replay has come in its target: the committed offset of a consumer group there for each source partition.

The offset is that of the source, but it is kept under the target's partition 0: a cluster takes offsets only for
partitions that it has. Its metadata says which replay it is of.

Consumers that never read do this, because librdkafka's admin client ends the process when it asks a broker that does
not coordinate the group yet.
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
from tiered_stream.replay.librdkafka_errors import again
from tiered_stream.replay.topic_settings import TopicWrites

T = TypeVar("T")

_ATTEMPT_SECONDS = 10.0
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Position:
    """The source's next offset, and where the replay that got there began."""

    offset: int
    begun_at: int


class PositionGroup:
    """The consumer group of one source partition. `stable`: a transaction that is open is waited for when reading."""

    def __init__(self, writes: TopicWrites, source: Source, *, stable: bool = False) -> None:
        self._writes = writes
        self._source = source
        self._topic = writes.target(source.topic)
        level = "read_committed" if stable else "read_uncommitted"
        own = {"group.id": writes.name_of(source), "enable.auto.commit": False, "isolation.level": level}
        self._consumer = Consumer({**writes.connection, **own})

    def read(self) -> Position | None:
        """The position; None: nothing is committed.

        Raises:
            ConfigurationError: it is of a replay with other arguments.
            BrokerError: the target's cluster does not tell it.
        """
        place, replay = [TopicPartition(self._topic, 0)], self._writes.replay
        (entry,) = again(lambda: self._consumer.committed(place, _ATTEMPT_SECONDS), f"looking up how far {replay} is")
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
        """Commit it, outside of any transaction. Raises BrokerError: the target's cluster does not let it."""
        doing = f"committing how far {self._writes.replay} is"
        again(lambda: self._consumer.commit(offsets=self.offsets(position), asynchronous=False), doing)

    def offsets(self, position: Position) -> list[TopicPartition]:
        """What is committed, alone or in a transaction."""
        return [TopicPartition(self._topic, 0, position.offset, f"{self._writes.arguments} {position.begun_at}")]

    @property
    def metadata(self) -> Any:
        """Of the group, for `send_offsets_to_transaction`."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Let go of connections."""
        self._consumer.close()


def read_positions(writes: TopicWrites, sources: Collection[Source]) -> dict[Source, Position]:
    """The positions of those that have one, as they are now; raises as `PositionGroup.read`."""
    found = zip(sources, _at_once(writes, sources, lambda group, source: group.read()), strict=True)
    return {source: position for source, position in found if position is not None}


def commit_positions(writes: TopicWrites, positions: Mapping[Source, Position]) -> None:
    """Commit them; raises as `PositionGroup.commit`."""
    _at_once(writes, positions, lambda group, source: group.commit(positions[source]))


def _at_once(writes: TopicWrites, sources: Collection[Source], ask: Callable[[PositionGroup, Source], T]) -> list[T]:
    def asked(source: Source) -> T:
        with closing(PositionGroup(writes, source)) as group:
            return ask(group, source)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(asked, sources))


def lost_positions(writes: TopicWrites, sources: Collection[Source]) -> DataLossError:
    """What a replay that was begun has to say when its positions are not there."""
    return DataLossError(
        f"the target's cluster no longer has the committed offsets of {writes.replay} for {listed(sources)} (see its "
        "offsets.retention.minutes): how far the replay was is not known. See what is in the target, and begin another "
        "by another --name, with a later --from"
    )

"""The splits of one source partition into the target's topic, in order, from where the replay has come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import UnsupportedDataError
from tiered_stream.model import Split, TopicPartition
from tiered_stream.observe.metrics import ReadMetrics
from tiered_stream.options.parsing import Options
from tiered_stream.read import SplitReader
from tiered_stream.replay.target_positions import Position, PositionGroup, lost_positions
from tiered_stream.replay.target_producer import TargetProducer, target_producer
from tiered_stream.replay.topic_settings import TopicWrites
from tiered_stream.storage.throttle import Pace, pace_of

COMMIT_BYTES = 16 << 20
_SLICE_BYTES = 64 << 10
"""How much is produced between two looks at the clock."""


def produce_splits(
    splits: Sequence[Split], options: Options, writes: TopicWrites, report: Callable[[ReadMetrics], None]
) -> ReadMetrics:
    """Produce what the splits, all of one source partition and in order, hold beyond the replay's position.

    `report` is told what each split cost.

    Raises:
        DataLossError: the target's cluster no longer knows the position.
        UnsupportedDataError: a record cannot be produced as it is.
        TieredStreamError: as `read.read_split`, and what the target says.
    """
    source, total = splits[0].topic_partition, ReadMetrics()
    with closing(PositionGroup(writes, source, stable=True)) as group:
        producer = target_producer(writes, source, group)
        producer.open()
        position = group.read()
        if position is None:
            raise lost_positions(writes, [source])
        pace = pace_of("write", options.max_bytes_per_second)
        with closing(PositionedWriter(producer, position, writes.commit_seconds, pace)) as out:
            for split in filter(None, (split.rest(position.offset) for split in splits)):
                reader = SplitReader(split, options)
                for batch in _awaited(reader.batches(), writes.commit_seconds, out.commit):
                    check_producible(source, batch)
                    out.produce(batch)
                out.reach(split.offsets.end)
                report(reader.metrics)
                total.add(reader.metrics)
            out.commit()
    return total


class PositionedWriter:
    """Produces records and commits their position: after `COMMIT_BYTES`, after `seconds`, and when it is told."""

    def __init__(
        self,
        producer: TargetProducer,
        position: Position,
        seconds: float,
        pace: Pace = lambda size: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._seconds = seconds
        self._pace = pace
        self._clock = clock
        self._reached = self._committed = position
        self._begun: float | None = None
        self._bytes = 0

    def produce(self, batch: pa.RecordBatch) -> None:
        """Produce records, at least one, that follow those before in offset order."""
        rows = max(1, batch.num_rows * _SLICE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            self._pace(part.nbytes)
            begun = self._begin()
            self._producer.produce(part)
            self._bytes += part.nbytes
            self.reach(part.column("offset")[-1].as_py() + 1)
            if self._bytes >= COMMIT_BYTES or self._clock() - begun >= self._seconds:
                self.commit()

    def reach(self, offset: int) -> None:
        """Everything below the offset is produced."""
        self._reached = Position(max(offset, self._reached.offset), self._reached.begun_at)

    def commit(self) -> None:
        """What was produced is in the target, and the position is committed."""
        if self._reached != self._committed:
            self._begin()
            self._producer.commit(self._reached)
            self._committed = self._reached
            self._begun = None
            self._bytes = 0

    def close(self) -> None:
        """Take back what is not committed: something has failed."""
        if self._begun is not None:
            self._producer.abort()

    def _begin(self) -> float:
        if self._begun is None:
            self._begun = self._clock()
            self._producer.begin()
        return self._begun


def _awaited(batches: Iterator[pa.RecordBatch], seconds: float, idle: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """The batches; `idle` is called when one is waited for as long as that.

    A transaction must not stay open while storage is slow, or while the pace holds it back.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="tiered-stream-read") as pool:
        while True:
            upcoming = pool.submit(next, batches, None)
            if not wait([upcoming], seconds).done:
                idle()
            batch = upcoming.result()
            if batch is None:
                return
            yield batch


def check_producible(source: TopicPartition, batch: pa.RecordBatch) -> None:
    """Whether librdkafka can produce every record as it is.

    Raises:
        UnsupportedDataError: it cannot; names the first that it would change.
    """
    headers = batch.column("headers")
    # librdkafka takes 0 for "now".
    timeless = pc.indices_nonzero(pc.equal(batch.column("timestamp").cast(pa.int64()), 0))
    nul = pc.match_substring(pc.list_flatten(headers).field("key"), "\0")
    cut_off = pc.list_parent_indices(headers).filter(nul)
    for rows, why in (timeless, "its timestamp is 0"), (cut_off, "a header's key has a NUL character in it"):
        if len(rows):
            offset = batch.column("offset")[rows[0].as_py()].as_py()
            raise UnsupportedDataError(
                f"the record at offset {offset} of {source} cannot be produced as it is: {why}, which librdkafka would "
                "change. Leave it out with --from, --to and --exact, or land the topic in a table"
            )

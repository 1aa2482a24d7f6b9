"""Producer of one source partition's records into the target topic, in order, from the replay's committed position on.

The position is the next offset of the source partition to produce. librdkafka's producer is idempotent, with or without
transactions. In both cases records are produced between `begin` and `commit`, and `commit` also commits the position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tiered_stream.errors import UnsupportedDataError
from tiered_stream.model import Split, TopicPartition
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.parsing import Options
from tiered_stream.read.split_reader import SplitReader
from tiered_stream.replays.librdkafka_errors import PATIENCE_SECONDS, error_of, retry, target_fault
from tiered_stream.replays.target_positions import Position, PositionGroup, lost_positions
from tiered_stream.replays.topic_settings import TopicWrites
from tiered_stream.storage.throttle import Pace, pace_of

COMMIT_BYTES = 16 << 20
_SLICE_BYTES = 64 << 10
"""Approximate size in bytes of a slice of records, after which the writer checks whether it must commit."""
_ANY_PARTITION = -1
_FULL_QUEUE_SECONDS = 0.1
_ABORT_SECONDS = 5.0


def produce_splits(
    splits: Sequence[Split], options: Options, writes: TopicWrites, report: Callable[[ReadMetrics], None]
) -> ReadMetrics:
    """Produce the records of one source partition to the target topic, from the replay's committed position on.

    Return the sum of the read counters of all splits.

    Args:
        splits: offset ranges of the partition to read, in offset order; there is at least one.
        options: options of the source, for reading the splits.
        writes: target topic, and settings for producing.
        report: called with the read counters of each split after the split's records are handed to the producer.

    Raises:
        DataLossError: the target's cluster no longer has the committed position, or records to read are lost.
        UnsupportedDataError: a record cannot be produced unchanged.
        TieredStreamError: a split cannot be read, or the target refuses a request.
    """
    source, total = splits[0].topic_partition, ReadMetrics()
    with closing(PositionGroup(writes, source, stable=True)) as group:
        producer = target_producer(writes, source, group)
        producer.open()
        position = group.read()
        if position is None:
            raise lost_positions(writes, [source])
        pace = pace_of("write", options.max_bytes_per_second)
        with closing(PositionedWriter(producer, position, writes.commit_seconds, pace)) as writer:
            for split in filter(None, (split.rest(position.offset) for split in splits)):
                reader = SplitReader(split, options)
                for batch in _batches_or_idle(reader.batches(), writes.commit_seconds, writer.commit):
                    check_producible(source, batch)
                    writer.produce(batch)
                writer.advance(split.offsets.end)
                report(reader.metrics)
                total.add(reader.metrics)
            writer.commit()
    return total


class TargetProducer:
    """Producer without transactions, which sends the records of one source partition to the target topic.

    After a crash, the records from the last committed position on are produced again, so some are in the target twice.
    Every method raises errors of `tiered_stream.errors`.
    """

    def __init__(self, writes: TopicWrites, source: TopicPartition, group: PositionGroup) -> None:
        self._source = source
        self._topic = writes.target(source.topic)
        self._partition = _ANY_PARTITION if writes.by_key else source.partition
        self._group = group
        self._failure: KafkaError | None = None
        self._producer = Producer({**writes.producer_of(source), "on_delivery": self._failed})

    def open(self) -> None:
        """Do nothing. `TransactionalProducer` overrides this method to fence the partition's earlier producer (KIP-98).

        A fenced producer can neither produce nor commit any more.
        """

    def begin(self) -> None:
        """Do nothing. `TransactionalProducer` overrides this method to begin a transaction for the next records."""

    def commit(self, position: Position) -> None:
        """Wait until all produced records are in the target topic, then commit the position."""
        # The loop ends, because a record that cannot be delivered fails after `delivery.timeout.ms`.
        while self._producer.flush(PATIENCE_SECONDS):
            self._check_delivery()
        self._check_delivery()
        self._group.commit(position)

    def abort(self) -> None:
        """Drop the records that are not sent yet. `TransactionalProducer` instead aborts the transaction."""
        self._producer.purge()

    def produce(self, rows: pa.RecordBatch) -> None:
        """Hand the records in `rows` to librdkafka, which sends them in the background.

        Wait while librdkafka's queue is full. If the delivery of an earlier record has failed, raise that error.
        """
        produce, topic, partition = self._producer.produce, self._topic, self._partition
        for offset, key, value, timestamp, headers in _records(rows):
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(_FULL_QUEUE_SECONDS)
                    self._check_delivery()
                except KafkaException as exception:
                    doing = f"producing the record at offset {offset} of {self._source} to {topic}"
                    raise target_fault(error_of(exception), doing) from exception
        self._producer.poll(0)
        self._check_delivery()

    def _failed(self, error: KafkaError, message: Message) -> None:
        self._failure = self._failure or error

    def _check_delivery(self) -> None:
        if self._failure is not None:
            raise target_fault(self._failure, f"producing {self._source} to {self._topic}")


class TransactionalProducer(TargetProducer):
    """Producer with transactions (KIP-98), which commit the position together with the records (KIP-447).

    Each source partition has its own transactional id, so that only one task at a time can commit records of the
    partition.
    """

    def open(self) -> None:
        self._again(lambda: self._producer.init_transactions(PATIENCE_SECONDS))

    def begin(self) -> None:
        self._again(self._producer.begin_transaction)

    def commit(self, position: Position) -> None:
        offsets, group = self._group.offsets(position), self._group.metadata
        self._again(lambda: self._producer.send_offsets_to_transaction(offsets, group, PATIENCE_SECONDS))
        self._again(lambda: self._producer.commit_transaction(PATIENCE_SECONDS))

    def abort(self) -> None:
        try:
            self._producer.abort_transaction(_ABORT_SECONDS)
        except KafkaException:
            pass  # the transaction is then aborted by the next producer with its id, or at its timeout

    def _again(self, call: Callable[[], object]) -> None:
        def checked() -> None:
            try:
                call()
            except KafkaException:
                # If a record's delivery has failed, raise its error, which says more than the transaction's error.
                self._check_delivery()
                raise

        retry(checked, f"producing {self._source} to {self._topic}")


def target_producer(writes: TopicWrites, source: TopicPartition, group: PositionGroup) -> TargetProducer:
    """Return the producer for the partition `source`, with transactions if `writes.transactional` is true."""
    return (TransactionalProducer if writes.transactional else TargetProducer)(writes, source, group)


@dataclass(eq=False)
class PositionedWriter:
    """Writer that produces the records of one source partition, and commits the position: the next offset to produce.

    The writer commits after 16 MiB of records, after `seconds`, and when its method `commit` is called.

    Args:
        producer: producer that sends the records and commits the positions.
        position: committed position, from which the writer continues.
        seconds: longest time from the first record after a commit to the next commit, checked while records are
            produced.
        pace: called with numbers of bytes before each slice of records is produced; it may wait to limit the rate.
        clock: returns the time in seconds.
    """

    producer: TargetProducer
    position: Position
    seconds: float
    pace: Pace = lambda size: None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._reached = self._committed = self.position
        self._begun: float | None = None
        self._bytes = 0

    def produce(self, batch: pa.RecordBatch) -> None:
        """Produce the records of `batch`, whose offsets are above all offsets that were produced before."""
        rows = max(1, batch.num_rows * _SLICE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            # In small steps, because a transaction must not stay open while a large record waits for the byte limit.
            for paid in range(0, part.nbytes, _SLICE_BYTES):
                self.pace(min(_SLICE_BYTES, part.nbytes - paid))
                self._commit_if_due()
            self._begin()
            self.producer.produce(part)
            self._bytes += part.nbytes
            self.advance(part.column("offset")[-1].as_py() + 1)
            self._commit_if_due()

    def advance(self, offset: int) -> None:
        """Raise the position to `offset`, without a commit. The caller has produced all records below `offset`.

        A position above `offset` stays unchanged.
        """
        self._reached = Position(max(offset, self._reached.offset), self._reached.begun_at)

    def commit(self) -> None:
        """Wait until all produced records are in the target topic, and commit the position if it has changed."""
        if self._reached != self._committed:
            self._begin()
            self.producer.commit(self._reached)
            self._committed = self._reached
            self._begun = None
            self._bytes = 0

    def close(self) -> None:
        """Drop the records that are produced but not committed. Such records exist only after an error."""
        if self._begun is not None:
            self.producer.abort()

    def _commit_if_due(self) -> None:
        is_late = self._begun is not None and self.clock() - self._begun >= self.seconds
        if is_late or self._bytes >= COMMIT_BYTES:
            self.commit()

    def _begin(self) -> None:
        if self._begun is None:
            self._begun = self.clock()
            self.producer.begin()


def _batches_or_idle(
    batches: Iterator[pa.RecordBatch], seconds: float, idle: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and call `idle` once for each batch that does not arrive within `seconds`.

    The caller passes a function that commits as `idle`, because a transaction must not stay open while the storage or a
    byte limit delays reading.
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
    """Check that librdkafka can produce every record of a batch unchanged.

    Raises:
        UnsupportedDataError: librdkafka would change a record; the message names the record's offset.
    """
    headers = batch.column("headers")
    # librdkafka replaces a timestamp of 0 by the current time.
    timeless = pc.indices_nonzero(pc.equal(batch.column("timestamp").cast(pa.int64()), 0))
    nul = pc.match_substring(pc.list_flatten(headers).field("key"), "\0")
    cut_off = pc.list_parent_indices(headers).filter(nul)
    for rows, why in (timeless, "its timestamp is 0"), (cut_off, "a header's key has a NUL character in it"):
        if len(rows):
            offset = batch.column("offset")[rows[0].as_py()].as_py()
            raise UnsupportedDataError(
                f"the record at offset {offset} of {source} cannot be produced unchanged: {why}, which librdkafka "
                "would change. Leave it out with --from, --to and --exact, or land the topic in a table"
            )


def _records(rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return an iterator over the records, as tuples of offset, key, value, timestamp in milliseconds, and headers."""
    timestamps = [micros // 1000 for micros in rows.column("timestamp").cast(pa.int64()).to_pylist()]
    columns = [rows.column(name).to_pylist() for name in ("offset", "key", "value")]
    return zip(*columns, timestamps, map(_pairs, rows.column("headers").to_pylist()), strict=True)


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(header["key"], header["value"]) for header in headers] if headers else None

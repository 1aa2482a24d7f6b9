"""Records of topics as Arrow batches, without Spark: `scan` reads like a batch query, and `follow` like a stream.

Threads of this process read the splits. They run in parallel, because a thread that waits for storage blocks no other
thread, and because the kernels decode without the GIL.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial

import pyarrow as pa

from tiered_stream.errors import ConfigurationError
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import PartitionOffsets, Split
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.batch import plan_batch
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.process.resources import usable_cores
from tiered_stream.read.split_reader import read_split
from tiered_stream.records.arrow import record_schema

WAITING_BYTES = 256 << 20
"""Default maximum size, in bytes, of all decoded batches together that wait for the consumer. A single batch may be
larger.
"""

THREAD_NAME = "tiered-stream-scan"


def scan(
    options: Mapping[str, str], *, threads: int | None = None, ordered: bool = True, waiting_bytes: int = WAITING_BYTES
) -> pa.RecordBatchReader:
    """Read topics as a batch query of `format("tiered_stream")` does, and return a reader with the same columns.

    The reader can be read once. Its threads end when it is read to the end, or when nothing refers to it any more (`del
    reader`). After pyarrow's `reader.close()`, the threads still wait and keep the decoded records. If a thread fails,
    the reader raises the error of the thread, which is one of the errors of `read_split`.

    Args:
        options: options of the source, with the same names as in Spark.
        threads: number of splits that are read at the same time; None: the number of cores that this process may use,
            limited by a container's CPU quota. It is at least 1.
        ordered: if true, partitions come one after another, each in offset order. If false, batches come as soon as
            they are decoded, so no batch waits for a slower split; the records within a batch are in offset order.
        waiting_bytes: maximum bytes of decoded batches that wait for the consumer. If `ordered` is true, threads may
            have to wait for the consumer, unless this limit is at least `remote.split.bytes` times `threads`.

    Raises:
        ConfigurationError: an option is missing, unknown or malformed, or `threads` is less than 1.
        TieredStreamError: the read cannot be planned.
    """
    if threads is not None and threads < 1:
        raise ConfigurationError(f"threads is {threads}: give a number of at least 1, or None for one for each core")
    parsed = parse_options(options, streaming=False)
    with closing(open_log_source(parsed)) as source:
        splits = plan_batch(parsed, source)
    ahead = _ThreadedReader(splits, partial(read_split, options=parsed), threads or usable_cores(), waiting_bytes)
    return pa.RecordBatchReader.from_batches(
        record_schema(parsed.include_headers, parsed.columns), ahead.batches(ordered=ordered)
    )


def follow(options: Mapping[str, str], *, pause_ms: int = 1000) -> Generator[pa.RecordBatch, None, None]:
    """Yield the records that a streaming query with these options would read, as Arrow batches, without an end.

    The generator checks the topics for new records again and again. The records of one check come partition by
    partition, each partition in offset order. After a check without new records, the generator waits `pause_ms`
    milliseconds.

    Raises:
        ConfigurationError: an option is missing, unknown or malformed.
        TieredStreamError: planning or reading fails.
    """
    parsed = parse_options(options, streaming=True)
    with closing(open_log_source(parsed)) as source:
        planner = StreamPlanner(parsed, source.offset_reader, source.locator)
        start: PartitionOffsets = planner.initial()
        while True:
            end = planner.next_end(start, limited=True)
            splits = splits_for(planner.ranges(start, end), parsed, source.locator, planner.topic_ids)
            ahead = _ThreadedReader(splits, partial(read_split, options=parsed), usable_cores(), WAITING_BYTES)
            yield from ahead.batches(ordered=True)
            if end == start:
                time.sleep(pause_ms / 1000)
            start = end


def read_in_threads(
    splits: Sequence[Split],
    read: Callable[[Split], Generator[pa.RecordBatch, None, None]],
    *,
    threads: int,
    waiting_bytes: int,
) -> Generator[pa.RecordBatch, None, None]:
    """Read splits in several threads; yield their Arrow batches in the order of the splits.

    The threads end when the generator is closed. If a thread fails, the generator raises its error.

    Args:
        splits: the splits to read.
        read: yields the batches of one split.
        threads: number of splits that are read at the same time.
        waiting_bytes: maximum bytes of all batches that wait for the consumer; a single batch may be larger.
    """
    return _ThreadedReader(splits, read, threads, waiting_bytes).batches(ordered=True)


class _ThreadedReader:
    """Reader of splits in several threads, whose batches a consumer takes from queues.

    The function `read` yields the batches of one split. At most `waiting_bytes` bytes of batches wait in the queues.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        read: Callable[[Split], Generator[pa.RecordBatch, None, None]],
        threads: int,
        waiting_bytes: int,
    ) -> None:
        self._splits = splits
        self._read = read
        self._threads = threads
        self._waiting_bytes = waiting_bytes
        self._changed = threading.Condition()
        self._unread = iter(range(len(splits)))
        self._queues: list[deque[pa.RecordBatch | None]] = []
        """Queue of each split: its decoded batches, then None. If splits have no order, they share one queue."""
        self._consumed = 0
        """Index of the split whose queue the consumer reads now."""
        self._held_bytes = 0
        self._error: BaseException | None = None
        self._stopped = False

    def batches(self, *, ordered: bool) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches of all splits: in the order of the splits if `ordered`, otherwise as they are decoded."""
        count = len(self._splits)
        self._queues = [deque() for _ in range(count)] if ordered else [deque()] * count
        try:
            for _ in range(min(self._threads, count)):
                threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()
            for number in range(count):
                while (batch := self._take(number)) is not None:
                    yield batch
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def _take(self, number: int) -> pa.RecordBatch | None:
        """Wait for the next batch in the queue of split `number`, and return it, or None at the end of a split.

        If a thread has failed, raise the thread's error.
        """
        queue = self._queues[number]
        with self._changed:
            self._consumed = number
            self._changed.notify_all()  # a thread may wait for the consumer to come to this queue
            self._changed.wait_for(lambda: queue or self._error)
            if self._error is not None:
                raise self._error
            batch = queue.popleft()
            self._held_bytes -= 0 if batch is None else batch.nbytes
            self._changed.notify_all()
            return batch

    def _work(self) -> None:
        """Read one split after another in this thread, until none is left, the consumer stops, or any thread fails.

        An error of this thread is kept in `_error`, and the consumer raises it.
        """
        try:
            while (number := self._next()) is not None:
                with closing(self._read(self._splits[number])) as batches:
                    for batch in batches:
                        if not self._put(number, batch):
                            return
                with self._changed:
                    self._queues[number].append(None)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the consumer raises it
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _next(self) -> int | None:
        with self._changed:
            return None if self._stopped or self._error else next(self._unread, None)

    def _put(self, number: int, batch: pa.RecordBatch) -> bool:
        """Wait until `waiting_bytes` leaves room for this batch of split `number`, then put it into the split's queue.

        Returns:
            False, without the batch in the queue, if the consumer has stopped or a thread has failed. Otherwise true.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._error or self._has_room(number, batch.nbytes))
            if self._stopped or self._error:
                return False
            self._queues[number].append(batch)
            self._held_bytes += batch.nbytes
            self._changed.notify_all()
            return True

    def _has_room(self, number: int, size: int) -> bool:
        # The batch that the consumer waits for always has room; otherwise other splits could take all the room.
        queue = self._queues[number]
        is_awaited = not queue and queue is self._queues[self._consumed]
        return is_awaited or self._held_bytes + size <= self._waiting_bytes

"""Reader of one split to Arrow batches: from the storage, and from the broker if the storage fails.

Modules that talk to brokers or read signed URLs are imported only for a split that needs them, because their imports
take long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream import errors
from tiered_stream.model import STORAGE_FORMAT, AbortedTransaction, OffsetRange, SegmentLocation, Split
from tiered_stream.observe.read_metrics import ReadMetrics, send
from tiered_stream.options.choices import Fallback
from tiered_stream.options.parsing import Options
from tiered_stream.options.positions import TimeRange
from tiered_stream.read.task_storage import TaskStorage, unknown_format
from tiered_stream.records.compiled import release_compiler
from tiered_stream.records.decoder import MAX_ROWS, PartBounds, RecordBatchDecoder
from tiered_stream.records.header import aborted_in_fetched
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.throttle import pace_of

log = logging.getLogger(__name__)

_INT64_MAX = (1 << 63) - 1


def read_split(split: Split, options: Options, part: str = "") -> Generator[pa.RecordBatch, None, None]:
    """Yield the split's records as Arrow batches in offset order, and then send the metrics of reading.

    A batch has at most 16,384 rows. `part` is the name of the input partition in the metrics (`read_metrics.send`).

    Raises:
        CorruptDataError: the fetched bytes are malformed.
        UnsupportedDataError: a record batch has an unknown codec, or exceeds a limit that an option sets.
        DataLossError: records of the split no longer exist, and `failOnDataLoss` is true.
        StorageError: storage failed, and no broker is read instead, because `remote.fallback` is `fail` or
            `kafka.bootstrap.servers` is not set.
        BrokerError: the broker failed.
        FetchTimeoutError: the broker sent no record for `kafkaConsumer.pollTimeoutMs`.
    """
    reader = SplitReader(split, options, columns=options.columns)
    yield from reader.batches()
    send(reader.metrics, options.report_addresses, part)


class SplitReader:
    """Reader of one split to Arrow batches; `metrics` counts records, bytes, requests and fallbacks.

    Args:
        split: the split to read.
        options: options of the query.
        max_rows: maximum number of rows of one batch.
        columns: names of the columns to return, in this order; None: all columns.
        storage: reader of the bytes of all splits of a task; None: the split is read alone.
    """

    def __init__(
        self, split: Split, options: Options, max_rows: int = MAX_ROWS, columns: Sequence[str] | None = None,
        storage: TaskStorage | None = None,
    ) -> None:  # fmt: skip
        self._split = split
        self._storage = storage
        self._options = options
        self._max_rows = max_rows
        self._columns = columns
        self._position = split.offsets.start
        self._pace = pace_of("fetch", options.max_bytes_per_second)
        self.metrics = ReadMetrics()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the split's records in offset order, without records outside the time range in the options.

        The errors are the same as in `read_split`.
        """
        for batch in _within_times(self._read(), self._options.times):
            self.metrics.records += batch.num_rows
            self.metrics.record_bytes += batch.nbytes
            newest = pc.max(batch.column("timestamp")).value // 1000
            self.metrics.record_timestamp_max = max(self.metrics.record_timestamp_max, newest)
            yield batch if self._columns is None else batch.select(self._columns)

    def _read(self) -> Iterator[pa.RecordBatch]:
        if self._split.locations:
            try:
                yield from self._from_storage()
            except errors.StorageError as error:
                self._fall_back(error)
        elif self._split.why_brokers:
            self.metrics.on_fallback(self._split.why_brokers)
        yield from self._from_broker()

    def _from_storage(self) -> Iterator[pa.RecordBatch]:
        locations = self._split.locations
        if (unknown := unknown_format(locations)) is not None:
            raise errors.StorageFormatError(
                f"segment {unknown.segment.segment_id} is stored as {unknown.storage_format!r}; known here: "
                f"{STORAGE_FORMAT}"
            )
        number, decoder = 0, self._location_decoder(locations[0])
        storage = self._storage or TaskStorage((self._split,), self._options)
        fetcher = storage.fetcher
        for next_number, data in storage.bytes_of(self._split, self.metrics.on_remote_fetch):
            while number < next_number:
                self._finish(fetcher, locations[number], decoder)
                number += 1
                decoder = self._location_decoder(locations[number])
            with errors.naming(partial(fetcher.describe, locations[number].segment)):
                yield from self._timed(decoder.feed(data))
            self._position = max(self._position, min(decoder.next_offset, locations[number].offsets.end))
            del data  # otherwise these bytes stay in memory while the next ones are awaited
        self._finish(fetcher, locations[number], decoder)
        self._position = self._split.offsets.end

    def _timed(self, decoded: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches from `decoded`, and add the time that decoding took to `metrics.decode_seconds`."""
        while True:
            began = time.perf_counter()
            batch = next(decoded, None)
            self.metrics.decode_seconds += time.perf_counter() - began
            if batch is None:
                return
            yield batch
            release_compiler()  # now the consumer of the batch has loaded its kernels too

    def _finish(self, fetcher: RemoteStorageFetcher, location: SegmentLocation, decoder: RecordBatchDecoder) -> None:
        with errors.naming(partial(fetcher.describe, location.segment)):
            decoder.finish()
        self._position = location.offsets.end

    def _fall_back(self, error: errors.StorageError) -> None:
        """Log and count a fallback to the broker for the rest of the split, after the storage's `error` (KIP-1254).

        If `remote.fallback` is `fail` or `kafka.bootstrap.servers` is not set, raise `error` instead.
        """
        self.metrics.remote_fetch_errors += 1
        if self._options.fallback is Fallback.FAIL or "bootstrap.servers" not in self._options.kafka:
            raise error
        self.metrics.on_fallback(error.fallback_reason)
        log.warning(
            "%s: offsets %d to %d are read from the broker, because storage failed: %s",
            self._split.topic_partition, self._position, self._split.offsets.end, error,
        )  # fmt: skip

    def _from_broker(self) -> Iterator[pa.RecordBatch]:
        """Yield the split's records from offset `_position` on, by Fetch requests to the broker."""
        while self._position < self._split.offsets.end:
            try:
                yield from self._fetched(OffsetRange(self._position, self._split.offsets.end))
            except (errors.OffsetOutOfRangeError, errors.TopicRecreatedError) as error:
                self._skip_lost(error)

    def _fetched(self, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        from tiered_stream.broker.client import open_client
        from tiered_stream.broker.record_fetch import read_range

        client = open_client(self._options.kafka)
        partition, isolation = self._split.topic_partition, self._options.isolation_level
        for fetched in read_range(
            client, partition, offsets, isolation,
            poll_timeout_ms=self._options.poll_timeout_ms, topic_id=self._split.topic_id,
        ):  # fmt: skip
            self.metrics.on_broker_fetch(len(fetched.records))
            # The size of a Fetch is known only afterwards, so the rate limit delays the next Fetch.
            self._pace(len(fetched.records))
            aborted = aborted_in_fetched(fetched.records, fetched.aborted_transactions, offsets.end)
            decoder = self._decoder(OffsetRange(self._position, offsets.end), aborted)
            yield from self._timed(decoder.feed(fetched.records))
            self._position = max(self._position, min(decoder.next_offset, offsets.end))
        if self._position < offsets.end:
            raise errors.OffsetOutOfRangeError(f"the log ends at offset {self._position}")

    def _skip_lost(self, error: errors.OffsetOutOfRangeError | errors.TopicRecreatedError) -> None:
        """Move `_position` past offsets that no longer exist, and count these offsets as lost.

        The new position is the log start offset if it is within the rest of the split, and otherwise the end of the
        split. If the topic was created again, the new position is the end of the split, too.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        partition, start, end = self._split.topic_partition, self._position, self._split.offsets.end
        if self._options.fail_on_data_loss:
            raise errors.DataLossError(
                f"[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] {partition}: offsets {start} to {end} "
                f"cannot all be read: {error}. Set failOnDataLoss to false to go on without them."
            ) from error
        log_start = end if isinstance(error, errors.TopicRecreatedError) else self._log_start()
        self._position = log_start if start < log_start < end else end
        self.metrics.lost_offsets += self._position - start
        log.warning("%s: offsets %d to %d are lost: %s", partition, start, self._position, error)

    def _log_start(self) -> int:
        from tiered_stream.broker.client import open_client
        from tiered_stream.broker.list_offsets import BrokerOffsetReader

        partition = self._split.topic_partition
        reader = BrokerOffsetReader(open_client(self._options.kafka), self._options.isolation_level)
        return reader.earliest([partition])[partition]

    def _location_decoder(self, location: SegmentLocation) -> RecordBatchDecoder:
        segment = location.segment
        first = location.offsets.start if location.bytes.start else None
        bounds = PartBounds(segment.base_offset, segment.end_offset, first, location.following)
        return self._decoder(location.offsets, location.aborted_transactions, bounds)

    def _decoder(
        self, offsets: OffsetRange, aborted: tuple[AbortedTransaction, ...], bounds: PartBounds | None = None
    ) -> RecordBatchDecoder:
        partition = self._split.topic_partition
        return RecordBatchDecoder(
            partition.topic, partition.partition, offsets.start, offsets.end, aborted=aborted,
            include_headers=self._options.include_headers, check_crcs=self._options.check_crcs, bounds=bounds,
            max_rows=self._max_rows, limits=self._options.limits,
            columns=None if self._columns is None else tuple({**dict.fromkeys(self._columns), "timestamp": None}),
        )  # fmt: skip


def _within_times(batches: Iterator[pa.RecordBatch], times: TimeRange | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches with only the rows whose timestamps lie in `times` (None: all rows), without empty batches."""
    for batch in batches:
        matching = batch if times is None else batch.filter(_is_within(batch.column("timestamp"), times))
        if matching.num_rows:
            yield matching


def _is_within(timestamps: pa.Array, times: TimeRange) -> pa.Array:
    micros = timestamps.cast(pa.int64())
    inside = pc.greater_equal(micros, min(times.from_ms * 1000, _INT64_MAX))
    return inside if times.to_ms is None else pc.and_(inside, pc.less(micros, min(times.to_ms * 1000, _INT64_MAX)))

"""The first record of a segment at or after a timestamp (Kafka: `LogSegment.findOffsetByTimestamp`)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import naming
from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.model import ByteRange
from tiered_stream.records.decoder import RecordBatchDecoder
from tiered_stream.records.indexes import parse_offset_index, parse_time_index
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

_INT64_MAX = (1 << 63) - 1
_REQUEST_BYTES = 1 << 20  # the record is mostly within an index interval (4 KiB) of where the search begins


def first_offset_at(fetcher: RemoteStorageFetcher, part: VisibleSegment, timestamp: int) -> int | None:
    """The offset, among those for which the segment counts; None: all of its records are older than `timestamp` (ms).

    Records of every transaction count, markers do not.

    Raises:
        StorageError: indexes or bytes cannot be had.
        CorruptDataError, UnsupportedDataError: they do not have their format.
    """
    segment, offsets = part.segment, part.offsets
    start = _search_start(fetcher, part, timestamp)
    late_enough = min(timestamp * 1000, _INT64_MAX)
    decoder = RecordBatchDecoder(
        segment.topic_partition.topic, segment.topic_partition.partition, offsets.start, offsets.end
    )
    for wanted in fetcher.request_ranges(segment, ByteRange(start, segment.size), _REQUEST_BYTES):
        for batch in decoder.feed(fetcher.fetch_log_segment(segment, wanted.start, wanted.end)):
            times = batch.column("timestamp").cast(pa.int64())  # microseconds
            first = pc.index(pc.greater_equal(times, late_enough), True).as_py()
            if first >= 0:
                offset: int = batch.column("offset")[first].as_py()
                return offset
    return None


def _search_start(fetcher: RemoteStorageFetcher, part: VisibleSegment, timestamp: int) -> int:
    """The byte position of a batch before which no record that counts is late enough."""
    segment = part.segment
    indexes = fetcher.fetch_indexes(segment, (IndexType.OFFSET, IndexType.TIMESTAMP))
    with naming(segment):
        times = parse_time_index(indexes.get(IndexType.TIMESTAMP, b""), segment.base_offset)
        positions = parse_offset_index(indexes.get(IndexType.OFFSET, b""), segment.base_offset, segment.size)
    return positions.start_position(max(times.floor_offset(timestamp), part.offsets.start))

"""Reader of the offsets and values of records in an internal topic, for a few small records.

It uses no compiled code, because loading that would take half a second in each process that plans a query. The library
kafka-python parses the records of a batch after the batch was checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch

from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.errors import CorruptDataError, UnsupportedDataError, naming
from tiered_stream.records import header
from tiered_stream.records.codecs import DecompressedRecords

Value = tuple[int, bytes | None]


def read_values(data: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[int, Iterator[Value]]]:
    """Yield, for each whole batch in `data`, the offset after the batch and an iterator of (offset, value) pairs.

    A batch that is cut off at the end of `data` is left out. A control batch has no pairs. The caller must read a
    batch's pairs before it requests the next batch. The iterators of pairs raise CorruptDataError, too.

    Raises:
        CorruptDataError: a batch is malformed, or its CRC-32C is wrong. The message names the batch's base offset.
        DataLimitError: a batch exceeds one of the limits.
        UnsupportedDataError: a batch has a format before Kafka 0.11, or an unknown codec.
    """
    view, at = memoryview(data), 0
    while len(view) - at >= header.START.size:
        base_offset, length, magic = header.START.unpack_from(view, at)
        end = at + header.LENGTH_END + length
        limits.batch.check(length, f"the length of the batch at offset {base_offset}")
        if length < header.HEADER.size - header.LENGTH_END:
            raise CorruptDataError(f"the batch at offset {base_offset} says that it has {length} bytes")
        if magic != header.MAGIC:
            raise UnsupportedDataError(f"the batch at offset {base_offset} is of format {magic}, not 2")
        if end > len(view):
            break
        with naming(f"the batch at offset {base_offset}"):
            batch = _uncompressed(bytes(view[at:end]), limits)
        yield batch.next_offset, _values(batch)
        at = end


def _uncompressed(batch: bytes, limits: Limits) -> DefaultRecordBatch:
    """Check one whole batch of magic 2, and return it with its records decompressed.

    Raises CorruptDataError, DataLimitError or UnsupportedDataError if the check fails.
    """
    base_offset, length, epoch, magic, crc, attributes, last_delta, *others, count = header.HEADER.unpack_from(batch)
    if not header.crc_is_right(batch):
        raise CorruptDataError("its CRC-32C is wrong")
    if base_offset < 0 or last_delta < 0:
        raise CorruptDataError(f"it ends {last_delta} after that")
    codec = attributes & header.CODEC_MASK
    if codec and not attributes & header.CONTROL_BIT:
        unpacked = DecompressedRecords(4 * len(batch), limits.decompressed_batch)
        unpacked.append(codec, memoryview(batch)[header.HEADER.size :])
        fields = base_offset, length, epoch, magic, crc, attributes - codec, last_delta, *others, count
        batch = header.HEADER.pack(*fields) + unpacked.data().tobytes()
    if not attributes & header.CONTROL_BIT:
        if count * header.SMALLEST_RECORD > len(batch) - header.HEADER.size:
            raise CorruptDataError(f"it is too short for its {count} records")
        limits.batch_records.check(count, "its records")
    return DefaultRecordBatch(batch)


def _values(batch: DefaultRecordBatch) -> Iterator[Value]:
    if batch.is_control_batch:
        return
    try:
        for record in batch:
            if not batch.base_offset <= record.offset < batch.next_offset:
                raise CorruptDataError(f"the batch at offset {batch.base_offset} has a record beyond its end")
            yield record.offset, record.value
    except CorruptRecordError as error:
        raise CorruptDataError(f"the batch at offset {batch.base_offset}: {error}") from error

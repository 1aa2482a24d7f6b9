"""Parsers of the leader epoch checkpoint and the producer snapshot that a broker uploads with a segment.

Leader epoch checkpoint (Kafka: `LeaderEpochCheckpointFile`), text, one item a line, epochs and offsets ascending:

    0                   version
    <count>
    <epoch> <offset>    `count` times: an epoch and the first offset written in it

Producer snapshot (Kafka: `ProducerStateManager`, message `ProducerSnapshot`), big-endian:

    version             int16    1
    crc                 uint32   CRC-32C of what follows
    count               int32
    `count` times, 46 bytes:
        producer id               int64
        epoch                     int16
        last sequence             int32
        last offset               int64
        offset delta              int32
        timestamp                 int64
        coordinator epoch         int32
        current txn first offset  int64   -1: no transaction is open
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import google_crc32c

from tiered_stream.errors import CorruptDataError, UnsupportedDataError

_EPOCH_LINE = re.compile(r"(\d{1,10}) (\d{1,19})")

_HEADER = struct.Struct(">hIi")  # version, crc, count
_CRC_COVERS_FROM = 6
_PRODUCER = struct.Struct(">qhiqiqiq")  # the eight fields of a producer's entry
_PRODUCER_SNAPSHOT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ProducerState:
    """State of a producer at the end of a segment. `current_txn_first_offset` is None if no transaction is open."""

    producer_id: int
    epoch: int
    last_offset: int
    current_txn_first_offset: int | None


def open_transactions(producers: Iterable[ProducerState]) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of each transaction that is open at the segment's end."""
    firsts = ((producer.producer_id, producer.current_txn_first_offset) for producer in producers)
    return [(producer_id, first) for producer_id, first in firsts if first is not None]


def parse_leader_epoch_checkpoint(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return (epoch, first offset) of every leader epoch up to the segment's end, ascending.

    Raises:
        CorruptDataError: the bytes are not a leader epoch checkpoint, or its epochs or offsets do not ascend.
        UnsupportedDataError: the version is not 0.
    """
    try:
        lines = data.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptDataError("leader epoch checkpoint: it is not ASCII text") from error
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or not (lines[0].isdecimal() and lines[1].isdecimal()):
        raise CorruptDataError("leader epoch checkpoint: it does not begin with a version and a count")
    if lines[0] != "0":
        raise UnsupportedDataError(f"leader epoch checkpoint: version {lines[0][:20]}; only version 0 is known")
    if lines[1] != str(len(lines) - 2):
        raise CorruptDataError(f"leader epoch checkpoint: {lines[1][:20]} entries announced, {len(lines) - 2} there")
    entries: list[tuple[int, int]] = []
    for line in lines[2:]:
        match = _EPOCH_LINE.fullmatch(line)
        if match is None:
            raise CorruptDataError(f"leader epoch checkpoint: {line[:40]!r} is not an epoch and an offset")
        epoch, offset = int(match[1]), int(match[2])
        if entries and (epoch <= entries[-1][0] or offset < entries[-1][1]):
            before, start = entries[-1]
            raise CorruptDataError(
                f"leader epoch checkpoint: epoch {epoch} from offset {offset} after {before} from {start}"
            )
        entries.append((epoch, offset))
    return tuple(entries)


def parse_producer_snapshot(data: bytes) -> tuple[ProducerState, ...]:
    """Return the producers that were active at the segment's end.

    Raises:
        CorruptDataError: the checksum, the size or the first offset of a transaction is wrong.
        UnsupportedDataError: the version is not 1.
    """
    if len(data) < _HEADER.size:
        raise CorruptDataError(f"producer snapshot: {len(data)} bytes, shorter than its header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _PRODUCER_SNAPSHOT_VERSION:
        raise UnsupportedDataError(f"producer snapshot: version {version}; only version 1 is known")
    if google_crc32c.value(bytes(data[_CRC_COVERS_FROM:])) != crc:
        raise CorruptDataError("producer snapshot: its checksum does not fit")
    if count < 0 or len(data) != _HEADER.size + count * _PRODUCER.size:
        raise CorruptDataError(f"producer snapshot: {count} entries announced in {len(data)} bytes")
    producers = []
    for producer_id, epoch, _, last_offset, _, _, _, first in _PRODUCER.iter_unpack(data[_HEADER.size :]):
        if first < -1:
            raise CorruptDataError(f"producer snapshot: producer {producer_id} has a transaction from offset {first}")
        producers.append(ProducerState(producer_id, epoch, last_offset, None if first == -1 else first))
    return tuple(producers)

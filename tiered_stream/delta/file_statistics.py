"""A file's statistics, in the JSON of Delta's log (protocol: "Per-file Statistics"), so that readers can skip it.

`numRecords`; `nullCount` of every column; `minValues` and `maxValues` of the columns that have an order and are not
payload. Delta truncates strings at 32 characters and timestamps to milliseconds; a maximum then has to be rounded up.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.model import TopicPartition

_NUMBERS = ("offset", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_TEXT = 32
_ABOVE_ANY_CHARACTER = "\ufffd"
"""As Delta does it; a topic's name is ASCII."""


class FileStatistics:
    """Grows with each batch that goes into the file."""

    def __init__(self) -> None:
        self.records = 0
        self.offsets: dict[TopicPartition, tuple[int, int]] = {}
        """First and last offset of each partition in the file, both inclusive."""
        self._nulls: dict[str, int] = {}
        self._bounds: dict[str, tuple[int, int]] = {}

    def add(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Count rows of one partition, in offset order."""
        self.records += batch.num_rows
        for name in batch.schema.names:
            self._nulls[name] = self._nulls.get(name, 0) + batch.column(name).null_count
        for name in _NUMBERS:
            self._widen(name, batch.column(name))
        self._widen("timestamp", batch.column("timestamp").cast(pa.int64()))
        first, last = batch.column("offset")[0].as_py(), batch.column("offset")[-1].as_py()
        self.offsets[partition] = self.offsets.get(partition, (first, last))[0], last

    def _widen(self, name: str, column: pa.Array) -> None:
        low, high = pc.min_max(column).as_py().values()
        least, most = self._bounds.get(name, (low, high))
        self._bounds[name] = min(least, low), max(most, high)

    def to_json(self) -> str:
        """As the `add` action of Delta's log has it."""
        least, most = self._extremes(0), self._extremes(1)
        topics = sorted(partition.topic for partition in self.offsets)
        numbers = sorted(partition.partition for partition in self.offsets)
        least |= {"topic": topics[0][:_LONGEST_TEXT], "partition": numbers[0]}
        most |= {"topic": _rounded_up(topics[-1]), "partition": numbers[-1]}
        found = {"numRecords": self.records, "minValues": least, "maxValues": most, "nullCount": self._nulls}
        return orjson.dumps(found).decode()

    def _extremes(self, which: int) -> dict[str, int | str]:
        found: dict[str, int | str] = {name: self._bounds[name][which] for name in _NUMBERS}
        timestamp = _timestamp(self._bounds["timestamp"][which], round_up=which == 1)
        return found if timestamp is None else {**found, "timestamp": timestamp}


def _rounded_up(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + _ABOVE_ANY_CHARACTER


def _timestamp(microseconds: int, *, round_up: bool) -> str | None:
    """`2026-11-21T04:05:06.789Z`; None, which bounds nothing, outside the years that the form can say."""
    milliseconds = -(-microseconds // 1000) if round_up else microseconds // 1000
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

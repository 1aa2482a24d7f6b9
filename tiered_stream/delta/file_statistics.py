"""A file's statistics, in the JSON of Delta's log (protocol: "Per-file Statistics"), so that readers can skip it.

`numRecords`; `nullCount` of the first 32 columns, fields of structs counting as columns; `minValues` and `maxValues` of
those among them that have an order (Delta: `SkippingEligibleDataType`). Delta truncates strings at 32 characters and
timestamps to milliseconds; a maximum then has to be rounded up. What JSON cannot say bounds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.kafka_columns import OFFSET, TOPIC, find_column, kafka_column, table_columns
from tiered_stream.model import TopicPartition

INDEXED_COLUMNS = 32
"""Delta: `delta.dataSkippingNumIndexedCols`."""
_EPOCH = datetime(1970, 1, 1)
_FIRST_DAY = date(1970, 1, 1)
_LONGEST_TEXT = 32
_HIGHEST, _ABOVE_ANY_CHARACTER = "\ufffd", "\U0010ffff"
"""What a maximum is rounded up by: as Delta does it, and where that is not above the text."""

_Path = tuple[str, ...]


class FileStatistics:
    """Grows with each batch that goes into the file."""

    def __init__(self) -> None:
        self.records = 0
        self.offsets: dict[TopicPartition, tuple[int, int]] = {}
        """First and last offset of each partition in the file, both inclusive."""
        self._nulls: dict[_Path, int] = {}
        self._kinds: dict[_Path, pa.DataType] = {}
        self._bounds: dict[_Path, tuple[Any, Any]] = {}
        self._boundless: set[_Path] = set()
        """Columns with a NaN, which Spark takes for the largest of all numbers."""

    def add(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Count rows of one partition, at least one, in offset order."""
        self.records += batch.num_rows
        topic = find_column(batch.schema, TOPIC)
        for at, path in _indexed(table_columns(batch.schema)):
            if at == topic:
                self._count(path, 0)
                self._widen(path, pa.string(), partition.topic, partition.topic)
            else:
                self._add(path, _leaf(batch.column(at), path))
        offsets = kafka_column(batch, OFFSET)
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        self.offsets[partition] = self.offsets.get(partition, (first, last))[0], last

    def _add(self, path: _Path, column: pa.Array) -> None:
        self._count(path, column.null_count)
        kind = column.type
        if not _is_ordered(kind):
            return
        if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
            self._boundless.add(path)
        if pa.types.is_temporal(kind):
            column = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        low, high = pc.min_max(column).as_py().values()
        if low is not None:
            self._widen(path, kind, low, high)

    def _count(self, path: _Path, nulls: int) -> None:
        self._nulls[path] = self._nulls.get(path, 0) + nulls

    def _widen(self, path: _Path, kind: pa.DataType, low: Any, high: Any) -> None:
        least, most = self._bounds.get(path, (low, high))
        self._kinds[path] = kind
        self._bounds[path] = min(least, low), max(most, high)

    def to_json(self) -> str:
        """As the `add` action of Delta's log has it."""
        least: dict[str, Any] = {}
        most: dict[str, Any] = {}
        for path, (low, high) in self._bounds.items():
            if path not in self._boundless:
                _put(least, path, _told(low, self._kinds[path], round_up=False))
                _put(most, path, _told(high, self._kinds[path], round_up=True))
        nulls: dict[str, Any] = {}
        for path, count in self._nulls.items():
            _put(nulls, path, count)
        found = {"numRecords": self.records, "minValues": least, "maxValues": most, "nullCount": nulls}
        return orjson.dumps(found).decode()


@lru_cache(16)
def _indexed(schema: pa.Schema) -> list[tuple[int, _Path]]:
    """The columns that statistics are for: each with the number of the column that it is in."""
    leaves = ((at, path) for at, field in enumerate(schema) for path in _paths((field.name,), field.type))
    return list(islice(leaves, INDEXED_COLUMNS))


def _paths(path: _Path, kind: pa.DataType) -> Iterator[_Path]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths((*path, field.name), field.type)
    else:
        yield path


def _leaf(column: pa.Array, path: _Path) -> pa.Array:
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _is_ordered(kind: pa.DataType) -> bool:
    types = pa.types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(number or types.is_string(kind) or types.is_date32(kind) or types.is_timestamp(kind))


def _put(into: dict[str, Any], path: _Path, value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _told(value: Any, kind: pa.DataType, *, round_up: bool) -> Any:
    """A bound as JSON has it; None where it cannot be said."""
    if isinstance(value, str):
        return _rounded_up(value) if round_up else value[:_LONGEST_TEXT]
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, float):
        # The two zeros are equal, but some readers tell them apart: a bound holds for both.
        return (value or (0.0 if round_up else -0.0)) if math.isfinite(value) else None
    if pa.types.is_timestamp(kind):
        return _timestamp(value, "Z" if kind.tz else "", round_up=round_up)
    return _date(value) if pa.types.is_date32(kind) else value


def _rounded_up(text: str) -> str | None:
    """At least the text; None where that would be as long."""
    if len(text) <= _LONGEST_TEXT:
        return text
    above = _HIGHEST if text[_LONGEST_TEXT] < _HIGHEST else _ABOVE_ANY_CHARACTER
    return text[:_LONGEST_TEXT] + above if text[_LONGEST_TEXT] < above else None


def _date(days: int) -> str | None:
    try:
        return (_FIRST_DAY + timedelta(days)).isoformat()
    except OverflowError:
        return None


def _timestamp(microseconds: int, zone: str, *, round_up: bool) -> str | None:
    """`2026-11-21T04:05:06.789Z`; None outside the years that the form can say."""
    milliseconds = -(-microseconds // 1000) if round_up else microseconds // 1000
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + zone

"""Statistics of a data file in the JSON of Delta's log (protocol: "Per-file Statistics"), by which readers skip files.

The statistics are the number of rows (`numRecords`), and the number of nulls (`nullCount`) in each of the first 32
columns. Each field of a struct counts as a column. If a column's type has an order, there are also a minimum and a
maximum (`minValues` and `maxValues`; Delta: `SkippingEligibleDataType`).

Strings are truncated to 32 characters and timestamps to milliseconds, as in Delta. A truncated maximum is rounded up. A
minimum or maximum that JSON cannot express is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.rows.kafka_columns import (
    FIRST_OFFSET,
    OFFSET,
    TOPIC,
    find_column,
    kafka_column,
    table_columns,
)
from tiered_stream.model import TopicPartition

INDEXED_COLUMNS = 32
"""Number of columns that have statistics: Delta's default of `delta.dataSkippingNumIndexedCols`."""
_EPOCH = datetime(1970, 1, 1)
_MAX_TEXT = 32
_HIGHEST, _ABOVE_ANY_CHARACTER = "\ufffd", "\U0010ffff"
"""Characters appended to a truncated maximum to round it up.

Delta appends U+FFFD. U+10FFFF is for texts whose first character after the cut is U+FFFD or higher.
"""

_Path = tuple[str, ...]


class FileStatistics:
    """Statistics of one data file, to which `add` adds each batch that is written to the file."""

    def __init__(self) -> None:
        self.records = 0
        self.offsets: dict[TopicPartition, tuple[int, int]] = {}
        """First and last offset of each partition in the file, both inclusive."""
        self._nulls: Counter[_Path] = Counter()
        self._kinds: dict[_Path, pa.DataType] = {}
        self._bounds: dict[_Path, tuple[Any, Any]] = {}
        self._boundless: set[_Path] = set()
        """Paths of columns with a NaN, which get no minimum and maximum: Spark sorts NaN above all numbers."""

    def add(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Add rows of one Kafka partition to the statistics: at least one row, in offset order."""
        self.records += batch.num_rows
        topic = find_column(batch.schema, TOPIC)
        for index, path in _indexed(table_columns(batch.schema)):
            if index == topic:
                self._nulls[path] += 0
                self._widen(path, pa.string(), partition.topic, partition.topic)
            else:
                column = batch.column(index)
                self._add(path, pc.struct_field(column, list(path[1:])) if len(path) > 1 else column)
        lowest = FIRST_OFFSET if find_column(batch.schema, FIRST_OFFSET) >= 0 else OFFSET
        first, last = kafka_column(batch, lowest)[0].as_py(), kafka_column(batch, OFFSET)[-1].as_py()
        self.offsets[partition] = self.offsets.get(partition, (first, last))[0], last

    def _add(self, path: _Path, column: pa.Array) -> None:
        self._nulls[path] += column.null_count
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

    def _widen(self, path: _Path, kind: pa.DataType, low: Any, high: Any) -> None:
        lowest, highest = self._bounds.get(path, (low, high))
        self._kinds[path] = kind
        self._bounds[path] = min(lowest, low), max(highest, high)

    def to_json(self) -> str:
        """Return the statistics as JSON text for the `add` action in Delta's log."""
        lowest: dict[str, Any] = {}
        highest: dict[str, Any] = {}
        for path, (low, high) in self._bounds.items():
            if path not in self._boundless:
                _put(lowest, path, _bound_to_json(low, self._kinds[path], round_up=False))
                _put(highest, path, _bound_to_json(high, self._kinds[path], round_up=True))
        nulls: dict[str, Any] = {}
        for path, count in self._nulls.items():
            _put(nulls, path, count)
        statistics = {"numRecords": self.records, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
        return orjson.dumps(statistics).decode()


@lru_cache(16)
def _indexed(schema: pa.Schema) -> list[tuple[int, _Path]]:
    """Return the first 32 leaf columns of the schema, as pairs: index of the top-level column, and path of names."""
    leaves = ((index, path) for index, field in enumerate(schema) for path in _paths((field.name,), field.type))
    return list(islice(leaves, INDEXED_COLUMNS))


def _paths(path: _Path, kind: pa.DataType) -> Iterator[_Path]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths((*path, field.name), field.type)
    else:
        yield path


def _is_ordered(kind: pa.DataType) -> bool:
    types = pa.types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(number or types.is_string(kind) or types.is_date32(kind) or types.is_timestamp(kind))


def _put(values: dict[str, Any], path: _Path, value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _bound_to_json(value: Any, kind: pa.DataType, *, round_up: bool) -> Any:
    """Return `value`, the minimum or maximum of a column, as a JSON value, or None if JSON cannot express it.

    `kind` is the column's Arrow type. Texts are truncated, and timestamps lose their microseconds. `round_up` is true
    for a maximum, so that the result is not below `value`.
    """
    if isinstance(value, str):
        return _rounded_up(value) if round_up else value[:_MAX_TEXT]
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, float):
        # Some readers distinguish -0.0 from 0.0, which are equal. So a lower bound is -0.0, and an upper bound 0.0.
        return (value or (0.0 if round_up else -0.0)) if math.isfinite(value) else None
    try:
        if pa.types.is_timestamp(kind):  # microseconds since the epoch, as ISO text with milliseconds
            moment = _EPOCH + timedelta(milliseconds=-(-value // 1000) if round_up else value // 1000)
            return moment.isoformat(timespec="milliseconds") + ("Z" if kind.tz else "")
        return (_EPOCH + timedelta(value)).date().isoformat() if pa.types.is_date32(kind) else value
    except OverflowError:  # outside of the years 1 to 9999
        return None


def _rounded_up(text: str) -> str | None:
    """Return a text of at most 33 characters that is not below `text`, or None if no such text can be made.

    A text of at most 32 characters is returned unchanged. A longer text is cut after 32 characters, and a character
    higher than the 33rd one is appended. None: the 33rd character is the highest character of Unicode.
    """
    if len(text) <= _MAX_TEXT:
        return text
    above = _HIGHEST if text[_MAX_TEXT] < _HIGHEST else _ABOVE_ANY_CHARACTER
    return text[:_MAX_TEXT] + above if text[_MAX_TEXT] < above else None

"""Conversion of rows to texts for JSON lines and CSV.

Arrow's functions convert one column at a time. Only values that these functions cannot convert become Python objects:
texts with characters that JSON escapes, bytes that are not UTF-8, fractions, and keys of maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tiered_stream.formats.columns.conform import list_items, null_mask
from tiered_stream.formats.json.json_text import plain, plain_json

_ESCAPED = r"[\x00-\x1f\"\\]"
"""Regular expression for a character that JSON escapes."""
BASE64 = "base64:"
"""Prefix of a CSV value that has bytes in base64, because they are not UTF-8."""


def json_lines(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the column `line`, which has each row as a JSON object and a line end.

    Bytes become strings, or `{"base64": …}` if they are not UTF-8. Times and decimals become strings, times in
    ISO 8601.
    """
    return pa.record_batch({"line": _json_objects(rows.schema.names, rows.columns, "}\n")})


def csv_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with columns of types that CSV can hold.

    Bytes become texts, or `base64:…` if they are not UTF-8. Nested values become JSON, and times become texts in
    ISO 8601.
    """
    return pa.RecordBatch.from_arrays([_csv_values(column) for column in rows.columns], names=rows.schema.names)


def _json_values(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value in `column`. A null becomes the text `null`."""
    kind = column.type
    if types.is_struct(kind):
        end = pc.if_else(column.is_valid(), "}", pa.scalar(None, pa.string()))
        texts = _json_objects(kind.names, column.flatten(), end)
    elif types.is_list(kind) or types.is_map(kind):
        texts = _json_lists(column)
    elif types.is_boolean(kind) or types.is_integer(kind):
        texts = column.cast(pa.string())
    elif (texts := _plain_texts(column)) is None:
        texts = _by_value(column, _as_json)
    elif types.is_decimal(kind) or types.is_temporal(kind) or not _has_escaped(texts):
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    else:
        texts = _by_value(texts, _as_json)
    return pc.fill_null(texts, "null")


def _json_objects(names: Sequence[str], columns: Sequence[pa.Array], end: Any) -> pa.Array:
    """Return the JSON text of an object for each row of `columns`.

    Args:
        names: names of the object's members.
        columns: values of the object's members.
        end: text at the end of every object, or an array with the text for each object. An object whose text in the
            array is null becomes null.
    """
    parts: list[Any] = ["{"]
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [f"{',' if number else ''}{orjson.dumps(name).decode()}:", _json_values(column)]
    return pc.binary_join_element_wise(*parts, end, "")


def _json_lists(column: pa.ListArray | pa.MapArray) -> pa.Array:
    """Return the JSON text of an array for each list in `column`, or of an object for each map."""
    offsets, items = list_items(column)
    texts, brackets = _json_values(items[-1]), "[]"
    if types.is_map(column.type):
        keys = _time_texts(items[0]) if types.is_temporal(items[0].type) else items[0]
        names = _by_value(keys, lambda key: _as_json(str(plain(key))))
        texts, brackets = pc.binary_join_element_wise(names, texts, ":"), "{}"
    lists = pa.ListArray.from_arrays(pa.array(offsets), texts, mask=null_mask(column))
    return pc.binary_join_element_wise(brackets[0], pc.binary_join(lists, ","), brackets[1], "")


def _csv_values(column: pa.Array) -> pa.Array:
    kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return column
    if types.is_nested(kind):
        return pc.if_else(column.is_valid(), _json_values(column), pa.scalar(None, pa.string()))
    texts = _plain_texts(column)
    return _by_value(column, _base64) if texts is None else texts


def _plain_texts(column: pa.Array) -> pa.Array | None:
    """Return the values as texts, or None if the type is nested or floating-point, or if a value is not UTF-8."""
    kind = column.type
    if types.is_temporal(kind):
        return _time_texts(column)
    if types.is_nested(kind) or types.is_floating(kind):
        return None
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # no UTF-8
        return None


def _time_texts(column: pa.Array) -> pa.Array:
    kind = column.type
    # Without its zone, which is always UTC, because Arrow would look the zone up in files of the system.
    plain_times = column.cast(pa.timestamp(kind.unit)) if types.is_timestamp(kind) else column
    texts = plain_times.cast(pa.string())
    far = pc.fill_null(pc.starts_with(texts, "<"), False)  # Arrow's text for years of more than 16 bits
    if far.true_count:
        days_or_times = plain_times.filter(far).to_numpy(zero_copy_only=False)
        texts = pc.replace_with_mask(texts, far, pa.array(map(str, days_or_times), pa.string()))
    if types.is_timestamp(kind):
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(texts, "Z", "") if types.is_timestamp(kind) and kind.tz else texts


def _has_escaped(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py())


def _by_value(column: pa.Array, text_of: Callable[[Any], str]) -> pa.Array:
    return pa.array((None if value is None else text_of(value) for value in column.to_pylist()), pa.string())


def _as_json(value: Any) -> str:
    return plain_json(value).decode()


def _base64(value: bytes) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else BASE64 + str(shown["base64"])

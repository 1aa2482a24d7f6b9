"""Texts of rows for JSON lines and CSV.

Texts are made by Arrow's functions, a column at a time. Only values that these functions cannot write become Python
objects: texts with characters that JSON escapes, bytes that are not UTF-8, fractions, and nested values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tiered_stream.formats.columns.conform import list_items, null_mask, with_items
from tiered_stream.formats.json.json_text import plain, plain_json

_ESCAPED = r"[\x00-\x1f\"\\]"
"""Characters in a text that JSON escapes."""
BASE64 = "base64:"
"""Prefix in CSV of bytes that are not UTF-8."""


def json_lines(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with one column, which has the JSON of each row and a line end.

    Bytes become strings, or `{"base64": …}` if they are not UTF-8. Times become strings in ISO 8601, and decimals
    strings.
    """
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        parts += [f"{',' if number else '{'}{orjson.dumps(name).decode()}:", _json_values(column)]
    return pa.record_batch({"line": pc.binary_join_element_wise(*parts, "}\n", "")})


def csv_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with columns that CSV can hold.

    Bytes become texts, or `base64:…` if they are not UTF-8. Nested values become their JSON text, and times ISO 8601.
    """
    return pa.RecordBatch.from_arrays([_csv_values(column) for column in rows.columns], names=rows.schema.names)


def _json_values(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value, which is `null` for a null."""
    kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind):
        texts = column.cast(pa.string())
    elif (texts := _plain_texts(column)) is None:
        texts = _by_value(column, _as_json)
    elif types.is_decimal(kind) or types.is_temporal(kind) or not _has_escaped(texts):
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    else:
        texts = _by_value(texts, _as_json)
    return pc.fill_null(texts, "null")


def _csv_values(column: pa.Array) -> pa.Array:
    kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return column
    texts = _plain_texts(column)
    if texts is not None:
        return texts
    return _by_value(column, _base64 if types.is_binary(kind) else _as_json)


def _plain_texts(column: pa.Array) -> pa.Array | None:
    """Return the values as texts; None: the type is nested or floating-point, or a value is not UTF-8."""
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


def _with_time_texts(column: pa.Array) -> pa.Array:
    """Return a column with texts in place of times, also nested ones, because Python has only the years 1 to 9999."""
    kind = column.type
    if types.is_temporal(kind):
        return _time_texts(column)
    if types.is_struct(kind) and kind.num_fields:
        children = [_with_time_texts(child) for child in column.flatten()]
        fields = [pa.field(name, child.type) for name, child in zip(kind.names, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=null_mask(column))
    if types.is_list(kind) or types.is_map(kind):
        offsets, items = list_items(column)
        items = [_with_time_texts(each) for each in items]
        new_kind = pa.map_(*(each.type for each in items)) if types.is_map(kind) else pa.list_(items[0].type)
        return with_items(column, offsets, items, new_kind)
    return column


def _has_escaped(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py())


def _by_value(column: pa.Array, text_of: Callable[[Any], str]) -> pa.Array:
    column = _with_time_texts(column)
    kind = column.type
    values = (_python(value, kind) for value in column.to_pylist()) if types.is_nested(kind) else column.to_pylist()
    return pa.array((None if value is None else text_of(value) for value in values), pa.string())


def _python(value: Any, kind: pa.DataType) -> Any:
    """Return a value from `to_pylist` with a dictionary in place of each list of pairs that stands for a map."""
    if value is None:
        return None
    if types.is_map(kind):
        return {str(plain(key)): _python(item, kind.item_type) for key, item in value}
    if types.is_struct(kind):
        return {field.name: _python(value[field.name], field.type) for field in kind}
    return [_python(item, kind.value_type) for item in value] if types.is_nested(kind) else value


def _as_json(value: Any) -> str:
    return plain_json(value).decode()


def _base64(value: bytes) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else BASE64 + str(shown["base64"])

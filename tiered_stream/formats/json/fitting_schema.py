"""Schema that fits one JSON document, as a Spark DDL string, for errors about a record of another schema.

The schema has names and types of the document, and no value. Types are inferred as for `infer` (`json_inference`).
"""

from __future__ import annotations

import re

import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json.json_inference import infer_json

MAX_CHARACTERS = 1_000
"""Maximum length of a schema; a longer schema is not shown."""
_PAYLOAD, _BEFORE, _AFTER = "payload", "before", "after"
_WITH_TYPES = (("op", "STRING"), ("ts_ms", "BIGINT"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def fitting_schema(document: bytes | None, *, is_debezium: bool = False) -> str:
    """Return the schema of the document; empty if the document is no JSON object, or if its schema is too long.

    A document of Kafka Connect's JSON converter with schemas has only the field `payload` in the result. If
    `is_debezium` is true, the document may be Debezium's envelope. The result then has the fields that a table needs,
    and both images have the same columns.
    """
    try:
        kind = infer_json([document])
    except ConfigurationError:
        return ""
    within = _struct_within(kind, _PAYLOAD)
    text = _ddl(_fields(within if within is not None else kind, is_debezium))
    text = f"{_PAYLOAD} STRUCT<{text}>" if within is not None else text
    return text if len(text) <= MAX_CHARACTERS else ""


def _fields(kind: pa.StructType, is_debezium: bool) -> list[tuple[str, str]]:
    image = _struct_within(kind, _AFTER) or _struct_within(kind, _BEFORE)
    if not is_debezium or image is None or kind.get_field_index("op") < 0:
        return [(field.name, _type(field.type)) for field in kind]
    return [(_BEFORE, _type(image)), (_AFTER, _type(image)), *_WITH_TYPES]


def _struct_within(kind: pa.StructType, name: str) -> pa.StructType | None:
    at = kind.get_field_index(name)
    return kind.field(at).type if at >= 0 and types.is_struct(kind.field(at).type) else None


def _ddl(fields: list[tuple[str, str]]) -> str:
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in fields)


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _type(kind: pa.DataType) -> str:
    """Return the DDL of a type that `infer_json` returns."""
    if types.is_struct(kind):
        return f"STRUCT<{_ddl([(field.name, _type(field.type)) for field in kind])}>"
    if types.is_list(kind):
        return f"ARRAY<{_type(kind.value_type)}>"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    names = {pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}
    return names.get(kind, "STRING")

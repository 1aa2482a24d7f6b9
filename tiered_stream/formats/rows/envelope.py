"""Unwrapping of Debezium's envelope: each change event becomes the row after the change, with up to 3 added columns.

Layout (Debezium: `io.debezium.data.Envelope`): `before`, `after`, `source`, `op` (c, u, d, r, t, m), `ts_ms`. With the
JSON converter's `schemas.enable` these fields are within the field `payload`. The added columns hold `op`, `source` and
`ts_ms`, and have the names that Debezium's `ExtractNewRecordState` gives them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.conform import conform

OP = "__op"
"""Name of the added column for Debezium's `op`."""
ADDED = (("op", OP), ("source", "__source"), ("ts_ms", "__ts_ms"))
DELETED_FIELD = "__deleted"
"""Field of flattened rows that is `true` in the row of a delete (Debezium: `delete.handling.mode=rewrite`)."""
NO_ENVELOPE = "it is not Debezium's envelope: it has no op"


def unwrapped_type(kind: pa.DataType) -> pa.StructType:
    """Return the type of the rows that `unwrapped` returns for envelopes of the type `kind`.

    The type has the fields of `after`, and then the added columns (`ADDED`) whose fields the envelope has.

    Raises:
        ConfigurationError: `kind` is not an envelope, `op` is no text, or `after` has a field with the name of an added
            column.
    """
    inner = kind.field("payload").type if _has(kind, "payload") else kind
    if not (_has(inner, "after") and _has(inner, "op") and pa.types.is_struct(inner.field("after").type)):
        raise ConfigurationError(
            "ingest.envelope is debezium, but the value's schema has no struct after and no op: give it the schema of "
            "the whole envelope, such as before STRUCT<id: BIGINT>, after STRUCT<id: BIGINT>, op STRING, ts_ms BIGINT. "
            "If values have a payload, put it into payload STRUCT<…>"
        )
    if not pa.types.is_string(inner.field("op").type):
        raise ConfigurationError(
            f"ingest.envelope is debezium, but op is {inner.field('op').type} in the value's schema: Debezium writes "
            "STRING"
        )
    row = list(inner.field("after").type)
    names = {column.name.lower() for column in row}
    added = [pa.field(own, inner.field(name).type) for name, own in ADDED if _has(inner, name)]
    clash = [column.name for column in added if column.name in names]
    if clash:
        raise ConfigurationError(f"the table in Debezium's envelope has a column {clash[0]}, which the envelope needs")
    return pa.struct([*row, *added])


def check_flattened(kind: pa.DataType) -> None:
    """Raise ConfigurationError if rows of the type `kind` do not say which of them are deletes."""
    if not _has(kind, DELETED_FIELD):
        raise ConfigurationError(
            f"ingest.envelope is flattened, but the value's schema has no field {DELETED_FIELD}: set the connector's "
            "delete.handling.mode (or delete.tombstone.handling.mode) to rewrite, or remove the setting"
        )


def unwrapped(column: pa.StructArray) -> tuple[pa.StructArray, dict[int, str]]:
    """Return the rows of a column of envelopes, and by index the reason of each value that is not an envelope.

    A row has the fields of `after`. If `after` is null, as in a delete, the row has the fields of `before`. A row is
    null if its value is null or has no `op`. Only a value without `op` has a reason.
    """
    present = column.is_valid()
    if _has(column.type, "payload"):
        column = pc.struct_field(column, ["payload"])
    kind = unwrapped_type(column.type)
    op = pc.struct_field(column, ["op"])
    image = pc.struct_field(column, ["after"])
    if _has(column.type, "before"):
        before, _ = conform(pc.struct_field(column, ["before"]), image.type)
        image = pc.if_else(image.is_valid(), image, before)
    columns = [pc.struct_field(image, [field.name]) for field in image.type]
    columns += [pc.struct_field(column, [name]) for name, _ in ADDED if _has(column.type, name)]
    rows = pa.StructArray.from_arrays(columns, fields=list(kind), mask=op.is_null())
    no_envelope = pc.indices_nonzero(pc.and_(present, op.is_null())).to_pylist()
    return rows, dict.fromkeys(no_envelope, NO_ENVELOPE)


def _has(kind: pa.DataType, name: str) -> bool:
    return bool(pa.types.is_struct(kind) and kind.get_field_index(name) >= 0)

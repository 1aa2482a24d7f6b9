"""Records that change a table of the latest state: keys of their rows, and which records delete a row.

A record with a null value (a tombstone) deletes the row of its key, and so does Debezium's event with the op `d`, or
with `__deleted` if events are flattened. All other records insert or update a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.conform import conform
from tiered_stream.formats.rows.envelope import DELETED_FIELD, NO_ENVELOPE, OP
from tiered_stream.formats.rows.kafka_columns import find_column, hidden
from tiered_stream.formats.rows.row_choices import Envelope
from tiered_stream.formats.rows.unavailable_values import NAMES, UNAVAILABLE, UnavailableValues

DELETED = "deleted"
"""Name of the hidden column that is true in rows that delete the row of their key."""
_PAYLOAD = "payload"
_UPSERTS, _DELETE = ("c", "u", "r"), "d"
_BLANK_TEXTS = r"^(|0(\.0+)?|\{\}|(1970-01-01T)?00:00:00(\.0+)?(Z|\+00:00)?)$"
"""Texts that Debezium writes for columns of texts, decimals, JSON and times whose value it does not know."""
_OF_DELETE = "order rows by timestamp, which every record has"
Reasons = dict[int, str]
"""Reason of each record that changes no row, by the record's index in its batch."""


def named_column(schema: pa.Schema, name: str) -> str | None:
    """Return the name of a column as `schema` writes it, because Delta ignores case; None: there is no such column."""
    return next((field.name for field in schema if field.name.lower() == name.lower()), None)


def check_key_columns(schema: pa.Schema, keys: Sequence[str], order_by: str | None) -> None:
    """Check that a table with the columns `schema` can be merged by the columns `keys` and ordered by `order_by`.

    Raises:
        ConfigurationError: a column does not exist, or has a type whose values cannot be compared for certain.
    """
    for option, names in (("ingest.keys", keys), ("ingest.orderBy", (order_by,) if order_by else ())):
        for name in names:
            column = named_column(schema, name)
            if column is None:
                raise ConfigurationError(
                    f"{option} has {name}, which is no column of the rows: they have {', '.join(schema.names)}"
                )
            kind = schema.field(column).type
            if not _is_comparable(kind):
                raise ConfigurationError(
                    f"{option} has {name}, which is {kind}: take columns of whole numbers, decimals, texts, bytes, "
                    "dates, times or booleans"
                )


def _is_comparable(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_decimal(kind) or types.is_string(kind) or types.is_binary(kind)
        or types.is_date(kind) or types.is_timestamp(kind) or types.is_boolean(kind)
    )  # fmt: skip


class ChangeRecords:
    """Reader of the changes in records of one table with the key columns `keys`, ordered by `order_by` if it is set.

    `placeholder` stands for values that the database does not send; '': for none.
    """

    def __init__(self, keys: Sequence[str], order_by: str | None, *, envelope: Envelope, placeholder: str = "") -> None:
        self._keys, self._order_by, self._envelope = keys, order_by, envelope
        self._unavailable = UnavailableValues(placeholder, [*keys, order_by or ""]) if placeholder else None

    def apply(
        self, records: pa.RecordBatch, rows: pa.RecordBatch, key: pa.Array, value: pa.Array
    ) -> tuple[pa.RecordBatch, Reasons]:
        """Return the rows with their keys and hidden columns, and the reasons of rows that change nothing.

        The hidden columns are `DELETED` and, if there is a placeholder, `UNAVAILABLE`.

        Args:
            records: the records as Kafka has them.
            rows: a row for each record.
            key: the decoded keys of the records; a key column that is null in a row gets its value from them.
            value: the decoded values of the records.
        """
        reasons: Reasons = {}
        deleted = records.column("value").is_null()
        if self._envelope is Envelope.FLATTENED:
            mark = pc.struct_field(value, [DELETED_FIELD]).cast(pa.string())
            deleted = self._with_deletes(deleted, pc.equal(mark, "true"), value, reasons)
        if self._envelope is Envelope.DEBEZIUM:
            op = pc.struct_field(value, [OP])
            for at in pc.indices_nonzero(pc.and_not(op.is_null(), deleted)).to_pylist():
                reasons[at] = NO_ENVELOPE
            foreign = pc.invert(pc.is_in(op, pa.array([*_UPSERTS, _DELETE], op.type), skip_nulls=True))
            for at in pc.indices_nonzero(pc.and_(foreign, op.is_valid())).to_pylist():
                reasons[at] = f"its op is {op[at].as_py()}: only c, u, r and d change a row"
            deleted = self._with_deletes(deleted, pc.equal(op, _DELETE), value, reasons)
        for name in self._keys:
            rows = self._with_key(rows, name, key)
            _note(reasons, rows, name, deleted, f"its key column {name} is null", "the record's key has no such field")
        if self._order_by is not None:
            late = f"{self._order_by}, by which rows are ordered, is null"
            _note(reasons, rows, self._order_by, deleted, late, _OF_DELETE)
        rows = rows.append_column(hidden(DELETED, pa.bool_()), deleted)
        if self._unavailable is not None:
            rows = rows.append_column(hidden(UNAVAILABLE, NAMES), self._unavailable.of(rows))
        return rows, reasons

    def _with_deletes(
        self, deleted: pa.BooleanArray, is_delete: pa.BooleanArray, value: pa.StructArray, reasons: Reasons
    ) -> pa.BooleanArray:
        """Return `deleted` or `is_delete`, and add to `reasons` deletes that have no value of the ordering column."""
        is_delete = pc.fill_null(is_delete, False)
        for at in pc.indices_nonzero(pc.and_(is_delete, self._is_order_unknown(value))).to_pylist():
            reasons.setdefault(at, f"it is a delete that lacks the row's {self._order_by}: {_OF_DELETE}")
        return pc.or_(deleted, is_delete)

    def _is_order_unknown(self, value: pa.StructArray) -> pa.BooleanArray:
        """Return for each image of a deleted row whether Debezium may have made up its value of the ordering column.

        PostgreSQL logs only the key of a deleted row, unless the table has REPLICA IDENTITY FULL. Debezium then fills
        columns that are NOT NULL with 0 or '', and the others with null. An image with any other value counts as
        complete. That is wrong for columns with a DEFAULT, which Debezium fills with the default.
        """
        # Debezium adds only fields that begin with two underscores.
        image = [field.name for field in value.type if not field.name.startswith("__") and field.name not in self._keys]
        if self._order_by not in image:
            return pa.repeat(pa.scalar(False), len(value))
        return reduce(pc.and_, (_is_blank(pc.struct_field(value, [name])) for name in image))

    @staticmethod
    def _with_key(rows: pa.RecordBatch, name: str, key: pa.Array) -> pa.RecordBatch:
        """Return the rows with the column `name` filled from the field of this name in the decoded keys."""
        at = rows.schema.get_field_index(name)
        column = rows.column(at)
        if not column.null_count:
            return rows
        if pa.types.is_struct(key.type) and named_column(pa.schema(list(key.type)), name) is None:
            payload = key.type.get_field_index(_PAYLOAD)
            key = pc.struct_field(key, [_PAYLOAD]) if payload >= 0 else key
        if not pa.types.is_struct(key.type):
            return rows
        own = named_column(pa.schema(list(key.type)), name)
        if own is None:
            return rows
        from_key, _ = conform(pc.struct_field(key, [own]), column.type)
        return rows.set_column(at, rows.schema.field(at), pc.if_else(column.is_valid(), column, from_key))


def _note(reasons: Reasons, rows: pa.RecordBatch, name: str, deleted: pa.Array, reason: str, of_delete: str) -> None:
    column = rows.column(rows.schema.get_field_index(name))
    if column.null_count:
        for at in pc.indices_nonzero(column.is_null()).to_pylist():
            text = f"it is a delete, and {reason}: {of_delete}" if deleted[at].as_py() else reason
            reasons.setdefault(at, text)


def _is_blank(column: pa.Array) -> pa.BooleanArray:
    """Return for each value whether Debezium may have filled it in: whether it is null, 0, '', false or the epoch."""
    types, kind = pa.types, column.type
    if types.is_string(kind):
        blank = pc.match_substring_regex(column, _BLANK_TEXTS)
    elif types.is_decimal(kind):
        blank = pc.equal(column, pa.scalar(Decimal(0), kind))
    elif types.is_binary(kind):
        blank = pc.equal(column, pa.scalar(b"", kind))
    elif types.is_nested(kind) or types.is_null(kind):
        return pa.repeat(pa.scalar(True), len(column))
    else:
        day_or_time = (pa.int32() if types.is_date(kind) else pa.int64()) if types.is_temporal(kind) else pa.int8()
        blank = pc.equal(column, pa.scalar(0, day_or_time).cast(kind))
    return pc.or_(column.is_null(), pc.fill_null(blank, False))


def is_deleted(rows: pa.RecordBatch) -> pa.BooleanArray:
    """Return the hidden column `DELETED` of rows from `ChangeRecords.apply`."""
    return rows.column(find_column(rows.schema, DELETED))

"""Changes of database rows in records: Debezium's envelope, deletes, keys, and placeholders for values not sent.

Layout of an envelope (Debezium: `io.debezium.data.Envelope`): `before`, `after`, `source`, `op` (c, u, d, r, t, m),
`ts_ms`. With the JSON converter's `schemas.enable` these fields are within the field `payload`. Each envelope becomes
the row after the change, with up to 3 added columns for `op`, `source` and `ts_ms`. Their names are as in Debezium's
`ExtractNewRecordState`.

A table of the latest state (`ingest.mode=upsert`) has one row for each key. A record with a null value (a tombstone)
deletes the row of its key. So does Debezium's event with the op `d`, or with `__deleted` if events are flattened. All
other records insert or update a row.

PostgreSQL logs no value of a large column (TOAST) that an update leaves as it is, and Oracle no LOB. Debezium then
writes a placeholder (`unavailable.value.placeholder`) in the form of the column's type (Debezium:
`UnchangedToastedPlaceholder`):

| Column | Placeholder |
|---|---|
| text, JSON, XML | the text; for `hstore` as JSON an object with the text as its only key and as its value |
| bytes | the text's UTF-8, or the text of `binary.handling.mode`: base64 or hexadecimal |
| map (`hstore`) | one entry with the text as key and as value |
| list of texts or bytes | one item like a column of this type; for `uuid[]` the UUID of version 3 of the bytes |
| list of whole numbers, floats or days | one item for each byte |
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from functools import reduce
from hashlib import md5
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.conform import conform
from tiered_stream.formats.rows.kafka_columns import find_column, hidden
from tiered_stream.formats.rows.row_choices import Envelope, placeholder_bytes

OP = "__op"
"""Name of the added column for Debezium's `op`."""
ADDED = (("op", OP), ("source", "__source"), ("ts_ms", "__ts_ms"))
DELETED_FIELD = "__deleted"
"""Field of flattened rows that is `true` in the row of a delete (Debezium: `delete.handling.mode=rewrite`)."""
NO_ENVELOPE = "it is not Debezium's envelope: it has no op"


def unwrapped_type(kind: pa.DataType) -> pa.StructType:
    """Return the Arrow type of the rows that `unwrapped` returns for Debezium envelopes of the type `kind`.

    The type has the fields of `after`, and then the added columns (`ADDED`) whose fields the envelope has.

    Raises:
        ConfigurationError: `kind` is not an envelope, `op` is not a text, or `after` has a field with the name of an
            added column.
    """
    inner = kind.field("payload").type if _has(kind, "payload") else kind
    if not (_has(inner, "after") and _has(inner, "op") and pa.types.is_struct(inner.field("after").type)):
        raise ConfigurationError(
            "the value's schema is not Debezium's, because it has no struct after and no op: give it the schema of the "
            "whole envelope, such as before STRUCT<id: BIGINT>, after STRUCT<id: BIGINT>, op STRING, ts_ms BIGINT. If "
            "values have a payload, put it into payload STRUCT<…>"
        )
    if not pa.types.is_string(inner.field("op").type):
        raise ConfigurationError(f"op is {inner.field('op').type} in the value's schema: Debezium writes STRING")
    row = list(inner.field("after").type)
    names = {column.name.lower() for column in row}
    added = [pa.field(own, inner.field(name).type) for name, own in ADDED if _has(inner, name)]
    clash = [column.name for column in added if column.name in names]
    if clash:
        raise ConfigurationError(f"the table in Debezium's envelope has a column {clash[0]}, which the envelope needs")
    return pa.struct([*row, *added])


def check_flattened(kind: pa.DataType) -> None:
    """Raise ConfigurationError if rows of the type `kind` lack the field `__deleted`, which marks deletes."""
    if not _has(kind, DELETED_FIELD):
        raise ConfigurationError(
            f"the value's schema has no field {DELETED_FIELD}: set the connector's delete.handling.mode (or "
            "delete.tombstone.handling.mode) to rewrite, or remove the setting"
        )


def unwrapped(column: pa.StructArray) -> tuple[pa.StructArray, dict[int, str]]:
    """Return the rows in a column of Debezium envelopes, and by index the reason of each value that is not an envelope.

    A row has the values of `after` or, if `after` is null as in a delete, the values of `before`, and then the added
    columns (`ADDED`). A row is null if its value is null or has no `op`. Only a value without `op` has a reason.
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


UNAVAILABLE = "unavailable"
"""Name of a hidden column that lists, in lower case, the columns in which a row has Debezium's placeholder."""
NAMES = pa.list_(pa.string())
"""Arrow type of the column `UNAVAILABLE`. The column is null for a row without a placeholder."""
_Flags = npt.NDArray[np.bool_]


class UnavailableValues:
    """Search for values that are Debezium's placeholder, in all columns of rows except the columns `others`.

    `placeholder` is the value of the connector's setting `unavailable.value.placeholder`.
    """

    def __init__(self, placeholder: str, others: Collection[str]) -> None:
        self._bytes = placeholder_bytes(placeholder)
        self._others = {name.lower() for name in others}
        text = self._bytes.decode(errors="replace")
        forms = [text, *(code(self._bytes).decode() for code in (b64encode, urlsafe_b64encode)), self._bytes.hex()]
        forms += [orjson.dumps({text: text}).decode()]
        # Java: UUID.nameUUIDFromBytes
        forms += [str(UUID(bytes=md5(self._bytes, usedforsecurity=False).digest(), version=3))]
        self._texts = pa.array(forms)
        self._sizes = {len(form.encode()) for form in forms}

    def of(self, rows: pa.RecordBatch) -> pa.ListArray:
        """Return, for each row, the names in lower case of its columns with a placeholder; null if there are none."""
        found = {
            field.name.lower(): flags
            for field, column in zip(rows.schema, rows.columns, strict=True)
            if field.name.lower() not in self._others and (flags := self._found(column)).any()
        }
        if not found:
            return pa.nulls(rows.num_rows, NAMES)
        names, flags = list(found), np.stack(list(found.values()), axis=1)
        ends = np.concatenate([[0], np.cumsum(flags.sum(axis=1))])
        items = pa.array(names).take(pa.array(np.nonzero(flags)[1]))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=pa.array(~flags.any(axis=1)))

    def _found(self, column: pa.Array) -> _Flags:
        types, kind = pa.types, column.type
        if types.is_string(kind):
            return _where(column, self._sizes, lambda texts: _flags(pc.is_in(texts, self._texts)))
        if types.is_binary(kind):
            wanted = pa.scalar(self._bytes, kind)
            return _where(column, [len(self._bytes)], lambda values: _flags(pc.equal(values, wanted)))
        if types.is_map(kind):
            return _where(column, [1], lambda maps: self._found(maps.keys) & self._found(maps.items))
        if types.is_list(kind):
            return _where(column, [len(self._bytes) if _is_number(kind.value_type) else 1], self._are_items)
        return np.zeros(len(column), bool)

    def _are_items(self, column: pa.ListArray) -> _Flags:
        items = column.flatten()
        if not _is_number(items.type):
            return self._found(items)
        numbers = (items.cast(pa.int32()) if pa.types.is_date(items.type) else items).to_numpy(zero_copy_only=False)
        equal: _Flags = (numbers.reshape(len(column), -1) == np.frombuffer(self._bytes, np.int8)).all(axis=1)
        return equal


def unavailable_names(rows: pa.RecordBatch) -> pa.ListArray:
    """Return the hidden column `UNAVAILABLE` of rows from `ChangeRecords.apply`, or nulls if `rows` lack the column."""
    at = find_column(rows.schema, UNAVAILABLE)
    return pa.nulls(rows.num_rows, NAMES) if at < 0 else rows.column(at)


def unavailable_flags(names: pa.ListArray | pa.ChunkedArray) -> dict[str, _Flags]:
    """Return, by column name, a boolean for each row: True if the row has a placeholder in this column.

    `names` is the hidden column `UNAVAILABLE` of the rows. The result has only columns with at least one placeholder.
    """
    if names.null_count == len(names):
        return {}
    rows, items = pc.list_parent_indices(names).to_numpy(), pc.list_flatten(names).to_numpy(zero_copy_only=False)
    found = {name: np.zeros(len(names), bool) for name in sorted(set(items))}
    for name, flags in found.items():
        flags[rows[items == name]] = True
    return found


def _where(column: pa.Array, sizes: Collection[int], test: Callable[[pa.Array], _Flags]) -> _Flags:
    """Return a boolean for each value: True if the value is not null, has one of the `sizes`, and passes `test`.

    A size is the number of bytes of a text or binary value, or the number of items of a list or map.
    """
    found = np.zeros(len(column), bool)
    if len(column):
        ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
        found = np.isin(np.diff(ends), list(sizes))
    if found.any():
        found &= _flags(column.is_valid())
        found[found] = test(column.filter(pa.array(found)))
    return found


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_date32(kind))


def _flags(column: pa.Array) -> _Flags:
    flags: _Flags = column.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


DELETED = "deleted"
"""Name of the hidden column that is true in rows that delete the row of their key."""
_PAYLOAD = "payload"
_UPSERTS, _DELETE = ("c", "u", "r"), "d"
_BLANK_TEXTS = r"^(|0(\.0+)?|\{\}|(1970-01-01T)?00:00:00(\.0+)?(Z|\+00:00)?)$"
"""Pattern of the texts that Debezium writes for a value that it does not know, in columns of texts, decimals, JSON and
times.
"""
_OF_DELETE = "order rows by timestamp, which every record has"
Reasons = dict[int, str]
"""Reason of each record that changes no row, by the record's index in its batch."""


def named_column(fields: Iterable[pa.Field], name: str) -> str | None:
    """Return the name of the field in `fields` that equals `name` without regard to case, or None if there is none."""
    return next((field.name for field in fields if field.name.lower() == name.lower()), None)


def check_key_columns(schema: pa.Schema, keys: Sequence[str], order_by: str | None) -> None:
    """Check that rows with the columns `schema` can be merged by the key columns `keys`, and ordered by `order_by`.

    Raises:
        ConfigurationError: one of these columns does not exist, or has a type that cannot be a key, such as a float or
            a struct.
    """
    for role, names in (("the key column", keys), ("the ordering column", (order_by,) if order_by else ())):
        for name in names:
            column = named_column(schema, name)
            if column is None:
                raise ConfigurationError(f"{role} {name} is no column of the rows: they have {', '.join(schema.names)}")
            kind = schema.field(column).type
            if not _is_comparable(kind):
                raise ConfigurationError(
                    f"{role} {name} is {kind}: take columns of whole numbers, decimals, texts, bytes, "
                    "dates, times or booleans"
                )


def _is_comparable(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_decimal(kind) or types.is_string(kind) or types.is_binary(kind)
        or types.is_date(kind) or types.is_timestamp(kind) or types.is_boolean(kind)
    )  # fmt: skip


class ChangeRecords:
    """Conversion of change records to rows of a table of the latest state, which has one row for each key.

    `keys` are the table's key columns. `order_by` is the column whose largest value is the latest, or None. `envelope`
    is the form of the values. `placeholder` is the text that stands for values that the database does not send; ''
    means that there is no such text.
    """

    def __init__(self, keys: Sequence[str], order_by: str | None, *, envelope: Envelope, placeholder: str = "") -> None:
        self._keys, self._order_by, self._envelope = keys, order_by, envelope
        self._unavailable = UnavailableValues(placeholder, [*keys, order_by or ""]) if placeholder else None

    def apply(
        self, records: pa.RecordBatch, rows: pa.RecordBatch, key: pa.Array, value: pa.Array
    ) -> tuple[pa.RecordBatch, Reasons]:
        """Return `rows` with their keys and hidden columns and, by index, the reason of each record that has no effect.

        The hidden columns are `DELETED` and, if there is a placeholder, `UNAVAILABLE`. A record has no effect if, for
        example, a key column is null.

        Args:
            records: the records with Kafka's columns.
            rows: one row for each record.
            key: the records' decoded keys. A key column that is null in a row gets its value from the record's key.
            value: the records' decoded values.
        """
        reasons: Reasons = {}
        deleted = records.column("value").is_null()
        if self._envelope is Envelope.FLATTENED:
            mark = pc.struct_field(value, [DELETED_FIELD]).cast(pa.string())
            deleted = self._with_deletes(deleted, pc.equal(mark, "true"), value, reasons)
        if self._envelope is Envelope.DEBEZIUM:
            op = pc.struct_field(value, [OP])
            reasons = dict.fromkeys(pc.indices_nonzero(pc.and_not(op.is_null(), deleted)).to_pylist(), NO_ENVELOPE)
            foreign = pc.invert(pc.is_in(op, pa.array([*_UPSERTS, _DELETE], op.type), skip_nulls=True))
            for at in pc.indices_nonzero(pc.and_(foreign, op.is_valid())).to_pylist():
                reasons[at] = f"its op is {op[at].as_py()!r:.40}: only c, u, r and d change a row"
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
        """Return a boolean for each record: True if the record deletes the row of its key.

        Args:
            deleted: True for each record whose value is null, which is a delete.
            is_delete: True for each record whose change event is a delete.
            value: the row in each change event. If the row of a delete lacks the ordering column, the record gets a
                reason.
            reasons: gets the reasons, by the record's index.
        """
        is_delete = pc.fill_null(is_delete, False)
        for at in pc.indices_nonzero(pc.and_(is_delete, self._is_order_unknown(value))).to_pylist():
            reasons.setdefault(at, f"it is a delete that lacks the row's {self._order_by}: {_OF_DELETE}")
        return pc.or_(deleted, is_delete)

    def _is_order_unknown(self, value: pa.StructArray) -> pa.BooleanArray:
        """Return a boolean for each deleted row: True if Debezium may have made up the ordering column's value.

        PostgreSQL logs only the key of a deleted row, unless the table has REPLICA IDENTITY FULL. Debezium then fills
        columns that are NOT NULL with 0 or '', and other columns with null. A row with any other value counts as
        complete. This is wrong for columns with a DEFAULT, which Debezium fills with the default.
        """
        # Debezium adds only fields that begin with two underscores.
        image = [field.name for field in value.type if not field.name.startswith("__") and field.name not in self._keys]
        if self._order_by not in image:
            return pa.repeat(pa.scalar(False), len(value))
        return reduce(pc.and_, (_is_blank(pc.struct_field(value, [name])) for name in image))

    @staticmethod
    def _with_key(rows: pa.RecordBatch, name: str, key: pa.Array) -> pa.RecordBatch:
        """Return the rows with nulls in the column `name` replaced by the field of this name in the decoded keys."""
        at = rows.schema.get_field_index(name)
        column = rows.column(at)
        if not column.null_count:
            return rows
        if _has(key.type, _PAYLOAD) and named_column(key.type, name) is None:
            key = pc.struct_field(key, [_PAYLOAD])
        own = named_column(key.type, name) if pa.types.is_struct(key.type) else None
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
    """Return a boolean for each value: True for a value that Debezium may have made up, such as null, 0 or ''."""
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
    """Return the hidden column `DELETED` of rows from `ChangeRecords.apply`: True if a row is a delete of its key."""
    return rows.column(find_column(rows.schema, DELETED))

"""Decoder of Kafka records to rows of a table and to dead letters. It runs in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import UndecodableRecordError
from tiered_stream.formats.columns.conform import conform, grown, mark_grown
from tiered_stream.formats.columns.decoded import REASON_SIZE, LargeBatchError
from tiered_stream.formats.json.json_inference import fitting_schema
from tiered_stream.formats.open_decoder import open_decoder
from tiered_stream.formats.rows.change_records import ChangeRecords, is_deleted, unavailable_names, unwrapped
from tiered_stream.formats.rows.kafka_columns import OFFSET, kafka_column
from tiered_stream.formats.rows.row_choices import Envelope, Evolution, Format, OnDecodeError
from tiered_stream.formats.rows.row_format import DEAD_LETTER_SCHEMA, KEY, VALUE, PartFormat, RowFormat, Source
from tiered_stream.formats.rows.row_steps import RowQuery, UserTransform, with_times
from tiered_stream.formats.rows.table_rules import RowRules

HEADERS = "headers"
ROW = "row"
"""Value of a dead letter's column `failed` if the key and the value decode, but the table cannot take the row.

The row breaks a table rule. Or the table has one row for each key, and the record is not a valid change of a row.
"""
_Failures = dict[int, tuple[str, str]]
"""Failed part (`key`, `value` or `row`) and reason of each record that failed, by the record's index in its batch."""


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows and dead letters of a batch of Kafka records.

    Each record has a row or a dead letter, unless `ingest.where` or the user's function (`ingest.transform`) dropped
    its row.
    """

    rows: pa.RecordBatch
    """Rows with the table's columns, followed by hidden columns that are not written (see `rows/kafka_columns.py`)."""
    dead: pa.RecordBatch | None
    """Dead letters, with the columns of `DEAD_LETTER_SCHEMA`; None if there are none."""
    filtered: int = 0
    """Number of records that decode, but whose rows do not meet the condition `ingest.where`."""


class RowDecoder:
    """Decoder of Kafka records to rows of the table that `row_format` describes. Only one thread may use a decoder.

    Raises:
        ConfigurationError: a schema or the settings of a registry are invalid, or the user's function cannot be
            imported.
        UncertainCheckError: a table rule cannot be checked.
    """

    def __init__(self, row_format: RowFormat) -> None:
        self._row_format = row_format
        self._decoders = {name: open_decoder(row_format, name) for name in (KEY, VALUE)}
        self._rules = RowRules(row_format.rules, row_format.written)
        query = row_format.query
        self._query = RowQuery(query, row_format.decoded, row_format.zone) if query else None
        self._transform = UserTransform(row_format.transform) if row_format.transform else None
        self._changes = (
            ChangeRecords(
                row_format.keys, row_format.order_by or None, envelope=row_format.envelope,
                placeholder=row_format.placeholder,
            )
            if row_format.keys
            else None
        )  # fmt: skip

    def decode_parts(self, records: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, DecodedRows]]:
        """Decode `records` in parts whose rows stay within the memory limit; yield each part's records and its result.

        Usually, one part has all records. Errors are the same as in `decode`, but LargeBatchError is never raised.
        """
        start, size, failed = 0, records.num_rows, range(0)
        while True:
            part, decoded = records.slice(start, size), None
            try:
                decoded = self.decode(part)
            except LargeBatchError as error:  # its traceback keeps columns in memory, so the rest is decoded after it
                failed = range(start, start + part.num_rows)
                size = max(1, min(error.fitting, len(failed) // 2))
            if decoded is None:
                continue
            yield part, decoded
            start += part.num_rows
            if start >= records.num_rows:
                return
            if start >= failed.stop or 2 * size < len(failed):  # later records may need less
                size *= 2

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        """Return the rows and the dead letters of `records`, which are from one partition and in offset order.

        `records` must have the column `headers` if headers may name schemas (`PartFormat.reads_headers`). Without this
        column, dead letters have null headers.

        Raises:
            UndecodableRecordError: a record fails, and `ingest.onDecodeError` is `fail`; or a row breaks a table rule,
                and `ingest.onDecodeError` is not `deadLetter`.
            TableError: the user's function failed, or returned other columns than for a batch without rows.
            SchemaRegistryError: a schema registry cannot be reached, or refuses a request.
            UnsupportedDataError: with `ingest.schemaEvolution=widen`, no type holds all numbers of a field.
            LargeBatchError: there are several records, and their keys or values need too much memory.
        """
        failures: _Failures = {}
        key = self._part(self._row_format.key, KEY, records, failures)
        value = self._part(self._row_format.value, VALUE, records, failures)
        rows = self._assembled(records, key, value)
        if self._changes is not None:
            rows, reasons = self._changes.apply(records, rows, key, value)
            for slot, reason in reasons.items():
                failures.setdefault(slot, (ROW, reason))
        if failures and self._row_format.on_error is OnDecodeError.FAIL:
            raise self._error(records, failures)
        if self._row_format.on_error is OnDecodeError.NULL:
            failures = {}
        if failures:
            alive = np.ones(rows.num_rows, bool)
            alive[list(failures)] = False
            rows = rows.filter(pa.array(alive))
        found = rows.num_rows
        if self._query is not None:
            rows = self._query.apply(rows)
        filtered = found - rows.num_rows
        rows = self._landed(records, rows, failures)
        return DecodedRows(rows, _dead_letters(records, failures) if failures else None, filtered)

    def _part(self, part: PartFormat, name: str, records: pa.RecordBatch, failures: _Failures) -> pa.Array:
        """Return the decoded keys (`name` is `key`) or values of `records`, with the table's type `part.kind`.

        In binary format, the column is returned unchanged. A record that does not decode becomes null, and is added to
        `failures`, unless `failures` has the record already. With `ingest.schemaEvolution`, the type of values also has
        new fields that the table lacks. If this setting is `widen`, numbers may have wider types than in the table.
        """
        decoder = self._decoders[name]
        values = records.column(name)
        if decoder is None:
            return values
        decoded = decoder.decode(values, records.column(HEADERS) if part.reads_headers else None)
        column, reasons = decoded.column, dict(decoded.reasons)
        if name == VALUE and self._row_format.envelope is Envelope.DEBEZIUM:
            column, foreign = unwrapped(column)
            reasons |= foreign
        if name == VALUE and self._row_format.times:
            column, beyond = with_times(column, self._row_format.times)
            reasons |= beyond
        kind, evolution = part.kind, self._row_format.evolution
        if name == VALUE and evolution is not Evolution.NONE:
            kind = grown(kind, column.type, widen=evolution is Evolution.WIDEN)
        conformed, misfit = conform(column, kind)
        if misfit is not None and misfit.true_count:
            reason = f"its schema has {column.type}, which the table's {part.kind} does not take"[:REASON_SIZE]
            reasons = dict.fromkeys(pc.indices_nonzero(misfit).to_pylist(), reason) | reasons
            conformed = pc.if_else(misfit, pa.scalar(None, conformed.type), conformed)
        for slot, reason in reasons.items():
            failures.setdefault(slot, (name, reason))
        return conformed

    def _assembled(self, records: pa.RecordBatch, key: pa.Array, value: pa.Array) -> pa.RecordBatch:
        kind = None if self._decoders[VALUE] is None else value.type

        def column(source: Source) -> pa.Array:
            if source.kafka:
                return records.column(source.kafka)
            whole = key if source.part == KEY else value
            return whole if source.field is None else pc.struct_field(whole, [source.field])

        layout = list(self._row_format.layout(kind))
        arrays = [column(source) for _, source in layout]
        schema = pa.schema([field for field, _ in layout])
        if kind != self._row_format.value.kind:
            schema = mark_grown(schema)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _landed(self, records: pa.RecordBatch, rows: pa.RecordBatch, failures: _Failures) -> pa.RecordBatch:
        """Apply the user's function, if any, to `rows`; return the result without rows that break a table rule.

        A record with a row that breaks a rule is added to `failures`, and all rows of the record are removed. If the
        function changes the number of rows, it is called again for fewer rows, until the failed record is known.

        Raises:
            UndecodableRecordError: a row breaks a rule, and `ingest.onDecodeError` is not `deadLetter`.
        """
        landed = rows if self._transform is None else self._transform.apply(rows, self._row_format.written)
        if not self._row_format.rules:
            return landed
        landed, broken = self._rules.apply(landed, None if self._changes is None else unavailable_names(landed))
        if broken and self._changes is not None:  # a delete has no row that could break a rule
            deleted = is_deleted(landed)
            broken = {row: reason for row, reason in broken.items() if not deleted[row].as_py()}
        if not broken:
            return landed
        if landed.num_rows != rows.num_rows > 1:
            half = rows.num_rows // 2
            parts = [self._landed(records, part, failures) for part in (rows.slice(0, half), rows.slice(half))]
            return pa.concat_batches([part for part in parts if part.num_rows] or parts[:1])
        offsets = kafka_column(landed, OFFSET).to_numpy()
        of_records = records.column(OFFSET).to_numpy()
        for row, reason in broken.items():
            failures.setdefault(int(np.searchsorted(of_records, offsets[row])), (ROW, reason))
        if self._row_format.on_error is not OnDecodeError.DEAD_LETTER:
            raise self._error(records, failures)
        return landed.filter(pa.array(~np.isin(offsets, offsets[list(broken)])))

    def _error(self, records: pa.RecordBatch, failures: _Failures) -> UndecodableRecordError:
        slot = min(failures)
        topic, partition, offset = (records.column(name)[slot].as_py() for name in ("topic", "partition", "offset"))
        part, reason = failures[slot]
        error = UndecodableRecordError(f"the {part} of topic {topic}, partition {partition}, offset {offset}: {reason}")
        error.fits = tuple(self._fitting(records, slot, part))
        return error

    def _fitting(self, records: pa.RecordBatch, slot: int, failed: str) -> Iterator[tuple[str, str, str]]:
        """Yield settings with which the failed key or value of a record would decode, if it is JSON.

        A result is (name, format, schema). `name` is `key` or `value`. `format` is `json`, or '' if the table has this
        format already. `schema` is the type of the JSON as SQL text.

        Args:
            slot: the record's index in `records`.
            failed: the part of the record that failed: `key`, `value` or `row`.
        """
        given = self._row_format
        names = (VALUE, KEY) if failed == ROW and given.keys else (failed,)
        parts = {name: part for name, part in ((VALUE, given.value), (KEY, given.key)) if name in names}
        for name, part in parts.items():
            is_debezium = name == VALUE and given.envelope is Envelope.DEBEZIUM
            schema = fitting_schema(records.column(name)[slot].as_py(), is_debezium=is_debezium)
            if schema and part.format in (Format.JSON, Format.BINARY) and not part.registered:
                yield name, "" if part.format is Format.JSON else str(Format.JSON), schema


def _dead_letters(records: pa.RecordBatch, failures: _Failures) -> pa.RecordBatch:
    slots = sorted(failures)
    dead_records = records.take(pa.array(slots, pa.int64()))
    names = [name for name in DEAD_LETTER_SCHEMA.names if name in records.schema.names]
    columns = {name: dead_records.column(name) for name in names}
    columns["failed"] = pa.array([failures[slot][0] for slot in slots], pa.string())
    columns["reason"] = pa.array([failures[slot][1] for slot in slots], pa.string())
    arrays = [columns.get(field.name, pa.nulls(len(slots), field.type)) for field in DEAD_LETTER_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=DEAD_LETTER_SCHEMA)

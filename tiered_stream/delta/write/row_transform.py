"""Conversion of a topic's records to rows of its table and to dead letters, in the task that reads the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tiered_stream.delta.schema.routing import Routing
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.table_rules import TableRules
from tiered_stream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows for the table `target`: at least one row, in offset order, with the table's columns except the day column.

    `dead_letters_for` is None, unless the rows are dead letters. Then `target` is a table for dead letters, and
    `dead_letters_for` is the key of the table that the records were meant for.
    """

    target: TableSpec
    rows: pa.RecordBatch
    dead_letters_for: str | None = None


@dataclass(eq=False)
class TableRows:
    """Converter of records to rows of the topic's table; a record that does not become a row becomes a dead letter.

    Each task has its own converter, used by one thread.

    Args:
        routing: routes from topics to tables.
        rules: table rules by table key, which replace the rules in `routing`.
        query: query id under which the rows are committed (application transaction), a label of dead letters; None:
            unknown.
        batch: batch id of the same application transaction, a label of dead letters; None: unknown.
    """

    routing: Routing
    rules: Mapping[str, TableRules] = field(default_factory=dict)
    query: str | None = None
    batch: int | None = None
    filtered: int = field(default=0, init=False)
    """Number of records so far that `ingest.where` left out."""
    _decoders: dict[str, RowDecoder | None] = field(default_factory=dict, init=False)

    def apply(self, partition: TopicPartition, batch: pa.RecordBatch) -> Sequence[TargetRows]:
        """Convert records of one partition to rows of the topic's table, and to rows of the table for dead letters.

        `batch` comes from the record decoder: at least one record, in offset order.

        Returns:
            At most two items: the rows for the topic's table, and the dead letters. An item without rows is left out.

        Raises:
            TableError: the topic has no table, or the user's transform failed.
            UndecodableRecordError: a record does not decode and `ingest.onDecodeError` is `fail`, or its row breaks a
                table rule and `ingest.onDecodeError` is not `deadLetter`.
        """
        target = self.routing.target(partition.topic)
        decoder = self._decoder(partition.topic, target)
        if decoder is None:
            names = [name for name in batch.schema.names if name in target.schema.names]
            return [TargetRows(target, batch if len(names) == batch.num_columns else batch.select(names))]
        decoded = decoder.decode(batch)
        self.filtered += decoded.filtered
        rows = [TargetRows(target, decoded.rows)] if decoded.rows.num_rows else []
        if decoded.dead is None:
            return rows
        dead_letters = self.routing.dead_letters(target)
        assert dead_letters, "row_settings sees to that"
        return [*rows, TargetRows(dead_letters, self._labelled(decoded.dead, target), target.key)]

    def _labelled(self, dead: pa.RecordBatch, spec: TableSpec) -> pa.RecordBatch:
        """Return the dead letters with the key of the table `target`, the query and the batch in their columns."""
        for name, value in {"target": spec.key, "query": self.query, "batch": self.batch}.items():
            of_column = dead.schema.field(name)
            column = pa.repeat(pa.scalar(value, of_column.type), dead.num_rows)
            dead = dead.set_column(dead.schema.get_field_index(name), of_column, column)
        return dead

    def _decoder(self, topic: str, spec: TableSpec) -> RowDecoder | None:
        if topic not in self._decoders:
            assert spec.row_format
            rows = replace(spec.row_format, rules=self.rules.get(spec.key, spec.row_format.rules))
            self._decoders[topic] = None if rows.is_plain else RowDecoder(rows)
        return self._decoders[topic]

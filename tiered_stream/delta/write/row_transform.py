"""Conversion of a topic's records to table rows and dead letters, in the task that reads the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pyarrow as pa

from tiered_stream.delta.schema.routing import Routing, TableTarget
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.table_rules import TableRules
from tiered_stream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows for one table: at least one row, in offset order, with the table's columns except the day column.

    `dead_letters_for` is set if the rows are dead letters: the key of the table that their records were meant for.
    """

    target: TableTarget
    rows: pa.RecordBatch
    dead_letters_for: str | None = None


class TableRows:
    """Converter of each topic's records to rows of its table, or to dead letters if they do not become rows.

    Each task has its own converter, used by one thread.
    """

    def __init__(
        self,
        routing: Routing,
        rules: Mapping[str, TableRules] = MappingProxyType({}),
        query: str | None = None,
        batch: int | None = None,
    ) -> None:
        """`rules` are rules of tables, by table key, that replace the rules in `routing`.

        `query` and `batch` are the application transaction under which the rows are committed; None: unknown.
        """
        self._routing = routing
        self._rules = rules
        self._labels = {"query": query, "batch": batch}
        self._decoders: dict[str, RowDecoder | None] = {}

    def apply(self, partition: TopicPartition, batch: pa.RecordBatch) -> Sequence[TargetRows]:
        """Convert records of one partition to rows for the topic's table, and to dead letters for another table.

        `batch` comes from the record decoder: at least one record, in offset order.

        Raises:
            TableError: the topic has no table.
            UndecodableRecordError: a record does not become a row, and the settings do not allow to leave it out.
        """
        target = self._routing.target(partition.topic)
        decoder = self._decoder(partition.topic, target)
        if decoder is None:
            names = [name for name in batch.schema.names if name in target.schema.names]
            return [TargetRows(target, batch if len(names) == batch.num_columns else batch.select(names))]
        decoded = decoder.decode(batch)
        rows = [TargetRows(target, decoded.rows)] if decoded.rows.num_rows else []
        if decoded.dead is None:
            return rows
        dead_letters = self._routing.dead_letters(target)
        assert dead_letters, "row_settings sees to that"
        return [*rows, TargetRows(dead_letters, self._labelled(decoded.dead, target), target.key)]

    def _labelled(self, dead: pa.RecordBatch, target: TableTarget) -> pa.RecordBatch:
        """Return the dead letters labelled with the table, the query and the batch that they belong to."""
        for name, value in {"target": target.key, **self._labels}.items():
            field = dead.schema.field(name)
            column = pa.repeat(pa.scalar(value, field.type), dead.num_rows)
            dead = dead.set_column(dead.schema.get_field_index(name), field, column)
        return dead

    def _decoder(self, topic: str, target: TableTarget) -> RowDecoder | None:
        if topic not in self._decoders:
            assert target.rows
            rows = replace(target.rows, rules=self._rules.get(target.key, target.rows.rules))
            self._decoders[topic] = None if rows.is_plain else RowDecoder(rows)
        return self._decoders[topic]

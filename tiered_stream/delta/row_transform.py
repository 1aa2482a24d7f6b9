"""What becomes of a topic's rows on their way into tables, in the task that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pyarrow as pa

from tiered_stream.delta.routing import Routing, TableTarget
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.table_rules import TableRules
from tiered_stream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Transaction:
    """Under which application transaction the rows of a task are committed: query id and batch id, if known."""

    query: str | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows for one table, at least one, in offset order, in its columns (but for that of the day).

    `dead_letters_for` is the key of the table whose dead letters they are, if they are dead letters.
    """

    target: TableTarget
    rows: pa.RecordBatch
    dead_letters_for: str | None = None


class TableRows:
    """Each topic's records as the rows of its table, and as dead letters those that are none.

    One for each task, used by one thread.
    """

    def __init__(
        self,
        routing: Routing,
        rules: Mapping[str, TableRules] = MappingProxyType({}),
        transaction: Transaction = Transaction(),
    ) -> None:
        """`rules` are those of tables, by key, which the routing does not know."""
        self._routing = routing
        self._rules = rules
        self._transaction = transaction
        self._decoders: dict[str, RowDecoder | None] = {}

    def apply(self, partition: TopicPartition, batch: pa.RecordBatch) -> Sequence[TargetRows]:
        """What goes where of rows of one partition, at least one, in offset order, as the decoder gives them.

        Raises:
            TableError: nobody knows where to.
            UndecodableRecordError: a record is no row, and it may not be left out.
        """
        target = self._routing.target(partition.topic)
        decoder = self._decoder(partition.topic, target)
        if decoder is None:
            names = [name for name in batch.schema.names if name in target.schema.names]
            return [TargetRows(target, batch if len(names) == batch.num_columns else batch.select(names))]
        found = decoder.decode(batch)
        rows = [TargetRows(target, found.rows)] if found.rows.num_rows else []
        if found.dead is None:
            return rows
        dead_letters = self._routing.dead_letters(target)
        assert dead_letters, "row_settings sees to that"
        return [*rows, TargetRows(dead_letters, self._labelled(found.dead, target), target.key)]

    def _labelled(self, dead: pa.RecordBatch, target: TableTarget) -> pa.RecordBatch:
        """The dead letters with the table and the batch that they belong to."""
        of_batch = self._transaction
        labels = {"target": target.key, "query": of_batch.query, "batch": of_batch.batch}
        for name, value in labels.items():
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

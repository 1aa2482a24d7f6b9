"""What becomes of a topic's rows on their way into tables, in the task that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from tiered_stream.delta.routing import Routing, TableTarget
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.table_rules import TableRules
from tiered_stream.model import TopicPartition

TargetRows = tuple[TableTarget, pa.RecordBatch]
"""Rows for one table, at least one, in offset order, in its columns (but for that of the day)."""


class TableRows:
    """Each topic's records as the rows of its table, and as dead letters those that are none.

    One for each task, used by one thread.
    """

    def __init__(self, routing: Routing, rules: Mapping[str, TableRules] = MappingProxyType({})) -> None:
        """`rules` are those of tables, by key, which the routing does not know."""
        self._routing = routing
        self._rules = rules
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
            return [(target, batch if len(names) == batch.num_columns else batch.select(names))]
        found = decoder.decode(batch)
        rows = [(target, found.rows)] if found.rows.num_rows else []
        if found.dead is None:
            return rows
        dead_letters = self._routing.dead_letters(target)
        assert dead_letters, "row_settings sees to that"
        return [*rows, (dead_letters, found.dead)]

    def _decoder(self, topic: str, target: TableTarget) -> RowDecoder | None:
        if topic not in self._decoders:
            assert target.rows
            rows = replace(target.rows, rules=self._rules.get(target.key, target.rows.rules))
            self._decoders[topic] = None if rows.is_plain else RowDecoder(rows)
        return self._decoders[topic]

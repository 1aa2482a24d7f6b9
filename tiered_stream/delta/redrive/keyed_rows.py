"""Rows of dead letters for a table of the latest state (`ingest.mode=upsert`), and the MERGE that applies them.

A dead letter may be older than the row of its key. So a row changes only if it is not newer than the letter's record.
The column `ingest.orderBy` decides, or Kafka's partition and offset, which the table must have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tiered_stream.delta.commit.key_order import mixed_sql, rank_sql
from tiered_stream.delta.commit.merge import merge_clauses, merge_sql
from tiered_stream.delta.schema.routing import Routing, TableTarget
from tiered_stream.delta.schema.sql_types import sql_name
from tiered_stream.delta.settings.ingest_settings import TOPIC
from tiered_stream.delta.settings.row_settings import KAFKA_COLUMNS
from tiered_stream.delta.settings.upsert_settings import MERGE_ON, ORDER_BY
from tiered_stream.delta.write.latest_rows import DELETES, STAGED
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.parsing import Subscription

SOURCE = "tiered_stream_redriven"
"""Name of the view with the rows that a MERGE reads."""
_MIXED, _RANK = "__staged_mixed", "__staged_rank"


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of one table of the latest state: its columns that rows have, its keys, and the order of a key's records.

    `order_by` is the column that orders records; None: offsets do. `kafka` has the names of the table's columns that
    hold Kafka's columns, by Kafka's name. `merge_on` is the value of `ingest.mergeOn`.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    order_by: str | None
    kafka: Mapping[str, str]
    merge_on: str | None

    @classmethod
    def of(cls, target: TableTarget, row_format: RowFormat) -> KeyedRows | None:
        """Return the rows of the table `target`; None: the table is not a table of the latest state."""
        if not row_format.keys:
            return None
        kafka = {name: own for name, own in row_format.kafka_columns if name in ("topic", "partition", "offset")}
        names, merge_on = tuple(row_format.written.names), GivenOptions(target.settings).read(MERGE_ON)
        return cls(names, row_format.keys, row_format.order_by or None, kafka, merge_on)

    def check_order(self, name: str, *, shared: bool) -> None:
        """Check that the table shows which of two records of a key is newer.

        Args:
            name: name of the table, for the error.
            shared: True if several topics share the table.

        Raises:
            ConfigurationError: no column orders the records, and the table lacks Kafka's position of a row's record.
        """
        missing = [each for each in ("topic", "partition", "offset") if each not in self.kafka]
        if not shared and "topic" in missing:
            missing.remove("topic")
        if self.order_by is None and missing:
            raise ConfigurationError(
                f"a dead letter may be older than the row of its key, and the table {name} does not show it: it has no "
                f"column for Kafka's {' and '.join(missing)} ({KAFKA_COLUMNS.name}), and no column orders the records "
                f"({ORDER_BY.name}). Replay the topic from the time of the oldest letter, without --to"
            )

    def last_rows(self, staged: DataFrame) -> DataFrame:
        """Return the last row of each key among `staged`, which has the table's columns and `latest_rows.STAGED`.

        Raises:
            TableError: a key is in several partitions, and no column orders its records.
        """
        ranked = staged.selectExpr(
            "*",
            f"{rank_sql(self.keys, self.order_by)} AS {_RANK}",
            f"{mixed_sql(self.keys)} AS {_MIXED}",
        )
        if self.order_by is None:
            mixed = ranked.where(f"{_MIXED} IS NOT NULL").select(_MIXED).first()
            if mixed is not None:
                raise TableError(
                    f"dead letters of one key are in the partitions {mixed[0]}, and Kafka gives them no order: set "
                    f"{ORDER_BY.name} to a column that does, such as timestamp"
                )
        return ranked.where(f"{_RANK} = 1").drop(_RANK, _MIXED, *(name for name in STAGED.names if name != DELETES))

    def merge_sql(self, table: str) -> str:
        """Return the MERGE of the view `SOURCE` into `table`, which is SQL text itself."""
        clauses = merge_clauses(self.columns, self.keys, self._is_newer(), self.merge_on)
        return merge_sql(table, SOURCE, clauses)

    def _is_newer(self) -> str:
        """Return SQL that is true if the row of the table is not newer than the record."""
        by = sql_name([self.kafka["offset"] if self.order_by is None else self.order_by])
        order = f"source.{by} >= target.{by}"
        if self.order_by is None:
            places = [sql_name([self.kafka[name]]) for name in ("topic", "partition") if name in self.kafka]
            order = " AND ".join([*(f"source.{place} = target.{place}" for place in places), order])
        return f"(target.{by} IS NULL OR ({order}))"


def is_shared(routing: Routing, subscription: Subscription, topic: str) -> bool:
    """Return whether records of another topic may go to the table of `topic`."""
    route = routing.route(topic)
    if TOPIC in route.table or route.pattern == re.escape(topic):
        return False
    named = {*subscription.topics, *(partition.topic for partition in subscription.assigned)}
    return subscription.pattern is not None or any(
        routing.route(other).uri_for(other) == route.uri_for(topic) for other in named - {topic}
    )

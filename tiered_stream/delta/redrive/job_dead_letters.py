"""Selection of one ingest job's dead letters from a table for dead letters, which several jobs may share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from tiered_stream.delta.redrive.redriven_table import NEWEST, RedrivenTable
from tiered_stream.delta.schema.routing import Routing
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import TableError
from tiered_stream.options.parsing import Subscription

log = logging.getLogger(__name__)

_OWN = "own_topic STRING, own_target STRING, own_query STRING, finished BIGINT"


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Filter that selects the dead letters to redrive, by topic and by the timestamp of the record.

    `topics` are topic names; None: all topics. `from_ms` (inclusive) and `to_ms` (exclusive) are timestamps in
    milliseconds since the epoch; None: no limit.
    """

    topics: Sequence[str] | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def of(self, dead_letters: DataFrame) -> DataFrame:
        if self.topics is not None:
            dead_letters = dead_letters.where(sql.col("topic").isin(list(self.topics)))
        if self.from_ms is not None:
            dead_letters = dead_letters.where(sql.col("timestamp") >= sql.timestamp_millis(sql.lit(self.from_ms)))
        if self.to_ms is not None:
            dead_letters = dead_letters.where(sql.col("timestamp") < sql.timestamp_millis(sql.lit(self.to_ms)))
        return dead_letters


class _Group(NamedTuple):
    """Group of dead letters that have the same values in the columns `topic`, `target` and `query`.

    `finished` is the id of the query's last batch that is in the table that the records were meant for. If the column
    `query` is null, `finished` is `NEWEST`, so that all batches count as finished.
    """

    topic: str
    target: str
    query: str | None
    finished: int


@dataclass(frozen=True)
class UnmarkedDeadLetters:
    """Dead letters of one job that no redrive has marked: their column `redrive` is null.

    `groups` has the job's dead letters by topic, target and query. `dead_letters` may contain dead letters of other
    jobs too. Dead letters that are counted in `pending` are not redriven.
    """

    dead_letters: DataFrame
    groups: tuple[_Group, ...]
    pending: Mapping[str, int]
    """Number of dead letters, by topic, whose batch is not yet in the table that the records were meant for."""

    @property
    def topics(self) -> list[str]:
        return sorted({group.topic for group in self.groups})

    def of(self, topics: Collection[str]) -> DataFrame:
        """Return the job's dead letters of `topics`, without the dead letters that are counted in `pending`.

        The result has the additional column `finished`, with `_Group.finished` of the dead letter's group.
        """
        groups = [group for group in self.groups if group.topic in topics]
        return _of_groups(self.dead_letters, groups).where(~_is_pending())


@dataclass(frozen=True)
class JobDeadLetters:
    """Selector of one ingest job's dead letters in a table for dead letters, by the job's topics and tables.

    `subscription` has the topics that the job reads, and `routing` has the table of each topic.
    """

    subscription: Subscription
    routing: Routing
    table: Callable[[TableSpec], RedrivenTable]
    """Function that returns the `RedrivenTable` for the specification of a table."""
    keeping_error: Callable[[str], AbstractContextManager[None]]
    """Function that returns a context manager for a topic, which keeps an error in its block until the redrive's end.

    The topic's dead letters are then left out.
    """
    failed: Collection[str]
    """Topics with a kept error, which are not looked at again."""

    def marked(self, dead_letters: DataFrame) -> list[tuple[int, str]]:
        """Return the pairs (`redrive`, `topic`) of the job's dead letters that redrives have marked, sorted, each once.

        Each pair belongs to a redrive that has not finished. `dead_letters` come from `DeadLetterMarks.dead_letters`.
        """
        marked = dead_letters.where(sql.col("redrive").isNotNull())
        own: set[tuple[int, str]] = set()
        for row in marked.select("topic", "target", "redrive").distinct().collect():
            if row["topic"] in self.failed:
                continue
            with self.keeping_error(row["topic"]):
                if self._own_target(row["topic"], row["target"]) is not None:
                    own.add((row["redrive"], row["topic"]))
        return sorted(own)

    def unmarked(self, dead_letters: DataFrame, chosen: DeadLetterFilter) -> UnmarkedDeadLetters:
        """Select the job's dead letters that pass the filter `chosen` and that no redrive has marked.

        `dead_letters` come from `DeadLetterMarks.dead_letters`. A redrive marks dead letters by a number in the column
        `redrive`, which is null otherwise.
        """
        dead_letters = chosen.of(dead_letters.where(sql.col("redrive").isNull()))
        counted = dead_letters.groupBy("topic", "target", "query").agg(
            sql.count("*").alias("letters"), sql.max("batch").alias("newest")
        )
        groups: list[_Group] = []
        pends = False
        for row in counted.collect():
            if row["topic"] in self.failed:
                continue
            with self.keeping_error(row["topic"]):
                target = self._own_target(row["topic"], row["target"])
                if target is not None:
                    finished = NEWEST if row["query"] is None else self.table(target).last_finished(row["query"])
                    pends = pends or (row["newest"] is not None and row["newest"] > finished)
                    groups.append(_Group(row["topic"], row["target"], row["query"], finished))
                elif self.subscription.names(row["topic"]):
                    log.info(
                        "%d letters of topic %s are for another table: %s", row["letters"], row["topic"], row["target"]
                    )
        return UnmarkedDeadLetters(dead_letters, tuple(groups), _pending(dead_letters, groups) if pends else {})

    def _own_target(self, topic: str, named: str) -> TableSpec | None:
        """Return the table of the job that has the key `named` and gets the topic's rows; None if there is none.

        Raises:
            ConfigurationError: as in `Routing.target`.
            SchemaRegistryError: as in `Routing.target`.
        """
        if not self.subscription.names(topic):
            return None
        try:
            target = self.routing.target(topic)
        except TableError:  # the topic has no table any more
            return None
        return target if target.key == named else None


def _of_groups(dead_letters: DataFrame, groups: Sequence[_Group]) -> DataFrame:
    """Return the dead letters that have the topic, the target and the query of one of `groups`.

    The result has the additional column `finished`, with `_Group.finished` of the dead letter's group.
    """
    own = sql.broadcast(dead_letters.sparkSession.createDataFrame(list(groups), _OWN))
    same = sql.col("topic") == sql.col("own_topic")
    for name in ("target", "query"):
        same &= sql.col(name).eqNullSafe(sql.col(f"own_{name}"))
    return dead_letters.join(own, same).drop("own_topic", "own_target", "own_query")


def _is_pending() -> Column:
    return sql.coalesce(sql.col("batch") > sql.col("finished"), sql.lit(False))


def _pending(dead_letters: DataFrame, groups: Sequence[_Group]) -> dict[str, int]:
    counted = _of_groups(dead_letters, groups).where(_is_pending()).groupBy("topic").count().collect()
    return {row["topic"]: row["count"] for row in sorted(counted)}

"""Which dead letters a job may redrive: several jobs may set records aside in one table."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from tiered_stream.delta.letter_marks import is_number_of, is_version
from tiered_stream.delta.redriven_table import NEWEST
from tiered_stream.delta.routing import Routing, TableTarget
from tiered_stream.errors import TableError
from tiered_stream.options.parsing import Subscription

log = logging.getLogger(__name__)

_OWN = "own_topic STRING, own_target STRING, own_query STRING, finished BIGINT"
_NOT_CERTAIN = (
    "it does not say for which table it was, since an earlier version wrote it, and the job's pattern matches only a "
    "part of the topic's name. To bring it in, name the topic in --topics"
)

LastFinished = Callable[[TableTarget, str], int]
"""The last finished batch of a query in a table; -1: none."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters to redrive. Times are in ms since the epoch, and the end is not included."""

    topics: Sequence[str] | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def of(self, letters: DataFrame) -> DataFrame:
        if self.topics is not None:
            letters = letters.where(sql.col("topic").isin(list(self.topics)))
        if self.from_ms is not None:
            letters = letters.where(sql.col("timestamp") >= sql.timestamp_millis(sql.lit(self.from_ms)))
        if self.to_ms is not None:
            letters = letters.where(sql.col("timestamp") < sql.timestamp_millis(sql.lit(self.to_ms)))
        return letters


@dataclass(frozen=True, slots=True)
class _Group:
    """Letters of one topic and one query, with the last batch of the query that is finished in their table."""

    topic: str
    target: str | None
    query: str | None
    finished: int


@dataclass(frozen=True)
class FreshLetters:
    """The job's letters without a mark: `left` ones and `pending` ones are not to be decoded."""

    letters: DataFrame
    groups: tuple[_Group, ...]
    left: Mapping[tuple[str, str], int]
    """Number of letters whose table is not certain, by topic and reason."""
    pending: Mapping[str, int]
    """Number of letters whose batch is not finished, by topic."""

    @property
    def topics(self) -> list[str]:
        return sorted({group.topic for group in self.groups})

    def of(self, topics: Collection[str]) -> DataFrame:
        """Letters of these topics whose batches are finished."""
        return _own(self.letters, [group for group in self.groups if group.topic in topics]).where(~_is_pending())


@dataclass(frozen=True)
class JobLetters:
    """The job whose letters are looked for: its topics, and their tables."""

    subscription: Subscription
    routing: Routing
    last_finished: LastFinished

    def marked(self, letters: DataFrame) -> list[tuple[int, str]]:
        """Number and topic of each of the job's redrives that is not at its end.

        Raises:
            TableError: the letters cannot be read.
        """
        marked = letters.where(sql.col("redrive").isNotNull())
        rows = marked.select("topic", "target", "redrive").distinct().collect()
        return sorted({(row["redrive"], row["topic"]) for row in rows if self._has_marked(*row)})

    def _has_marked(self, topic: str, named: str | None, number: int) -> bool:
        # Marks of earlier versions do not say whose they are.
        chosen = Chosen() if is_version(number) else Chosen(topics=[topic])
        target = self._own_target(topic, named, chosen)
        return isinstance(target, TableTarget) and is_number_of(number, target.key)

    def fresh(self, letters: DataFrame, chosen: Chosen) -> FreshLetters:
        """The job's letters without a mark. Raises: as `marked`, or TableError: a table cannot be read."""
        letters = chosen.of(self._read(letters).where(sql.col("redrive").isNull()))
        counted = letters.groupBy("topic", "target", "query").agg(
            sql.count("*").alias("letters"), sql.max("batch").alias("newest")
        )
        groups: list[_Group] = []
        left: Counter[tuple[str, str]] = Counter()
        pends = False
        for row in counted.collect():
            target = self._own_target(row["topic"], row["target"], chosen)
            if isinstance(target, str):
                left[row["topic"], target] += row["letters"]
            elif target is not None:
                finished = NEWEST if row["query"] is None else self.last_finished(target, row["query"])
                pends = pends or (row["newest"] is not None and row["newest"] > finished)
                groups.append(_Group(row["topic"], row["target"], row["query"], finished))
            elif self.subscription.names(row["topic"]):
                log.info(
                    "%d letters of topic %s are for another table: %s", row["letters"], row["topic"], row["target"]
                )
        return FreshLetters(letters, tuple(groups), left, _pending(letters, groups) if pends else {})

    def _own_target(self, topic: str, named: str | None, chosen: Chosen) -> TableTarget | str | None:
        """The table of such letters; None: they are not the job's; text: why it is not certain whose they are."""
        if not self.subscription.names(topic):
            return None
        target = self._target(topic)
        if named is not None:
            return target if isinstance(target, TableTarget) and target.key == named else None
        pattern = self.subscription.pattern
        if pattern is None or topic in (chosen.topics or ()) or re.fullmatch(pattern, topic, re.ASCII):
            return target
        return _NOT_CERTAIN

    def _target(self, topic: str) -> TableTarget | str:
        """The topic's table; text: why it has none."""
        try:
            return self.routing.target(topic)
        except TableError as error:
            return str(error)

    def _read(self, letters: DataFrame) -> DataFrame:
        """Without partitions that the job does not read, where it names partitions."""
        numbers: dict[str, list[int]] = {}
        for partition in self.subscription.assigned:
            numbers.setdefault(partition.topic, []).append(partition.partition)
        if not numbers:
            return letters
        read = sql.lit(False)
        for topic, partitions in numbers.items():
            read |= (sql.col("topic") == topic) & sql.col("partition").isin(partitions)
        return letters.where(read)


def _own(letters: DataFrame, groups: Sequence[_Group]) -> DataFrame:
    """Letters of the groups, with `finished`."""
    rows = [(group.topic, group.target, group.query, group.finished) for group in groups]
    own = sql.broadcast(letters.sparkSession.createDataFrame(rows, _OWN))
    same = sql.col("topic") == sql.col("own_topic")
    for name in ("target", "query"):
        same &= sql.col(name).eqNullSafe(sql.col(f"own_{name}"))
    return letters.join(own, same).drop("own_topic", "own_target", "own_query")


def _is_pending() -> Column:
    return sql.coalesce(sql.col("batch") > sql.col("finished"), sql.lit(False))


def _pending(letters: DataFrame, groups: Sequence[_Group]) -> dict[str, int]:
    counted = _own(letters, groups).where(_is_pending()).groupBy("topic").count().collect()
    return {row["topic"]: row["count"] for row in sorted(counted)}

"""Tasks of a driver: land, redrive or replay, until it ends well, fails or dies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from tests.rigs.dead_letter_model.events import DriverKilledError
from tests.rigs.dead_letter_model.history import DEAD_LETTERS, Land, Redrive, Run, Setup
from tests.rigs.dead_letter_model.without_spark import Session
from tests.rigs.dead_letter_model.world import World, time_of
from tests.rigs.stack.spark import FEW_ROWS, SHORT_LIVED
from tests.tier.topics import topic_options
from tiered_stream import land
from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter, redrive
from tiered_stream.errors import TieredStreamError
from tiered_stream.replays.run_replay import replay

LONGEST = 120
"""Longest time of a query, in seconds."""
_OURS = TieredStreamError.__module__
_REFUSALS = (
    "DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_MISSING_DELTA_TABLE",
    "is not a Delta table", "NotADirectory", "Not a directory", "ParentNotDirectory", "FileAlreadyExists",
)  # fmt: skip
"""Parts of errors by which Delta refuses a row, or a folder that is no table."""


@dataclass(frozen=True)
class Begun:
    """A replay's arguments, fixed when it is begun."""

    number: int
    table: int
    first: int
    end: int | None
    """None: the replay reads up to the end that the topics had then."""
    exact: bool


@dataclass(frozen=True)
class Outcome:
    """End of a run: well, by an error (in one line), or by a kill."""

    error: str | None = None
    foreign: bool = False
    """Whether the error is neither one of ours nor Delta's refusal of a row or a table."""

    was_killed: bool = False

    @property
    def is_well(self) -> bool:
        """Whether the run came to its end."""
        return self.error is None and not self.was_killed

    @property
    def kind(self) -> str:
        """Name of the end in the counts."""
        return "killed" if self.was_killed else "ended well" if self.is_well else "refused"

    def __str__(self) -> str:
        return self.error or self.kind


class HangError(Exception):
    """The query does not end."""


def run(world: World, step: Run, begun: Begun | None = None, *, parks: bool = False) -> Outcome:
    """Do the step. `Killed` passes through. `begun` is the replay to begin or to resume."""
    try:
        match step:
            case Land():
                _land(world, step)
            case Redrive():
                given = settings(world, step.schema) | world.route | parking(parks=parks)
                redrive(cast(SparkSession, world.spark), given, world.target, DeadLetterFilter())
            case _:
                assert begun is not None
                _replay(world, step.schema, begun)
    except DriverKilledError:
        raise
    except Exception as error:  # noqa: BLE001 - an error of neither ours nor Spark is a fault of the history
        return _outcome(error)
    return Outcome()


def _land(world: World, step: Land) -> None:
    given = settings(world, step.schema) | {
        "ingest.commit": step.commit,
        "maxOffsetsPerTrigger": str(step.limit),
        **world.route,
        **parking(parks=step.parks),
    }
    lane, spark = step.lane, cast(SparkSession, world.spark)
    if isinstance(world.spark, Session):
        lane, given["ingest.commit"] = "direct", "deltalake"
    query = land(spark, options=given, table=world.target, checkpoint=str(world.checkpoint), lane=lane)
    if not query.awaitTermination(LONGEST):
        query.stop()
        raise HangError("the query does not end")


def _replay(world: World, schema: tuple[str, ...], begun: Begun) -> None:
    table = world.setup.tables[begun.table]
    given = settings(world, schema, world.setup.topics_of(table))
    del given["startingOffsets"]
    to_time = None if begun.end is None else str(time_of(begun.end))
    replay(
        cast(SparkSession, world.spark), options=given, from_time=str(time_of(begun.first)), to_time=to_time,
        into=str(world.path(table)), name=f"replay-{begun.number}", exact=begun.exact, replace=True,
        query_checkpoint=str(world.checkpoint),
    )  # fmt: skip


def settings(world: World, schema: tuple[str, ...], topics: tuple[str, ...] | None = None) -> dict[str, str]:
    """Settings of the job, without lane, committer and batches."""
    setup = world.setup
    given = {
        "ingest.value.format": "json",
        "ingest.value.schema": _schema(schema).json(),  # only a JVM reads DDL
        "ingest.onDecodeError": "deadLetter",
        "ingest.deadLetterTable": str(world.path(DEAD_LETTERS)),
        **({"ingest.dayColumn": "day"} if setup.day_column else {}),
        **setup.shape.settings(schema),
    }
    return subscribed(setup, topic_options(world.bucket, ",".join(topics or setup.topics), given))


def _schema(names: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, LongType()) for name in ("id", *names)])


def subscribed(setup: Setup, options: Mapping[str, str]) -> dict[str, str]:
    """Replace the topics' names by a pattern, if the job has one."""
    if not setup.by_pattern:
        return dict(options)
    topics = options["subscribe"].replace(".", r"\.").replace(",", "|")  # Spark looks for it anywhere in a name
    others = {name: value for name, value in options.items() if name != "subscribe"}
    return {**others, "subscribePattern": f"^({topics})$"}


def parking(*, parks: bool) -> dict[str, str]:
    return {"ingest.onTableError": "park"} if parks else {}


def _outcome(error: Exception) -> Outcome:
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if _OURS in line]
    shown = (ours or lines or [repr(error)])[-1 if ours else 0]
    known = isinstance(error, TieredStreamError) or bool(ours) or any(each in text for each in _REFUSALS)
    return Outcome(f"{type(error).__name__}: {shown[:400]}", foreign=not known)


def session_settings() -> dict[str, str]:
    """Settings that make many tiny queries in one JVM cheap."""
    return {
        **FEW_ROWS,
        **SHORT_LIVED,
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.python.daemon.module": "tiered_stream.worker_daemon",
        "spark.log.level": "OFF",
        "spark.sql.ui.retainedExecutions": "5",
    }


def start_session() -> SparkSession:
    """Start the session that all histories share."""
    from tests.rigs.stack.spark import spark_session

    return spark_session("dead letter model", groups=("delta",), config=session_settings())

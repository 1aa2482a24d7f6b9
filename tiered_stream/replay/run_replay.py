"""`replay`: what topics held from one time to another, brought to a target once, stopped and gone on with at will."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import partial

from pyspark.sql import SparkSession
from rich.console import Console

from tiered_stream.delta.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.ingest_settings import settings_of_topics, source_options
from tiered_stream.delta.landing import check_all_columns
from tiered_stream.errors import ConfigurationError, ReplayStoppedError
from tiered_stream.inspect.read_cost import Prices
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.observe.metrics import ReadMetrics
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.options.command_settings import POSITIONS, SUBSCRIPTION, without
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.remote_options import METRICS_ADDRESS
from tiered_stream.replay.estimate import Estimate, estimate
from tiered_stream.replay.follow import Follow, follower
from tiered_stream.replay.left_to_query import without_what_is_left
from tiered_stream.replay.replay_plan import ReplayArguments, ReplayPlan, check_name
from tiered_stream.replay.resolve import resolve
from tiered_stream.replay.store import ReplayStore
from tiered_stream.replay.target import Target
from tiered_stream.replay.targets import DeltaTarget, paced, target_of
from tiered_stream.replay.times import parse_range
from tiered_stream.replay.verification import verify
from tiered_stream.replay.verify_report import VerifyReport
from tiered_stream.spark_session import refuse_connect

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What one run did. `records` and `metrics` are of this run alone; a replay that had finished before reads none."""

    plan: ReplayPlan
    checkpoint: str
    metrics: ReadMetrics
    finished_before: bool = False

    @property
    def records(self) -> int:
        """Records that were read."""
        return self.metrics.records


def replay(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    from_time: str,
    to_time: str | None = None,
    into: str,
    name: str | None = None,
    checkpoint: str | None = None,
    exact: bool = False,
    replace: bool = False,
    query_checkpoint: str | None = None,
    lane: str = "auto",
    tasks: int | None = None,
    max_bytes_per_second: int | None = None,
) -> ReplayReport:
    """Bring what topics held from one time to another to a target, each record once, and wait until it is there.

    Stopped at any moment and called again with the same arguments, it ends with the same target; called once more, it
    does nothing. A partition begins at its first offset whose timestamp is at or after `from_time` and ends before the
    first at or after `to_time`, as `Consumer.offsetsForTimes` says.

    Args:
        options: those of `format("tiered_stream")`, positions left out, and `ingest.*` settings for a table, `target.*`
            for a topic.
        from_time, to_time: ISO 8601 with a zone, milliseconds since the epoch, or back from now as `-3h`; without
            `to_time` up to the log's end.
        into: a Delta table, by its path (it has a slash in it) or its name in the catalog, which is made when it is
            missing; or `kafka:TOPIC`, or `parquet:FOLDER`.
        name: the replay's; by default made from the arguments.
        checkpoint: by default in the table's or the folder's `_checkpoints/replay-NAME`; for a topic it must be given.
        exact: take every record with such a timestamp and no other, wherever in the log it is behind the start.
        replace: take the table's rows of the same offsets out, in the same commit.
        query_checkpoint: the checkpoint of the query that lands in the same table all the time. Offsets that it has not
            landed yet are left to it; without this they would be there twice.
        lane: into a table `direct`, `spark`, or `auto`.
        tasks: the most at once; None: as many as Spark runs.
        max_bytes_per_second: the most that all tasks fetch together, and the most that they write.

    Raises:
        ConfigurationError: an argument or option is wrong, the table does not fit; nothing is written then.
        UnknownTopicError, BrokerAuthorizationError: a topic is not there, or may not be read.
        DataLossError: records that were to be replayed are gone.
        TableError: the table or the checkpoint cannot be reached.
        StreamingQueryException: the run failed.
    """
    given = paced(spark, options, max_bytes_per_second, tasks)
    target = target_of(spark, into, given, lane=lane, tasks=tasks)
    return plan_replay(
        spark, options=given, target=target, from_time=from_time, to_time=to_time, name=name, checkpoint=checkpoint,
        exact=exact, replace=replace, query_checkpoint=query_checkpoint,
    ).run()  # fmt: skip


@dataclass(frozen=True)
class Replay:
    """A replay that is planned; nothing has been written for it unless it goes on with one that was begun."""

    spark: SparkSession
    plan: ReplayPlan
    target: Target
    options: Mapping[str, str]
    store: ReplayStore | None
    """What a run before this one left; None: this is the first."""
    checkpoint: str | None

    def estimate(
        self, tasks: int | None = None, max_bytes_per_second: int | None = None, prices: Prices | None = None
    ) -> Estimate:
        """What the whole of it reads; raises as `estimate.estimate`."""
        tasks = tasks or self.spark.sparkContext.defaultParallelism
        settings = self.target.settings(self.plan, self.options)
        return estimate(self.plan, settings, tasks, max_bytes_per_second, prices or Prices())

    @property
    def verifiable(self) -> bool:
        """Whether `verify` can say something of the target: it is a Delta table."""
        return isinstance(self.target, DeltaTarget)

    def verify(self) -> VerifyReport:
        """Whether the table has what the plan reads, each record once; errors as `verification.verify`."""
        assert self.verifiable
        times = self.plan.times if self.plan.arguments.exact else None
        return verify(self.spark, options=self.options, table=self.target.place, ranges=self.plan.ranges, times=times)

    def run(self, follow: Follow | None = None, say: Callable[[str], None] = log.info) -> ReplayReport:
        """Bring it to its end; errors as `replay`. `say` gets a line on how it goes about it."""
        store = self.store or self._begin()
        plan = store.plan() or self.plan
        if store.finished:
            return ReplayReport(plan, store.folder, ReadMetrics(), finished_before=True)
        with MetricsReceiver(self.spark.conf.get("spark.driver.host") or "127.0.0.1") as receiver:
            settings = self.target.settings(plan, {METRICS_ADDRESS.name: receiver.address, **self.options})
            query, how = self.target.start(plan, settings, store.folder)
            say(how)
            (follow or follower(Console(quiet=True, force_terminal=False)))(query, plan, receiver)
            metrics = receiver.total()
        reading = plan.stream_options(self.options)
        if not store.reached(plan) and parse_options(reading, streaming=True).fail_on_data_loss:
            raise ReplayStoppedError(f"the replay {plan.name} was stopped before its end: start it again to go on")
        store.finish(metrics.records)
        return ReplayReport(plan, store.folder, metrics)

    def _begin(self) -> ReplayStore:
        """Make what the target lacks, and fix the plan."""
        self.target.prepare(self.plan)
        folder = self.checkpoint or self.target.default_checkpoint(self.plan.name)
        assert folder is not None
        store = ReplayStore(self.spark, folder)
        _check_same(store.keep(self.plan), self.plan.arguments)
        return store


def plan_replay(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    target: Target,
    from_time: str,
    to_time: str | None = None,
    name: str | None = None,
    checkpoint: str | None = None,
    exact: bool = False,
    replace: bool = False,
    query_checkpoint: str | None = None,
    now_ms: int | None = None,
) -> Replay:
    """Find the offsets, or those that were fixed when the replay was begun; arguments and errors as `replay`.

    Nothing is written. `now_ms` is the present, in milliseconds since the epoch.
    """
    refuse_connect(spark, "a replay")
    times = parse_range(from_time, to_time, time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    arguments = ReplayArguments(_reads(options), from_time, to_time, target.described, exact, replace)
    name = check_name(name or arguments.default_name())
    folder = checkpoint or target.default_checkpoint(name)
    store = ReplayStore(spark, folder) if folder else None
    begun = store.plan() if store else None
    if begun is not None:
        if begun.name != name:
            raise ConfigurationError(f"the checkpoint {folder} is that of the replay {begun.name}: take another")
        _check_same(begun, arguments)
        return _of_its_topics(Replay(spark, begun, target, options, store, folder))
    plan = _new_plan(options, name, arguments, times)
    if query_checkpoint is not None:
        plan = with_fields(
            plan, ranges=without_what_is_left(partial(CheckpointFolder, spark), query_checkpoint, plan.ranges)
        )
    planned = _of_its_topics(Replay(spark, plan, target, options, None, checkpoint))
    planned.target.check(plan)
    return planned


def _of_its_topics(planned: Replay) -> Replay:
    """The replay by the settings that its topics have for themselves, where it goes into a table."""
    if not planned.verifiable:
        return planned
    topics = {partition.topic for partition in planned.plan.ranges}
    target = with_fields(planned.target, given=settings_of_topics(planned.target.given, topics))
    return with_fields(planned, target=target, options=settings_of_topics(planned.options, topics))


def _new_plan(options: Mapping[str, str], name: str, arguments: ReplayArguments, times: TimeRange) -> ReplayPlan:
    reading = without(source_options(options), POSITIONS) | dict([arguments.reads])
    parsed = parse_options(reading, streaming=True)
    check_all_columns(parsed)
    with closing(open_log_source(parsed)) as source:
        resolved = resolve(parsed, source, times, exact=arguments.exact)
    return ReplayPlan(name, arguments, times, resolved.ranges, resolved.topic_ids)


def _reads(options: Mapping[str, str]) -> tuple[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    found = [(name, given[name.lower()]) for name in SUBSCRIPTION if name.lower() in given]
    if len(found) != 1:
        names = ", ".join(SUBSCRIPTION)
        raise ConfigurationError(f"say what to replay by exactly one of the options {names}; {len(found)} are given")
    return found[0]


def _check_same(begun: ReplayPlan, arguments: ReplayArguments) -> None:
    """A name is that of one replay: what goes on has to be what was begun."""
    difference = arguments.difference(begun.arguments)
    if difference is not None:
        raise ConfigurationError(
            f"the replay {begun.name} was begun with other arguments: {difference}. To go on with it give the same; "
            "for another give another --name"
        )

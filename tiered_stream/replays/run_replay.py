"""Function `replay`, which copies the records of topics between two times to a target, each record once.

If a replay was stopped, a call with the same arguments resumes it.
"""

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

from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.settings.ingest_settings import settings_of_topics, source_options
from tiered_stream.errors import ReplayStoppedError
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import PartitionOffsets
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.remote_options import REPORT_ADDRESSES
from tiered_stream.plan.read_cost import Prices
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.replays.dry_run import Estimate, estimate
from tiered_stream.replays.limit_to_landed import limit_to_landed
from tiered_stream.replays.progress_display import Follow, follower
from tiered_stream.replays.replay_checkpoint import ReplayStore
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan, check_name
from tiered_stream.replays.table_and_folder_targets import DeltaTarget, target_of, with_byte_rate
from tiered_stream.replays.target import Target
from tiered_stream.replays.times import parse_range
from tiered_stream.replays.times_to_offsets import new_plan, subscription
from tiered_stream.spark.report_addresses import addresses_option, open_receiver
from tiered_stream.spark.session import refuse_connect
from tiered_stream.verification.verify_report import LatestReport, VerifyReport
from tiered_stream.verification.verify_table import verify

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Report on one run of a replay.

    `metrics` are the counters of this run alone. `finished_before` is True if the replay had finished before, so that
    this run has read nothing.
    """

    plan: ReplayPlan
    checkpoint: str
    metrics: ReadMetrics
    finished_before: bool = False

    @property
    def records(self) -> int:
        """Return the number of records that this run has read."""
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
    """Copy the records of topics between two times to a target, and return when all records are in the target.

    If a replay was stopped, a call with the same arguments resumes it, with the same result in the target. After a
    replay has finished, a further call does nothing. A partition is read from its first offset whose timestamp is at or
    after `from_time`, up to its first offset whose timestamp is at or after `to_time` (exclusive; Kafka:
    `Consumer.offsetsForTimes`).

    Args:
        options: options of `format("tiered_stream")`, whose starting and ending positions are ignored, and `ingest.*`
            settings for a table or `target.*` settings for a topic.
        from_time: ISO 8601 with a zone, milliseconds since the epoch, or back from now (such as `-3h`).
        to_time: in the forms of `from_time`. If it is None, the replay reads up to the log's end.
        into: the target: a Delta table, by its path (which has a slash in it) or its name in the catalog; or
            `kafka:TOPIC`, or `parquet:FOLDER`. A missing table or folder is created; a topic must exist.
        name: the replay's name. By default, a name is derived from the arguments.
        checkpoint: the replay's checkpoint folder. The default is `_checkpoints/replay-NAME` in the folder of the table
            or of the Parquet files; for a topic it must be given.
        exact: True to copy exactly the records whose timestamps are from `from_time` (inclusive) to `to_time`
            (exclusive), even if timestamps are not ascending.
        replace: True to remove the table's rows that have the same offsets, in the commit that adds the replay's rows.
        query_checkpoint: the checkpoint of the query that continuously lands in the same table. The replay leaves out
            offsets that this query has not landed yet, because they would be in the table twice. It has no effect for a
            table of the latest state (`ingest.mode=upsert`).
        lane: way to write a table: `direct` (tasks write the table's files), `spark` (Spark's Delta sink), or `auto`.
        tasks: maximum number of parallel tasks, by default as many as Spark runs.
        max_bytes_per_second: maximum bytes per second that all tasks together fetch, and also the maximum that they
            write.

    Raises:
        ConfigurationError: an argument or option is wrong, or the table does not fit; nothing was written.
        UnknownTopicError, BrokerAuthorizationError: a topic does not exist, or the user is not authorized to read it.
        DataLossError: records to be replayed are gone.
        BrokerError, StorageError: offsets cannot be looked up.
        TableError: the table or the checkpoint cannot be reached.
        ReplayStoppedError: the query was stopped before its end.
        StreamingQueryException: the run failed.
    """
    options = with_byte_rate(spark, options, max_bytes_per_second, tasks)
    target = target_of(spark, into, options, lane=lane, tasks=tasks)
    return plan_replay(
        target, from_time=from_time, to_time=to_time, name=name, checkpoint=checkpoint, exact=exact, replace=replace,
        query_checkpoint=query_checkpoint,
    ).run()  # fmt: skip


@dataclass(frozen=True)
class Replay:
    """Planned replay: its plan and its target. Nothing is written before `run` is called.

    If an earlier run has begun the replay, `run` resumes it.
    """

    plan: ReplayPlan
    target: Target
    store: ReplayStore | None
    """Checkpoint of an earlier run of this replay, or None if there was no earlier run."""
    checkpoint: str | None
    """Path of the checkpoint folder, or None for the target's default folder."""

    def estimate(
        self, tasks: int | None = None, max_bytes_per_second: int | None = None, prices: Prices | None = None
    ) -> Estimate:
        """Return the estimated cost of reading the whole plan; write nothing.

        Args:
            tasks: number of parallel tasks, by default Spark's default parallelism.
            max_bytes_per_second: maximum bytes per second that all tasks fetch together, or None for no limit.
            prices: prices of requests and bytes, or None for the default prices.

        Raises:
            DataLossError: a log or an archive does not hold the plan's offsets.
            BrokerError, StorageError: offsets or segments cannot be looked up.
        """
        tasks = tasks or self.target.spark.sparkContext.defaultParallelism
        return estimate(self.plan, self.target.settings(self.plan), tasks, max_bytes_per_second, prices or Prices())

    @property
    def verifiable(self) -> bool:
        """Return True if the target is a Delta table, which `verify` can check."""
        return isinstance(self.target, DeltaTarget)

    def verify(self) -> VerifyReport | LatestReport:
        """Compare the target table with the topics' records in the plan, and return the report.

        The target must be a Delta table.

        Raises:
            ConfigurationError: the table does not exist, or lacks columns.
            BrokerError, StorageError: the topics' offsets cannot be looked up.
            PySparkException: reading the topics or the table failed in Spark.
        """
        assert self.verifiable
        target, plan = self.target, self.plan
        times = plan.times if plan.arguments.exact else None
        return verify(target.spark, options=target.user_settings, table=target.place, ranges=plan.ranges, times=times)

    def run(self, follow: Follow | None = None, report: Callable[[str], None] = log.info) -> ReplayReport:
        """Run the replay to its end, or resume it, and return a report on this run.

        If the replay has finished before, nothing is read.

        Args:
            follow: waits for the query and shows its progress. By default, no progress is shown.
            report: called with a line about how the target is written.

        Raises:
            ConfigurationError: a setting is wrong, or another process has begun a replay with other arguments in the
                same checkpoint.
            TableError: the table or the checkpoint cannot be reached, or another query has written later records to a
                table of the latest state (`ingest.mode=upsert`).
            BrokerError, DataLossError: the positions of a replay into a topic cannot be read, or are lost.
            BrokerError, StorageError: the logs' ends cannot be looked up (only with `failOnDataLoss=false`).
            CorruptDataError: a file in the checkpoint is damaged.
            ReplayStoppedError: the query was stopped before its end.
            StreamingQueryException: the query failed.
        """
        store = self.store or self._begin()
        plan = store.plan() or self.plan
        if store.finished:
            return ReplayReport(plan, store.folder, ReadMetrics(), finished_before=True)
        if self.store is not None:
            self.target.check_not_overtaken(plan)
        read_to = self._read_to(plan)
        with open_receiver(self.target.spark) as receiver:
            reporting = {REPORT_ADDRESSES.name: addresses_option(receiver.report_to)}
            settings = reporting | self.target.settings(plan)
            query, description = self.target.start(plan, settings, store.folder)
            report(description)
            (follow or follower(Console(quiet=True, force_terminal=False)))(query, plan, receiver)
            metrics = receiver.total()
        if not store.reached(plan) and not _has_passed(store.committed(), read_to):
            raise ReplayStoppedError(f"the replay {plan.name} was stopped before its end: start it again to continue")
        self.target.check_not_overtaken(plan)
        store.finish()
        return ReplayReport(plan, store.folder, metrics)

    def _read_to(self, plan: ReplayPlan) -> PartitionOffsets | None:
        """Return the offsets at which a run ends that begins now, or None if the run ends at the plan's end offsets.

        With `failOnDataLoss=false`, a run ends where a log ends, if the log has lost records before the plan's end. The
        offsets are looked up before the run, because records that a later writer appends are not the plan's records.
        """
        options = parse_options(source_options(plan.stream_options(self.target.source_settings)), streaming=True)
        if options.fail_on_data_loss:
            return None
        with closing(open_log_source(options, warns=False)) as source:
            return StreamPlanner(options, source.offset_reader, source.locator).next_end({}, limited=False)

    def _begin(self) -> ReplayStore:
        """Create the target if it is missing, store the plan in the checkpoint, and return the checkpoint."""
        self.target.prepare(self.plan)
        folder = self.checkpoint or self.target.default_checkpoint(self.plan.name)
        assert folder is not None
        store = ReplayStore(self.target.spark, folder)
        store.keep(self.plan).check_same(self.plan.name, self.plan.arguments, folder)
        return store


def _has_passed(committed: PartitionOffsets | None, ends: PartitionOffsets | None) -> bool:
    """Return whether the offsets `committed` are at or after each offset in `ends`; False if one of them is None."""
    if committed is None or ends is None:
        return False
    return all(committed.get(partition, 0) >= end for partition, end in ends.items())


def plan_replay(
    target: Target,
    *,
    from_time: str,
    to_time: str | None = None,
    name: str | None = None,
    checkpoint: str | None = None,
    exact: bool = False,
    replace: bool = False,
    query_checkpoint: str | None = None,
    now_ms: int | None = None,
) -> Replay:
    """Plan a new replay. If an earlier run has begun the replay, load its plan from the checkpoint. Write nothing.

    The arguments have the same meaning as the arguments of `replay`, except the following.

    Args:
        target: target of the replay, as `target_of` returns it.
        now_ms: the current time, in milliseconds since the epoch, by default the system clock's.

    Raises:
        ConfigurationError: an argument or option is wrong, the target does not fit, or the checkpoint belongs to a
            replay with other arguments.
        UnknownTopicError, BrokerAuthorizationError: a topic does not exist, or the user is not authorized to read it.
        DataLossError: records to be replayed are gone.
        BrokerError, StorageError: offsets cannot be looked up.
        TableError: the table or the checkpoint cannot be reached.
        CorruptDataError: the plan in the checkpoint is damaged.
    """
    spark, options = target.spark, target.user_settings
    refuse_connect(spark, "a replay")
    times = parse_range(from_time, to_time, time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    arguments = ReplayArguments(subscription(options), from_time, to_time, target.described, exact, replace)
    name = check_name(name or arguments.default_name())
    folder = checkpoint or target.default_checkpoint(name)
    store = ReplayStore(spark, folder) if folder else None
    if store and (stored := store.plan()):
        stored.check_same(name, arguments, store.folder)
        return Replay(stored, _with_topic_settings(target, stored), store, folder)
    plan = new_plan(target.source_settings, name, arguments, times)
    target = _with_topic_settings(target, plan)
    if query_checkpoint is not None and not target.keeps_latest:
        ranges = limit_to_landed(partial(CheckpointFolder, spark), query_checkpoint, plan.ranges)
        plan = with_fields(plan, ranges=ranges)
    target.check(plan)
    return Replay(plan, target, None, checkpoint)


def _with_topic_settings(target: Target, plan: ReplayPlan) -> Target:
    """Return a copy of a Delta table target to whose settings the plan's topics' settings are applied.

    The settings of a topic are `ingest.topic.NAME.*`. Any other target is returned unchanged.
    """
    if not isinstance(target, DeltaTarget):
        return target
    topics = {partition.topic for partition in plan.ranges}
    return with_fields(target, user_settings=settings_of_topics(target.user_settings, topics))

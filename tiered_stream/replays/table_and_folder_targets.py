"""Targets of a replay: a Delta table or a folder of Parquet files. `target_of` also returns Kafka topics as targets.

A table of the latest state (`ingest.mode=upsert`) has one row for each key. A replay of older records into such a table
first writes older rows again, and restores deleted rows. The table is right again only after the replay has read all
later records, too. So checks ensure that a replay reads at least as far as the table has records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.delta.catalog.address import TableAddress, find_address
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.catalog.session_checks import check_delta
from tiered_stream.delta.commit.commit_library import find_table, with_access
from tiered_stream.delta.commit.table_log import LandedOffsets, landed_offsets
from tiered_stream.delta.commit.transaction import DeltaTransaction
from tiered_stream.delta.landing.land import Landing, plan_query
from tiered_stream.delta.requirements.lane import check_fit
from tiered_stream.delta.schema.row_plan import plan_topics, record_columns
from tiered_stream.delta.schema.row_schema import fit_to_table, shared_columns, time_zone
from tiered_stream.delta.settings.ingest_settings import TableSpec, is_append_only, source_options, table_spec
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.delta.settings.row_settings import KAFKA_COLUMNS, MODE, UPSERT
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.parsing import Options
from tiered_stream.options.remote_options import MAX_BYTES_PER_SECOND
from tiered_stream.options.settings_files import without
from tiered_stream.options.spark_options import MAX_BYTES_PER_TRIGGER, MAX_OFFSETS_PER_TRIGGER
from tiered_stream.options.types import LONG_MAX
from tiered_stream.replays.replay_checkpoint import ReplayStore
from tiered_stream.replays.replay_plan import ReplayPlan
from tiered_stream.replays.target import CHECKPOINTS, Target, byte_rate, check_lane, checkpoint_in, kind_and_place
from tiered_stream.replays.topic_target import TopicTarget
from tiered_stream.spark.session import refuse_connect
from tiered_stream.spark.source import register
from tiered_stream.verification.record_comparison import OWN_NAMES, exactly_within, timestamps_within

_NEEDED = ("topic", "partition", "offset")


def target_of(
    spark: SparkSession, text: str, settings: Mapping[str, str], *, lane: str = "auto", tasks: int | None = None
) -> Target:
    """Return the target that `text` names: `kafka:TOPIC`, `parquet:FOLDER`, or a Delta table by its path or name.

    Args:
        settings: the user's settings.
        lane: way to write a Delta table: `direct` (tasks write the table's files), `spark` (Spark's Delta sink), or
            `auto`.
        tasks: maximum number of parallel tasks, by default as many as Spark runs.

    Raises:
        ConfigurationError: no name follows the prefix, or the target is not a table and `lane` is not `auto`.
    """
    kind, place = kind_and_place(text)
    check_lane(text, lane)
    if kind == DeltaTarget.KIND:
        return DeltaTarget(spark, place, settings, lane, tasks=tasks)
    target = TopicTarget if kind == TopicTarget.KIND else ParquetTarget
    return target(spark, place, settings, tasks=tasks)


def with_byte_rate(
    spark: SparkSession, settings: Mapping[str, str], bytes_per_second: int | None, tasks: int | None
) -> dict[str, str]:
    """Return the settings with a byte rate for each task: `bytes_per_second` divided by the number of parallel tasks.

    A task fetches at most at this rate, and also writes at most at this rate. If `bytes_per_second` is None, the
    settings are returned unchanged.

    Args:
        tasks: number of parallel tasks, or None for as many as Spark runs.

    Raises:
        ConfigurationError: the rate is less than a byte a second for each task, or the session is Spark Connect.
    """
    if bytes_per_second is None:
        return dict(settings)
    refuse_connect(spark, "a replay")
    rate = byte_rate(bytes_per_second, tasks or spark.sparkContext.defaultParallelism)
    return {**settings, MAX_BYTES_PER_SECOND.name: str(rate)}


@dataclass(frozen=True)
class DeltaTarget(Target):
    """Target that is a Delta table, new or existing.

    `place` is a path (which has a slash in it) or a name in the catalog. `lane` is the way to write the table: `direct`
    (tasks write the table's files), `spark` (Spark's Delta sink), or `auto`.
    """

    lane: str = "auto"

    KIND = "table"

    def default_checkpoint(self, name: str) -> str | None:
        address = find_address(self.spark, self.place)
        return None if address.uri is None else checkpoint_in(address.location, name)

    def check(self, plan: ReplayPlan) -> None:
        _, parsed = check_settings(self.settings(plan), self.lane)
        check_delta(self.spark)
        if plan.arguments.replace and self.keeps_latest:
            raise ConfigurationError(
                f"--replace does not go with {MODE.name}={UPSERT}, because each record replaces the row of its key: "
                "replay without --replace"
            )
        if plan.arguments.replace:
            self._check_replaced(plan, parsed)
        address = find_address(self.spark, self.place)
        transaction = None
        if address.uri is not None:
            spec, _ = with_access(self.spark, replace(self._spec, uri=address.uri))
            transaction = find_table(self.spark, address, spec)
        if transaction is not None:
            self._check_table(transaction, plan, parsed)
            self._check_latest(address, plan)

    @cached_property
    def _spec(self) -> TableSpec:
        return table_spec(self.user_settings)

    @property
    def keeps_latest(self) -> bool:
        return self._spec.is_upsert

    def check_not_overtaken(self, plan: ReplayPlan) -> None:
        if not self.keeps_latest:
            return
        address = find_address(self.spark, self.place)
        with spark_errors(self.place, "read"):
            reason = overtaken(plan, landed_offsets(self.spark, address.sql_name).ranges)
        if reason is not None:
            raise TableError(f"the table {self.place} is not certain to have the latest state: {reason}")

    def prepare(self, plan: ReplayPlan) -> None:
        self._landing(plan, self.settings(plan), checkpoint="")

    def settings(self, plan: ReplayPlan) -> dict[str, str]:
        settings = plan.stream_options(self.user_settings)
        if plan.arguments.replace:  # one micro-batch without a size limit, because all rows are replaced in one commit
            unlimited = {MAX_BYTES_PER_TRIGGER.name: str(LONG_MAX)}
            return without(settings, [MAX_OFFSETS_PER_TRIGGER.name, *unlimited]) | unlimited
        return self.in_batches(settings)

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> tuple[StreamingQuery, str]:
        landing = self._landing(plan, settings, checkpoint)
        return landing.start(), f"{landing.lane.value} lane, {landing.reason}"

    def _landing(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Landing:
        run = replace(self.run(plan, checkpoint), transaction_id=plan.transaction_id)
        if plan.arguments.replace:
            replaced = replace_where(plan, record_columns(self._spec))
            run = replace(run, replace_where=replaced, replaced_records=replace_where(plan))
        return plan_query(self.spark, options=settings, table=self.place, run=run, lane=self.lane)

    def _check_replaced(self, plan: ReplayPlan, source: Options) -> None:
        """Check that the table gets columns for topic, partition and offset, by which `--replace` selects rows.

        An exact replay (`--exact`) needs a column for the timestamp, too.

        Raises:
            ConfigurationError: the settings leave out one of these columns.
        """
        names, rows = record_columns(self._spec), self._rows(source)
        written = [row_format.written.names for row_format in rows]
        needed = _NEEDED if not plan.arguments.exact else (*_NEEDED, "timestamp")
        missing = [
            name for name in needed if name not in names or any(names[name] not in columns for columns in written)
        ]
        if missing:
            raise ConfigurationError(
                f"--replace finds the rows to remove from {self.place} by the record's {', '.join(needed)}, but the "
                f"settings leave {', '.join(missing)} out of the table: keep it by {KAFKA_COLUMNS.name} (such as "
                f"{missing[0]} as kafka_{missing[0]}), or replay without --replace"
            )

    def _rows(self, source: Options) -> Collection[RowFormat]:
        zone = time_zone(self.spark)
        return plan_topics(self._spec, source.subscription.topics, source.include_headers, zone).values()

    def _check_latest(self, address: TableAddress, plan: ReplayPlan) -> None:
        """Check that a table of the latest state (`ingest.mode=upsert`) still has the latest rows after the replay.

        Any other table passes the check.

        Raises:
            ConfigurationError: after the replay, rows could be older than the last records of their keys.
        """
        if not self.keeps_latest:
            return
        with spark_errors(self.place, "read"):
            has_rows = not self.spark.sql(f"SELECT 1 FROM {address.sql_name} LIMIT 1").isEmpty()
            landed = landed_offsets(self.spark, address.sql_name)
        ordered = self._spec.order_by is not None
        reason = why_not_latest(plan, landed, has_rows=has_rows, ordered=ordered)
        if reason is not None:
            raise ConfigurationError(f"the replay cannot leave the latest state in the table {self.place}: {reason}")

    def _check_table(self, table: DeltaTransaction, plan: ReplayPlan, source: Options) -> None:
        description = table.state.description
        day_column, rows = self._spec.day_column, self._rows(source)
        columns = shared_columns([fit_to_table(row_format, description.fields) for row_format in rows], day_column)
        check_fit(self.place, description, columns, day_column)
        if plan.arguments.replace and is_append_only(description.configuration):
            raise ConfigurationError(
                f"the table {self.place} is append-only (delta.appendOnly), so --replace cannot remove rows from it"
            )
        if table.last_batch(plan.transaction_id) is not None:
            raise ConfigurationError(
                f"the table {self.place} has records of a replay named {plan.name} already, but its checkpoint is not "
                "there: it is unknown where it stopped, and records would be duplicated. Give its --checkpoint, or "
                "another --name with --replace, which removes them first"
            )


def replace_where(plan: ReplayPlan, names: Mapping[str, str] = OWN_NAMES) -> str:
    """Return an SQL condition that holds for the rows of a table whose offsets are in the plan's ranges.

    If the plan is exact (`--exact`), the condition holds only for rows whose timestamps are also within the plan's
    times.

    Args:
        names: names of the table's columns for Kafka's `topic`, `partition`, `offset` and `timestamp`, by Kafka's name.
    """
    where = f"({exactly_within(plan.ranges, names)})"
    return f"{where} AND {timestamps_within(plan.times, names)}" if plan.arguments.exact else where


class ParquetTarget(Target):
    """Target that is a folder of Parquet files, new or empty; `place` is a path, or a URI that Spark can write to.

    Spark's file sink commits each micro-batch once, by a log in the subfolder `_spark_metadata` (Spark:
    `FileStreamSink`). So Spark reads each record once, even if a crash left files that are not committed. Other readers
    must also find the committed files by that log.
    """

    KIND = "parquet"

    def default_checkpoint(self, name: str) -> str | None:
        return checkpoint_in(self.place, name)

    def check(self, plan: ReplayPlan) -> None:
        if plan.arguments.replace:
            raise ConfigurationError("--replace is for a Delta table: files cannot be removed from a folder")
        entries = [name for name in ReplayStore(self.spark, self.place).entries() if name != CHECKPOINTS]
        if entries:
            # If the folder has another query's log, the sink skips the replay's batches, as if they were written.
            raise ConfigurationError(
                f"the folder {self.place} is not empty (it has {min(entries)}): give a new folder, or the --checkpoint "
                "of the replay that wrote there"
            )

    def settings(self, plan: ReplayPlan) -> dict[str, str]:
        return self.in_batches(source_options(plan.stream_options(self.user_settings)))

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> tuple[StreamingQuery, str]:
        register(self.spark)
        run = self.run(plan, checkpoint)
        rows = run.read(self.spark, "tiered_stream", settings)
        writer = rows.writeStream.format("parquet").option("path", self.place)
        return run.start(self.spark, writer), "by Spark's file sink"


_NO_OFFSETS = OffsetRange(0, 0)


def why_not_latest(plan: ReplayPlan, landed: LandedOffsets, *, has_rows: bool, ordered: bool) -> str | None:
    """Return why a replay could leave outdated rows in an existing table of the latest state, and advice for the user.

    A row is outdated if its record is not the last record of its key. The result is None if no row can be outdated.

    Args:
        plan: the replay's plan.
        landed: offset ranges that the table's commits name.
        has_rows: True if the table has rows.
        ordered: True if a column orders the records (`ingest.orderBy`), so that a key may be in several partitions.
    """
    if landed.is_complete and not landed.ranges and not has_rows:
        return None
    if plan.arguments.exact:
        return (
            "--exact leaves out records by their timestamps, and one of them may have changed or deleted a row since. "
            "Leave --exact out, or replay into a new table"
        )
    ends_early = plan.times.to_ms is not None
    unknown = (has_rows and not landed.ranges) or not landed.is_complete
    for partition, offsets in plan.ranges.items():
        known = landed.ranges.get(partition)
        if known is None and unknown and ends_early:
            return (
                f"its commits do not say up to which offset of {partition} it has records, and a later record may have "
                "changed or deleted a row. Leave --to out, so that the replay reads up to the end of the log"
            )
        if known is not None and offsets.end < known.end and (len(offsets) or ordered):
            advice = "Leave --to out, so that the replay reads these records, too"
            return (
                f"the replay ends at offset {offsets.end} of {partition}, and the table has records up to offset "
                f"{known.end - 1}: a later record may have changed or deleted a row that the replay would write again. "
                + (advice if ends_early else "Replay from a log that has these records, or into a new table")
            )
    return None


def overtaken(plan: ReplayPlan, landed: Mapping[TopicPartition, OffsetRange]) -> str | None:
    """Return an error text if another query has written later records of a partition than the replay reads, else None.

    `landed` has the offset ranges that the table's commits name, by partition.
    """
    for partition, offsets in plan.ranges.items():
        end = landed.get(partition, _NO_OFFSETS).end
        if len(offsets) and end > offsets.end:
            return (
                f"another query has brought records up to offset {end - 1} of {partition} into it, and the replay "
                f"{plan.name} reads up to offset {offsets.end - 1}: older records may replace newer rows. Stop the "
                "other query, and replay again with another --name"
            )
    return None

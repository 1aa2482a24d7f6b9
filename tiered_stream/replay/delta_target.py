"""A replay into a Delta table, new or there already, by either lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tiered_stream.delta.address import find_address, table_location
from tiered_stream.delta.delta_spark_commit import DeltaSparkTable, DeltaSparkTransaction
from tiered_stream.delta.ingest_settings import table_files
from tiered_stream.delta.landing import BoundedRun, Landing, check_settings, plan_landing
from tiered_stream.delta.lane import check_fit, table_schema
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.spark_options import MAX_OFFSETS_PER_TRIGGER
from tiered_stream.replay.comparison import timestamps_within
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.target import CHECKPOINTS, Start, Target, in_batches


@dataclass(frozen=True)
class DeltaTarget(Target):
    """The table by a path (it has a slash in it), or by a name in the catalog. `tasks`: the most at once."""

    spark: SparkSession
    table: str
    given: Mapping[str, str]
    lane: str = "auto"
    tasks: int | None = None

    @property
    def described(self) -> str:
        return f"table {self.table}"

    def default_checkpoint(self, name: str) -> str | None:
        address = find_address(self.spark, self.table)
        if address.uri is None:
            return None
        return f"{table_location(self.spark, address).rstrip('/')}/{CHECKPOINTS}/replay-{name}"

    def check(self, plan: ReplayPlan) -> None:
        parsed = check_settings(self.settings(plan, self.given), self.lane)
        if plan.arguments.replace and self.lane == "direct":
            raise ConfigurationError("the direct lane only appends: with --replace use lane auto or spark")
        address = find_address(self.spark, self.table)
        if address.uri is None:
            return
        found = DeltaSparkTable(self.spark, address).find()
        if found is not None:
            self._check_table(found, plan, parsed.include_headers)

    def prepare(self, plan: ReplayPlan) -> None:
        self._landing(plan, self.settings(plan, self.given), checkpoint="")

    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        """With a limit to micro-batches, unless the user gave one, or all is to be one commit."""
        settings = plan.stream_options(given)
        if plan.arguments.replace:
            limit = MAX_OFFSETS_PER_TRIGGER.name.lower()
            return {name: value for name, value in settings.items() if name.lower() != limit}
        return in_batches(settings, self.tasks or self.spark.sparkContext.defaultParallelism)

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Start:
        landing = self._landing(plan, settings, checkpoint)
        return Start(landing.start(), f"{landing.lane.value} lane, {landing.reason}")

    def _landing(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Landing:
        replaced = replace_where(plan) if plan.arguments.replace else None
        return plan_landing(
            self.spark,
            options=settings,
            table=self.table,
            checkpoint=checkpoint,
            lane=self.lane,
            name=plan.transaction_id,
            bounded=BoundedRun(plan.transaction_id, replaced, self.tasks),
        )

    def _check_table(self, table: DeltaSparkTransaction, plan: ReplayPlan, include_headers: bool) -> None:
        found = table.state.description
        day_column = table_files(self.given).day_column
        check_fit(self.table, found, table_schema(include_headers, day_column), day_column)
        if plan.arguments.replace and found.configuration.get("delta.appendOnly", "false").lower() == "true":
            raise ConfigurationError(
                f"the table {self.table} is append-only (delta.appendOnly), so --replace cannot take rows out of it"
            )
        if table.last_batch(plan.transaction_id) is not None:
            raise ConfigurationError(
                f"the table {self.table} has records of a replay named {plan.name} already, but its checkpoint is not "
                "there: where it stopped is not known, and records would come twice. Give its --checkpoint, or another "
                "--name with --replace, which takes them out first"
            )


def replace_where(plan: ReplayPlan) -> str:
    """The condition on the rows of the plan, in SQL."""
    where = " OR ".join(_within(partition, offsets) for partition, offsets in sorted(plan.ranges.items(), key=_key))
    if not plan.arguments.exact:
        return f"({where})"
    return f"({where}) AND {timestamps_within(plan.times)}"


def _key(item: tuple[TopicPartition, Any]) -> TopicPartition:
    return item[0]


def _within(partition: TopicPartition, offsets: OffsetRange) -> str:
    # Kafka's topic names have no quotes in them.
    where = f"topic = '{partition.topic}' AND partition = {partition.partition}"
    return f"({where} AND offset >= {offsets.start} AND offset < {offsets.end})"

"""A replay into a Delta table, new or there already, by either lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiered_stream.delta.address import find_address, table_location
from tiered_stream.delta.delta_spark_commit import DeltaSparkTable, DeltaSparkTransaction
from tiered_stream.delta.ingest_settings import table_files
from tiered_stream.delta.landing import BoundedRun, Landing, check_settings, plan_landing
from tiered_stream.delta.lane import check_fit, table_schema
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.spark_options import MAX_OFFSETS_PER_TRIGGER
from tiered_stream.replay.comparison import exactly_within, timestamps_within
from tiered_stream.replay.replay_plan import ReplayPlan, without
from tiered_stream.replay.target import Start, Target, checkpoint_in


@dataclass(frozen=True)
class DeltaTarget(Target):
    """The table by a path (it has a slash in it), or by a name in the catalog."""

    lane: str = "auto"

    KIND = "table"

    def default_checkpoint(self, name: str) -> str | None:
        address = find_address(self.spark, self.place)
        return None if address.uri is None else checkpoint_in(table_location(self.spark, address), name)

    def check(self, plan: ReplayPlan) -> None:
        parsed = check_settings(self.settings(plan, self.given), self.lane)
        if plan.arguments.replace and self.lane == "direct":
            raise ConfigurationError("the direct lane only appends: with --replace use lane auto or spark")
        address = find_address(self.spark, self.place)
        found = None if address.uri is None else DeltaSparkTable(self.spark, address).find()
        if found is not None:
            self._check_table(found, plan, parsed.include_headers)

    def prepare(self, plan: ReplayPlan) -> None:
        self._landing(plan, self.settings(plan, self.given), checkpoint="")

    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        settings = plan.stream_options(given)
        if plan.arguments.replace:  # in one commit
            return without(settings, [MAX_OFFSETS_PER_TRIGGER.name])
        return self.in_batches(settings)

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Start:
        landing = self._landing(plan, settings, checkpoint)
        return Start(landing.start(), f"{landing.lane.value} lane, {landing.reason}")

    def _landing(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Landing:
        replaced = replace_where(plan) if plan.arguments.replace else None
        return plan_landing(
            self.spark,
            options=settings,
            table=self.place,
            checkpoint=checkpoint,
            lane=self.lane,
            name=plan.transaction_id,
            bounded=BoundedRun(plan.transaction_id, replaced, self.tasks),
        )

    def _check_table(self, table: DeltaSparkTransaction, plan: ReplayPlan, include_headers: bool) -> None:
        found = table.state.description
        day_column = table_files(self.given).day_column
        check_fit(self.place, found, table_schema(include_headers, day_column), day_column)
        if plan.arguments.replace and (found.configuration or {}).get("delta.appendOnly", "false").lower() == "true":
            raise ConfigurationError(
                f"the table {self.place} is append-only (delta.appendOnly), so --replace cannot take rows out of it"
            )
        if table.last_batch(plan.transaction_id) is not None:
            raise ConfigurationError(
                f"the table {self.place} has records of a replay named {plan.name} already, but its checkpoint is not "
                "there: where it stopped is not known, and records would come twice. Give its --checkpoint, or another "
                "--name with --replace, which takes them out first"
            )


def replace_where(plan: ReplayPlan) -> str:
    """The condition on the rows of the plan, in SQL."""
    where = f"({exactly_within({each: (offsets.start, offsets.end) for each, offsets in plan.ranges.items()})})"
    return f"{where} AND {timestamps_within(plan.times)}" if plan.arguments.exact else where

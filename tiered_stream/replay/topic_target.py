"""A replay into a Kafka topic, of the same cluster or of another."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.spark_options import INCLUDE_HEADERS
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.store import ReplayStore
from tiered_stream.replay.target import Start, Target
from tiered_stream.replay.topic_settings import TopicWrites, as_options, topic_writes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicTarget(Target):
    """The topic by its name, in which `{topic}` stands for the source's. `tasks`: the most at once."""

    spark: SparkSession
    topic: str
    given: Mapping[str, str]
    tasks: int | None = None

    def __post_init__(self) -> None:
        if find_spec("confluent_kafka") is None:
            raise ConfigurationError(
                "a replay into a topic needs the package confluent-kafka: pip install 'tiered-stream[kafka-sink]'"
            )

    @property
    def described(self) -> str:
        return f"topic {self.topic}"

    def default_checkpoint(self, name: str) -> str | None:
        raise ConfigurationError(
            "a replay into a topic has no folder of its own for its checkpoint: give one with --checkpoint"
        )

    def check(self, plan: ReplayPlan) -> None:
        from tiered_stream.replay.target_positions import read_positions
        from tiered_stream.replay.topic_checks import check_topics

        writes = self._writes(plan)
        check_topics(writes, plan)
        for source, found in read_positions(writes, plan.ranges).items():
            start = plan.ranges[source].start
            if found.begun_at > start:
                raise ConfigurationError(
                    f"{writes.target(source.topic)} has records of {source} from offset {found.begun_at} on, of a "
                    f"replay named {plan.name}; this one would begin at {start}: give another --name"
                )

    def prepare(self, plan: ReplayPlan) -> None:
        """Topics are made by those who know how many replicas they should have."""

    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        """With headers, and what the tasks have to know of the target."""
        reading = {**plan.stream_options(given), INCLUDE_HEADERS.name: "true"}
        return as_options(reading, self.topic, plan)

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Start:
        from tiered_stream.replay.topic_source import SOURCE, TopicDataSource, observed

        writes = self._writes(plan)
        self._begin(writes, plan, ReplayStore(self.spark, checkpoint))
        self.spark.dataSource.register(TopicDataSource)
        rows = self.spark.readStream.format(SOURCE).options(**settings).load()
        writer = observed(rows.coalesce(self.tasks) if self.tasks else rows).writeStream.format("noop")
        writer = writer.queryName(plan.transaction_id).option("checkpointLocation", checkpoint)
        how = "in transactions" if writes.transactional else "idempotent, at least once"
        return Start(writer.trigger(availableNow=True).start(), f"into {self.described}, {how}")

    def _writes(self, plan: ReplayPlan) -> TopicWrites:
        return topic_writes(as_options(self.given, self.topic, plan))

    def _begin(self, writes: TopicWrites, plan: ReplayPlan, store: ReplayStore) -> None:
        """Commit where the replay begins, so that a position that is missing later is known to be lost."""
        from tiered_stream.replay.target_positions import Position, commit_positions, lost_positions, read_positions

        found = read_positions(writes, plan.ranges)
        missing = [source for source in plan.ranges if source not in found]
        if missing and store.begun:
            raise lost_positions(writes, missing)
        starts = {source: plan.ranges[source].start for source in missing}
        commit_positions(writes, {source: Position(start, start) for source, start in starts.items()})

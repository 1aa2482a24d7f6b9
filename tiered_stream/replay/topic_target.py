"""A replay into a Kafka topic, of the same cluster or of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.spark_options import INCLUDE_HEADERS
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.store import ReplayStore
from tiered_stream.replay.target import Start, Target
from tiered_stream.replay.topic_settings import TopicWrites, as_options, topic_writes


@dataclass(frozen=True)
class TopicTarget(Target):
    """The topic by its name, in which `{topic}` stands for the source's."""

    KIND = "topic"

    def __post_init__(self) -> None:
        if find_spec("confluent_kafka") is None:
            raise ConfigurationError(
                "a replay into a topic needs the package confluent-kafka: pip install 'tiered-stream[kafka-sink]'"
            )

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

    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        """With headers, and what the tasks have to know of the target."""
        return as_options({**plan.stream_options(given), INCLUDE_HEADERS.name: "true"}, self.place, plan)

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Start:
        from tiered_stream.replay.topic_source import SOURCE, TopicDataSource, observed

        writes = self._writes(plan)
        self._begin(writes, plan, ReplayStore(self.spark, checkpoint))
        self.spark.dataSource.register(TopicDataSource)
        rows = self.spark.readStream.format(SOURCE).options(**settings).load()
        writer = observed(self.limited(rows)).writeStream.format("noop").queryName(plan.transaction_id)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        how = "in transactions" if writes.transactional else "idempotent, at least once"
        return Start(writer.start(), f"into {self.described}, {how}")

    def _writes(self, plan: ReplayPlan) -> TopicWrites:
        return topic_writes(as_options(self.given, self.place, plan))

    def _begin(self, writes: TopicWrites, plan: ReplayPlan, store: ReplayStore) -> None:
        """Commit where the replay begins, so that a position that is missing later is known to be lost."""
        from tiered_stream.replay.target_positions import Position, commit_positions, lost_positions, read_positions

        found = read_positions(writes, plan.ranges)
        starts = {source: offsets.start for source, offsets in plan.ranges.items() if source not in found}
        if starts and store.begun:
            raise lost_positions(writes, starts)
        commit_positions(writes, {source: Position(start, start) for source, start in starts.items()})

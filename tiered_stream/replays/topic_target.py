"""Replay into a Kafka topic of any cluster, by a Spark source whose tasks produce the records.

The source is planned like the source `tiered_stream`, but its rows are counters of its tasks, not records. One task
produces the records of one source partition in a micro-batch, in order. Records below the replay's committed position
were produced before, and are not planned again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from tiered_stream.delta.checkpoint.query_run import started_without_idle_limit
from tiered_stream.delta.write.data_files import totals
from tiered_stream.errors import ConfigurationError
from tiered_stream.extras import check_installed
from tiered_stream.observe.read_metrics import OBSERVATION, ReadMetrics, send
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.spark_options import INCLUDE_HEADERS
from tiered_stream.process.heap_and_gc import settle_worker
from tiered_stream.replays.replay_checkpoint import ReplayStore
from tiered_stream.replays.replay_plan import ReplayPlan
from tiered_stream.replays.target import Target
from tiered_stream.replays.topic_settings import TopicWrites, as_options, topic_writes, without_target
from tiered_stream.spark.executor_python import register_source
from tiered_stream.spark.report_addresses import reporting_options, with_reporting
from tiered_stream.spark.stream_reader import StreamReader

SOURCE = "tiered_stream_topic"
_PREFIX = "task_"
_WHOLE = {counter.name: isinstance(counter.default, int) for counter in fields(ReadMetrics)}
"""Flag of each counter in `ReadMetrics`, by name: True if the counter is a whole number, False if it has a fraction."""


@dataclass(frozen=True)
class TopicTarget(Target):
    """Target that is a Kafka topic; `place` is its name, in which `{topic}` stands for the source topic's name."""

    KIND = "topic"

    def __post_init__(self) -> None:
        check_installed("confluent_kafka", "a replay into a topic")

    @property
    def source_settings(self) -> Mapping[str, str]:
        return without_target(self.user_settings)

    def default_checkpoint(self, name: str) -> str | None:
        raise ConfigurationError(
            "a replay into a topic has no default folder for its checkpoint: give one by --checkpoint"
        )

    def check(self, plan: ReplayPlan) -> None:
        from tiered_stream.replays.target_positions import read_positions
        from tiered_stream.replays.topic_checks import check_topics

        writes = self._writes(plan)
        check_topics(writes, plan)
        for source, position in read_positions(writes, plan.ranges).items():
            start = plan.ranges[source].start
            if position.begun_at > start:
                raise ConfigurationError(
                    f"{writes.target(source.topic)} has records of {source} from offset {position.begun_at} on, of a "
                    f"replay named {plan.name}; this one would begin at {start}: give another --name"
                )

    def settings(self, plan: ReplayPlan) -> dict[str, str]:
        """Return the settings of the query that runs the plan, with `includeHeaders=true`.

        For the tasks, the settings also have the target topic, the replay's name, and a hash of its arguments.
        """
        return as_options({**plan.stream_options(self.user_settings), INCLUDE_HEADERS.name: "true"}, self.place, plan)

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> tuple[StreamingQuery, str]:
        writes = self._writes(plan)
        self._begin(writes, plan, ReplayStore(self.spark, checkpoint))
        register_source(self.spark, TopicDataSource)
        options = with_reporting(reporting_options(self.spark), settings)
        run = self.run(plan, checkpoint)
        rows = run.read(self.spark, SOURCE, options)
        # Spark reports the sums of the tasks' metrics in each `StreamingQueryProgress`.
        writer = rows.observe(OBSERVATION, *totals(_WHOLE)).writeStream.format("noop")
        guarantee = "in transactions" if writes.transactional else "idempotent, at least once"
        with started_without_idle_limit(self.spark):
            query = run.start(self.spark, writer)
        return query, f"into {self.described}, {guarantee}"

    def _writes(self, plan: ReplayPlan) -> TopicWrites:
        return topic_writes(as_options(self.user_settings, self.place, plan))

    def _begin(self, writes: TopicWrites, plan: ReplayPlan, store: ReplayStore) -> None:
        """Commit the plan's start offset as the position of each partition that has no committed position.

        Raises:
            DataLossError: the replay has planned a micro-batch, so the target's cluster has lost a missing position.
        """
        from tiered_stream.replays.target_positions import Position, commit_positions, lost_positions, read_positions

        positions = read_positions(writes, plan.ranges)
        starts = {source: offsets.start for source, offsets in plan.ranges.items() if source not in positions}
        if starts and store.begun:
            raise lost_positions(writes, starts)
        commit_positions(writes, {source: Position(start, start) for source, start in starts.items()})


class TopicDataSource(DataSource):
    """Spark data source whose tasks produce records to the target topic. Each task returns one row with its counters.

    Only `TopicTarget` uses this data source.
    """

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        kinds = {_PREFIX + name: LongType() if whole else DoubleType() for name, whole in _WHOLE.items()}
        return StructType([StructField(name, kind) for name, kind in kinds.items()])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        source = parse_options(without_target(self.options), streaming=True)
        return TopicReader(source, topic_writes(self.options))


class TopicReader(StreamReader):
    """Stream reader whose tasks produce the records at and above the replay's committed positions to the target topic.

    Args:
        options: options of the source.
        writes: target topic, and settings for producing.
    """

    def __init__(self, options: Options, writes: TopicWrites) -> None:
        super().__init__(options)
        self._writes = writes

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_writes": self._writes}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one input partition for each source partition that has offsets to produce.

        An input partition has the source partition's splits, and the addresses to which its task sends counters.
        Offsets below the committed positions are left out.
        """
        from tiered_stream.replays.target_positions import read_positions

        # Records below the positions are not planned, because the source may not have them any more.
        starts, ends = offsets_from_dict(start), offsets_from_dict(end)
        for partition, position in read_positions(self._writes, starts.keys()).items():
            starts[partition] = min(max(starts[partition], position.offset), ends[partition])
        splits = self.splits(offsets_to_dict(starts), end)
        by_partition = groupby(splits, key=lambda split: split.topic_partition)
        partitions = [InputPartition((tuple(group), self.batch_log)) for _, group in by_partition]
        return self.logged(partitions, end, one_report_each=False)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from tiered_stream.replays.produce import produce_splits

        splits, batch_log = partition.value
        addresses = (*self.options.report_addresses, *batch_log)
        spent = produce_splits(splits, self.options, self._writes, lambda metrics: send(metrics, addresses))
        yield pa.RecordBatch.from_pylist([{_PREFIX + name: value for name, value in asdict(spent).items()}])
        settle_worker()

"""Plans of a topic of 1,000,000 segments of 1 GiB (a petabyte), by the metadata topic.

`foreign` million segments more are of other topics.
If `FOLDER` has snapshots of the metadata topic, this is the restart of a query; otherwise it is a query's first run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.rigs.scale.made_up_topics import METADATA_PARTITIONS, MadeUpLocator, MadeUpOffsets, Topics
from tests.rigs.scale.measured import Meter
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from tiered_stream.model import PartitionOffsets, Split, TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.process.heap_and_gc import collect_old_rarely
from tiered_stream.records.value_scan import scan_values

SEGMENTS = 1_000_000
MAY_TAKE, MAY_HOLD, FOREIGN_MAY_TAKE = 3.0, 300.0, 0.2
"""Microseconds and bytes for each segment that stays, and microseconds for each foreign segment."""
_OFFSETS_OF_A_SHARE = 100_000


class Planner:
    """A query's planner in one process, as the stream reader calls it."""

    def __init__(self, topics: Topics, meter: Meter, given: dict[str, str], snapshots: Path | None = None) -> None:
        self._topics = topics
        self.options = parse_options(
            {"kafka.bootstrap.servers": "made-up:9092", "subscribePattern": "t-.*", "startingOffsets": "earliest"}
            | {"remote.log.locator": "metadata-topic", "remote.storage.uri": "file:///made-up"} | given,
            streaming=True,
        )  # fmt: skip
        self.locator = MadeUpLocator(topics, meter, MetadataSnapshots(snapshots) if snapshots else None)
        self.stream = StreamPlanner(self.options, MadeUpOffsets(topics), self.locator)

    def plan(self, start: PartitionOffsets) -> tuple[PartitionOffsets, list[Split]]:
        """Return a micro-batch's end, and its splits."""
        end = self.stream.next_end(start, limited=True)
        if end is start:
            return end, []
        return end, splits_for(self.stream.ranges(start, end), self.options, self.locator, self.stream.topic_ids)

    def at_end(self) -> dict[TopicPartition, int]:
        return {each.topic_partition: self._topics.end(each.topic_partition) for each in self._topics.every_partition}


def run(meter: Meter, topics: Topics, folder: Path) -> None:
    """Measure the triggers of a query, from its start to a new segment at the topic's end."""
    is_restart = any(folder.iterdir())
    planner = Planner(topics, meter, {"maxOffsetsPerTrigger": str(_OFFSETS_OF_A_SHARE)} if is_restart else {}, folder)
    units, goals = _goals(topics)
    name = "restart" if is_restart else "first plan"
    start = planner.stream.initial()
    end, splits = meter.step(name, partial(planner.plan, start), units, goals)
    assert splits and end != start
    if topics.all_segments == 1:
        return
    name = f"next plan, limit of {_OFFSETS_OF_A_SHARE:,} offsets" if is_restart else "next plan, limit of 64 GiB"
    _, splits = meter.step(name, partial(planner.plan, end), units)
    assert splits
    del splits
    at_end = planner.at_end()
    found, _ = meter.step("nothing new", partial(planner.plan, at_end), units)
    assert found is at_end
    partition = topics.every_partition[0]
    topics.untiered[partition.topic_partition] = 1
    _, splits = meter.step("a record in one partition", partial(planner.plan, at_end), units)
    assert len(splits) == 1 and not splits[0].locations
    planner.locator.log.add_segment(partition, topics.segments)
    topics.added[partition.topic_partition] = 1
    _, splits = meter.step("a segment more in one partition", partial(planner.plan, at_end), units)
    assert splits[0].locations


def _goals(topics: Topics) -> tuple[tuple[int, str], tuple[float | None, float | None]]:
    """Return what the first plan counts, and its goals."""
    if topics.all_segments == 1:
        return (topics.foreign, "foreign segment"), (FOREIGN_MAY_TAKE, None)
    return (topics.all_segments, "segment"), (None, None) if topics.foreign else (MAY_TAKE, MAY_HOLD)


def warm_up() -> None:
    """Plan a tiny topic, so that modules are imported, and load the compiled scan."""
    collect_old_rarely()  # as the stream reader does
    topics = Topics(1, 2, 2, foreign=METADATA_PARTITIONS)
    planner = Planner(topics, meter := Meter("warm-up"), {"remote.log.metadata.snapshot.dir": "none"})
    planner.plan(planner.stream.initial())
    log = planner.locator.log._fetch_once(TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0), 0, 1)
    with meter.outside():
        partition = topics.every_partition[0]
        for _, values in scan_values(log.records, {partition.topic_id.bytes: partition.topic_partition.topic}):
            list(values)


def measure(scale: float, folder: Path, partitions: int, foreign: float) -> Meter:
    # A single partition stands for almost no segments: then foreign segments are all that is read.
    segments = max(1, round(SEGMENTS * scale / partitions)) if partitions > 1 else 1
    topics = Topics(1, partitions, segments, foreign=round(foreign * 1e6 * scale))
    warm_up()
    others = f", {topics.foreign:,} foreign" if topics.foreign else ""
    meter = Meter(f"{topics.all_segments:,} segments in {partitions:,} partitions{others}")
    run(meter, topics, folder)
    return meter

"""One query with 2,000 topics for 2,000 tables: what a trigger costs the planner, and what the driver then does.

Spark's part of a trigger, and brokers' responses, are left out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.rigs.scale.made_up_topics import Topics
from tests.rigs.scale.measured import Meter
from tests.rigs.scale.segments import Planner, warm_up
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.landing.data_files_readers import KnownRules, TasksWrite
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.schema.routing import Route, Routing, TaskSettings
from tiered_stream.delta.schema.row_plan import plan_topics
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.model import PartitionOffsets

TOPICS, PARTITIONS, SEGMENTS = 2000, 4, 10
TASKS = 8


def tasks_write(lake: Path) -> TasksWrite:
    """What the planner knows of the query's tables."""
    spec = replace(table_spec({"ingest.includeHeaders": "false"}), uri=f"{lake}/{{topic}}", tasks=TASKS)
    rows = plan_topics(spec, [], include_headers=False)
    routing = Routing(spec, (Route(".*", f"{lake}/{{topic}}", f"{lake}/{{topic}}"),), rows=rows)
    return TasksWrite(TaskSettings(routing))


def measure(scale: float, folder: Path) -> Meter:
    warm_up()
    topics = Topics(max(2, round(TOPICS * scale)), PARTITIONS, SEGMENTS)
    units = (topics.topics, "topic")
    meter = Meter(f"{topics.topics:,} topics of {PARTITIONS} partitions, {topics.topics:,} tables")
    write, known = tasks_write(folder), KnownRules()
    spec = write.routing.spec
    for name in topics.names:
        create_table(replace(spec, uri=f"{folder}/{name}"), table_schema(False, None), {})

    planner = Planner(topics, meter, {"remote.log.metadata.snapshot.dir": "none"})

    def trigger(start: PartitionOffsets) -> int:
        end, splits = planner.plan(start)
        return len(write.partitions(splits, known)) if end is not start else 0

    start = planner.stream.initial()
    meter.step("first plan", partial(trigger, start), units)
    at_end = planner.at_end()
    meter.step("idle", partial(trigger, at_end), units)
    topics.untiered[topics.every_partition[0].topic_partition] = 1
    meter.step("one busy topic", partial(trigger, at_end), units)
    topics.untiered = {each.topic_partition: 1 for each in topics.every_partition}
    meter.step("all busy", partial(trigger, at_end), units)
    return meter

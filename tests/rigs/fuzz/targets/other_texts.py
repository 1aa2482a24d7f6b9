"""A Delta table's log, the plan of a replay."""

from __future__ import annotations

import json
from random import Random
from uuid import UUID

from tests.rigs.fuzz.mutation import one, spoiled_json
from tests.rigs.fuzz.target import Target
from tests.rigs.fuzz.targets.settings import folder
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.replay.replay_plan import ReplayArguments, ReplayPlan

METADATA = '{"topicIds":{"t":"AAAAAAAAAAAAAAAAAAAAAQ"}}'
ACTIONS = (
    {"txn": {"appId": "query", "version": 7, "lastUpdated": 1}},
    {"add": {"path": "day=1/a%20b.parquet", "size": 10, "stats": "{}", "dataChange": True}},
    {"remove": {"path": "c.parquet", "deletionTimestamp": 3}},
    {"commitInfo": {"operation": "WRITE", "path": "x", "userMetadata": METADATA}},
)


def commit(random: Random) -> bytes:
    lines = [json.dumps(each).encode() for each in ACTIONS]
    at = int(random.random() * len(lines))
    lines[at] = spoiled_json(random, ACTIONS[at])
    if random.random() < 0.3:
        told = spoiled_json(random, json.loads(METADATA)).decode(errors="replace")
        lines[-1] = json.dumps({"commitInfo": {"userMetadata": told}}).encode()
    return b"\n".join(lines) + one(random, (b"\n", b"", b"\r\n", b"\n\n"))


def look_back(data: bytes) -> None:
    log = folder() / "table" / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{3:020d}.json").write_bytes(data)
    looked = TableLog(TableSpec((folder() / "table").as_uri()))
    looked.newest_batch("query", 3, 3)
    looked.topic_ids("query", 3, 3)


ARGUMENTS = ReplayArguments(("subscribe", "t"), "-3h", None, "table s3a://lake/t")
PLAN = ReplayPlan("mend", ARGUMENTS, TimeRange(5, 9), {TopicPartition("t", 0): OffsetRange(3, 8)}, {"t": UUID(int=7)})
REPLAY_PLAN = json.loads(PLAN.to_json())


TARGETS = (
    Target("replay-plan", lambda random: spoiled_json(random, REPLAY_PLAN), ReplayPlan.from_json),
    Target("delta-log", commit, look_back),
)

"""500 topics into 500 tables by one query, its driver killed on the way: `python -m tests.delta.many_topics`.

A third of them has JSON, a third Avro by a real schema registry, a third bytes. Every record has to be in its table
once, with every value. A record tells its topic, partition and offset, so that none can be taken for another.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from fastavro import schemaless_writer
from rich.console import Console

from tests.delta.driver import kill_group, start_program
from tests.rigs.stack.apicurio import Apicurio
from tests.rigs.stack.processes import LONG, wait_until
from tests.rigs.stack.rows import Record
from tests.tier.topics import write_topic

console = Console(highlight=False, soft_wrap=True)

_PAUSE = 0.5
"""Seconds between looks at all logs, which takes a tenth of that."""
FORMATS = ("json", "avro", "binary")
PARTITIONS, BATCH_RECORDS, BATCHES = 2, 20, 6
"""Of each topic; records in a record batch, and record batches in a partition."""
RECORDS = PARTITIONS * BATCH_RECORDS * BATCHES
_DDL = "id BIGINT, name STRING, price DOUBLE, paid BOOLEAN, note STRING"
_OLD: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string"},
    {"name": "price", "type": ["null", "double"]},
    {"name": "paid", "type": "boolean"},
]
_NEW = [*_OLD, {"name": "note", "type": ["null", "string"], "default": None}]
"""The first half of a partition has no notes, and in Avro an older schema."""
_MILLISECONDS = 1_700_000_000_000


@dataclass(frozen=True)
class Drive:
    """What one driver process does: everything there is, in micro-batches of so many offsets."""

    bucket: str
    folder: str
    limit: int
    given: Mapping[str, str]

    @property
    def lake(self) -> Path:
        return Path(self.folder, "lake")

    def start(self) -> subprocess.Popen[bytes]:
        """In a process group of its own."""
        return start_program(Path(self.folder, "log"), "tests.delta.many_topics", "drive", json.dumps(asdict(self)))

    def commits(self) -> int:
        """Of all tables, but for those that made them."""
        logs = self.lake.glob("*/_delta_log/*.json")
        return sum(not file.name.endswith("0" * 20 + ".json") and not file.name.startswith(".") for file in logs)


def drive(run: Drive) -> None:
    from tests.rigs.stack.spark import spark_session
    from tiered_stream import land

    spark = spark_session("many topics", groups=("delta",))
    options = {
        "remote.log.locator": "archive",
        "remote.storage.layout": "aiven",
        "remote.storage.uri": Path(run.bucket).as_uri(),
        "subscribePattern": f"({'|'.join(FORMATS)})-.*",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(run.limit),
        **run.given,
    }
    query = land(spark, options=options, table=f"{run.lake}/{{topic}}", checkpoint=f"{run.folder}/checkpoint")
    query.awaitTermination()
    spark.stop()


def run_all(run: Drive, topics: int, kills: int, random: Random) -> None:
    """To the end; the driver dies when the tables have so many commits, a number within each part of the way."""
    batches = -(-topics * RECORDS // run.limit)
    part = topics * batches / (kills + 1)
    for number in range(kills):
        at = int(part * (number + random.uniform(0.3, 0.9)))
        _until(run, at)
        console.print(f"killed after {run.commits():,} commits of {topics * batches:,}")
    process = run.start()
    status = process.wait(LONG)
    kill_group(process.pid)
    assert status == 0, Path(run.folder, "log").read_text()[-4000:]


def _until(run: Drive, commits: int) -> None:
    process = run.start()
    try:
        wait_until(
            lambda: run.commits() >= commits or process.poll() is not None,
            f"{commits} commits",
            timeout=LONG,
            pause=_PAUSE,
        )
        assert process.poll() is None, Path(run.folder, "log").read_text()[-4000:]
    finally:
        kill_group(process.pid)
        assert process.wait() in (-signal.SIGKILL, 1)


def check(run: Drive, topics: Sequence[str]) -> None:
    """Each record is in its topic's table, once."""
    assert sorted(each.name for each in run.lake.iterdir()) == sorted(topics)
    for topic in topics:
        check_table(run.lake / topic)


def land_all(folder: Path, topics: int, kills: int, batches: int, seed: int, **given: str) -> Drive:
    """Make the topics, land them, check the tables."""
    names = topic_names(topics)
    with Apicurio(folder) as registry:
        write_topics(folder / "tier", names, registry)
        given |= format_settings(names, registry)
        run = Drive(str(folder / "tier"), str(folder), topics * RECORDS // batches, given)
        run_all(run, topics, kills, Random(seed))
    check(run, names)
    return run


def topic_names(count: int) -> list[str]:
    """A topic's number says its format, so that its name has to."""
    return [f"{FORMATS[number % len(FORMATS)]}-{number:04d}" for number in range(count)]


def format_of(topic: str) -> str:
    return topic.partition("-")[0]


def write_topics(bucket: Path, topics: Sequence[str], registry: Apicurio) -> None:
    """All topics, tiered, and the schemas of those in Avro."""
    for topic in topics:
        ids = (
            [registry.register(f"{topic}-value", _schema(topic, each)) for each in (_OLD, _NEW)]
            if format_of(topic) == "avro"
            else []
        )
        partitions = [
            [_record(topic, partition, offset, ids) for offset in range(BATCH_RECORDS * BATCHES)]
            for partition in range(PARTITIONS)
        ]
        write_topic(bucket, topic, partitions, batch_records=BATCH_RECORDS)


def format_settings(topics: Sequence[str], registry: Apicurio) -> dict[str, str]:
    """What the job is told of the topics' values."""
    schemas = {"json": _DDL, "avro": "registry"}
    told = {
        f"ingest.topic.{topic}.value.{name}": value
        for topic in topics
        if (schema := schemas.get(format_of(topic)))
        for name, value in (("format", format_of(topic)), ("schema", schema))
    }
    return {"ingest.schema.registry.url": registry.url, **told}


def check_table(table: Path) -> None:
    """Every record of the topic by that name is in the table, once, as it was meant.

    Raises AssertionError: it is not.
    """
    topic = table.name
    decoded = {"id": pa.int64(), "name": pa.string(), "price": pa.float64(), "paid": pa.bool_(), "note": pa.string()}
    plain = {"value": pa.binary()}
    of_value = plain if format_of(topic) == "binary" else decoded
    found = DeltaTable(table).to_pyarrow_table()
    assert {each.name: each.type for each in found.schema if each.name in of_value} == of_value, found.schema
    rows = found.select(["partition", "offset", "topic", "key", *of_value]).to_pylist()
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == [
        {"partition": partition, "offset": offset, "topic": topic, "key": b"k%d" % offset}
        | ({"value": _bytes(topic, partition, offset)} if of_value is plain else _order(topic, partition, offset))
        for partition in range(PARTITIONS)
        for offset in range(BATCH_RECORDS * BATCHES)
    ], topic


def _schema(topic: str, fields: Sequence[Any]) -> str:
    return json.dumps({"type": "record", "name": topic.replace("-", "_"), "fields": fields})


def _record(topic: str, partition: int, offset: int, schema_ids: Sequence[int]) -> Record:
    return Record(b"k%d" % offset, _value(topic, partition, offset, schema_ids), (), _MILLISECONDS + offset)


def _value(topic: str, partition: int, offset: int, schema_ids: Sequence[int]) -> bytes | None:
    if format_of(topic) == "binary":
        return _bytes(topic, partition, offset)
    order = _order(topic, partition, offset)
    if format_of(topic) == "json":
        return json.dumps({name: value for name, value in order.items() if value is not None}).encode()
    old = _is_old(offset)
    written = io.BytesIO()
    schemaless_writer(written, json.loads(_schema(topic, _OLD if old else _NEW)), order)
    return b"\0" + schema_ids[0 if old else 1].to_bytes(4) + written.getvalue()


def _order(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {
        "id": offset * 10 + partition,
        "name": f"{topic} é {partition}-{offset}",
        "price": None if offset % 5 == 0 else offset / 8,
        "paid": offset % 3 == 0,
        "note": None if _is_old(offset) else f"note {offset}",
    }


def _is_old(offset: int) -> bool:
    return offset < BATCH_RECORDS * BATCHES // 2


def _bytes(topic: str, partition: int, offset: int) -> bytes | None:
    return None if offset % 7 == 0 else b"\0\xff%s %d-%d" % (topic.encode(), partition, offset)


def main() -> None:
    topics, kills = int(sys.argv[1]) if len(sys.argv) > 1 else 500, 5
    with tempfile.TemporaryDirectory(prefix="many-topics-") as name:
        land_all(Path(name), topics, kills, 4, time.time_ns() % 1000)
    console.print(f"{topics} topics, {topics * RECORDS:,} records: each in its table, once, after {kills} kills")


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        drive(Drive(**json.loads(sys.argv[2])))
    else:
        main()

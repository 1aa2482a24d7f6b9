"""A Delta table's log, the plan of a replay, constraints, settings of rows, names of schemas, and requests to fork."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from uuid import UUID

import orjson
import pyarrow as pa

from tests.rigs.fuzz.mutation import below, number, one, spoiled, spoiled_json, spoiled_text
from tests.rigs.fuzz.target import Target
from tests.rigs.fuzz.targets.settings import folder
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.settings.row_settings import ROW_OPTIONS, row_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.decoded import ByteSlices
from tiered_stream.formats.registry.registry_protobuf import message_indexes
from tiered_stream.formats.registry.writer_schemas import BAD_HEADER, NONE, PREFIX_SIZE, named_schemas
from tiered_stream.formats.rows.table_rules import UncertainCheckError, parse_check
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.pythons.fork_server import parse_request
from tiered_stream.records.arrow import HEADERS_TYPE
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan

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


ROWS = pa.RecordBatch.from_pydict({"n": [1, None], "x": [0.5, None], "s": ["a", None], "b": [True, None]})
CHECKS = (
    "n > 0 AND NOT (x <= 1.5 OR s IN ('a', 'b'))", "n BETWEEN -1 AND 5 or b = true", "`s` is not null and 3 <> n",
    "n not in (1, 2, 3)", "length(s) > 1",
)  # fmt: skip
ROW_VALUES = (
    "json",
    "a INT",
    "registry",
    "infer",
    "5%",
    "100",
    "deadLetter",
    "none",
    "offset as o, topic",
    "add",
    "debezium",
)


def check_constraint(data: bytes) -> None:
    with suppress(UncertainCheckError):
        found = parse_check(data.decode(errors="replace"), ROWS.schema)[0](ROWS)
        assert found.type == pa.bool_() and len(found) == ROWS.num_rows


def read_row_settings(data: bytes) -> None:
    given = {}
    with suppress(ValueError):
        given = orjson.loads(data)
    if isinstance(given, dict):
        with suppress(ConfigurationError):
            row_settings({name: str(value) for name, value in given.items()})


def row_options(random: Random) -> bytes:
    given = {one(random, ROW_OPTIONS).name: one(random, ROW_VALUES) for _ in range(4)}
    return spoiled_json(random, given)


HEADER = "__value_schema_id"
GOOD = b"\1" + bytes(range(16))


def name_content(random: Random) -> bytes:
    """Of a header or of a value."""
    name = one(random, (GOOD, b"\0\0\0\0\7", b"\0\xff\0\0\0", b"\1", b""))
    made = name + one(random, (b"\0", b"\2\2", b"\4\0\1", b"\xff" * 12, bytes(below(random, 700))))
    return spoiled(random, made) if random.random() < 0.7 else made


def read_names(data: bytes) -> None:
    headers = pa.array([[{"key": HEADER, "value": data}], None, [{"key": HEADER, "value": GOOD}]], HEADERS_TYPE)
    named = named_schemas(ByteSlices.of(pa.array([b"x", data, b"y"], pa.binary())), HEADER, headers)
    by_header, in_front, good = named.numbers.tolist()
    assert by_header >= 0 or by_header == BAD_HEADER
    assert NONE <= in_front < 1 << 31 and named.sizes.tolist() == [0, PREFIX_SIZE if in_front >= 0 else 0, 0]
    # What other records have makes no difference to one.
    assert named.guids[good].bytes == GOOD[1:]
    for rest in (*named.header_rests, data):
        indexes, size = message_indexes(rest)
        assert 0 <= size <= len(rest) and len(indexes) <= 64 and bool(size) == bool(indexes)


_REQUEST_FIELDS = (
    b"3",
    b"/work",
    b"-m",
    b"pyspark.daemon",
    b"pyspark.worker",
    b"PYTHONPATH=/a:/b",
    b"LANG=C",
    b"EMPTY=",
)


def request_fields(random: Random) -> bytes:
    count = b"%d" % number(random) if random.random() < 0.3 else _REQUEST_FIELDS[0]
    return spoiled(random, b"\0".join((count, *_REQUEST_FIELDS[1:])))


TARGETS = (
    Target("replay-plan", lambda random: spoiled_json(random, REPLAY_PLAN), ReplayPlan.from_json),
    Target("delta-log", commit, look_back),
    Target(
        "table-checks",
        lambda random: spoiled_text(random, one(random, CHECKS)).encode(errors="replace"),
        check_constraint,
    ),
    Target("row-settings", row_options, read_row_settings),
    Target("schema-names", name_content, read_names),
    Target("fork-requests", request_fields, parse_request, (ValueError,)),
)

"""Hostile names: topics, partitions, columns, subjects, users and properties on their way into paths, SQL and URLs.

`tests.rigs.hostile_names` takes such names through a real Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from random import Random
from types import SimpleNamespace
from urllib.parse import unquote
from uuid import UUID

import orjson

from tests.rigs.fuzz.mutation import CHARACTERS, below, fixed, one, spoiled_text
from tests.rigs.fuzz.target import Target
from tests.rigs.fuzz.targets import relayed_streams
from tests.tier.metadata import FINISHED, segment_record
from tiered_stream.broker.cluster_metadata import read_topics
from tiered_stream.broker.login.sasl import parse_jaas
from tiered_stream.delta.schema.routing import Route, Routing, name_parts, quoted_name, table_for
from tiered_stream.delta.schema.row_plan import plan_rows
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.schema.sql_types import sql_columns, sql_name, sql_text
from tiered_stream.delta.settings.ingest_settings import (
    COLUMN_MAPPING,
    PROPERTY_PREFIX,
    TableSpec,
    table_spec,
)
from tiered_stream.errors import TieredStreamError
from tiered_stream.export.target_files import ExportFolder, Manifest
from tiered_stream.formats.registry.schema_registry import subject_path
from tiered_stream.gateway.protocol.frames import FrameError, frame
from tiered_stream.gateway.sockets.frame_memory import MemoryShortError
from tiered_stream.locate.metadata_topic.remote_log_metadata import SegmentMetadata, decode_remote_log_metadata
from tiered_stream.model import RemoteLogSegment, TopicPartition, is_topic_name
from tiered_stream.options.offset_json import offsets_from_dict
from tiered_stream.replays.replay_plan import check_name
from tiered_stream.replays.target import checkpoint_in
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.local_layout import object_key

WORDS = (
    "orders", "Orders", "orders--raw", "orders/*", "orders.raw", "a`b", "``", "`", "..", ".", "../x", "/etc/x", "-- x",
    "_delta_log", "{topic}", "x;DROP TABLE t", "\x1b[2J", "\u202e", "a\nb", "ORDERS", "old_orders", "'", "\\'", "=3D",
    "x" * 249, "__HIVE_DEFAULT_PARTITION__", "%2e%2e%2f", "оrders", "\u200b", "${env:HOME}", "--dry-run", "day=1",
)  # fmt: skip
ROUTES = (
    Route(".*", "/lake/{topic}/raw", "file:///lake/{topic}/raw"),
    Route("old.*", "lake.old_{topic}", "s3://lake/lake.db/old_{topic}", in_lower_case=True),
    Route(".*", "lake.{topic}", "s3://lake/lake.db/{topic}", in_lower_case=True),
)


def names(random: Random) -> bytes:
    """Two names as JSON, each of hostile words and characters."""
    made = ["".join(one(random, (*WORDS, *CHARACTERS)) for _ in range(1 + below(random, 3))) for _ in range(2)]
    return orjson.dumps([spoiled_text(random, each) if random.random() < 0.2 else each for each in made])


def go_through(data: bytes) -> None:
    first, second = _two(data)
    for name in (first, second):
        _topic(name)
        _sql(name)
        assert "/" not in subject_path(name) and unquote(subject_path(name)) == name
        assert subject_path(name) not in (".", "..")
        _user(name)
        _column(name)
        _replay(name)
        _gateway(name)
    _apart(first, second)


def _two(data: bytes) -> tuple[str, str]:
    try:
        first, second = orjson.loads(data)
    except (ValueError, TypeError):
        first, second = data.decode("utf-8", "replace"), ""
    return str(first), str(second)


@contextmanager
def refused() -> Iterator[None]:
    """Suppress an error of this package, whose text must be one line that controls no terminal."""
    try:
        yield
    except TieredStreamError as error:
        assert str(error).isprintable(), "a name adds a line to an error"


def _topic(name: str) -> None:
    """A topic is refused where it comes in, or leads to a file and to tables within their folders."""
    legal = is_topic_name(name)
    partition = SimpleNamespace(partition_index=0, leader_id=1, leader_epoch=0)
    described = SimpleNamespace(name=name, error_code=0, topic_id=None, is_internal=False, partitions=[partition])
    with refused():
        assert list(read_topics(SimpleNamespace(topics=[described], API_VERSION=9))[0]) == [name] and legal
    with refused():
        assert list(offsets_from_dict({name: {"0": 5}})) == [TopicPartition(name, 0)] and legal
    planted = {
        "version": 1, "arguments": {"settings": {}}, "format": "parquet", "finished": True,
        "startOffsets": {name: {"0": 0}}, "endOffsets": {name: {"0": 5}}, "topicIds": {},
    }  # fmt: skip
    Manifest.from_json(orjson.dumps({**planted, "startOffsets": {}, "endOffsets": {}}))  # but for the name, it is right
    with refused():
        (exported,) = Manifest.from_json(orjson.dumps(planted)).ranges
        assert ExportFolder(Path("/target")).file_of(exported, "parquet").parent == Path("/target") and legal
    with refused():
        Manifest.from_json(orjson.dumps({**planted, "startOffsets": {}, "endOffsets": {}, "format": name}))
        assert "/" not in name
    for route in ROUTES:
        with refused():
            folder = PurePosixPath(route.uri_for(name).partition("://")[2])
            above = PurePosixPath(route.folder.partition("://")[2].partition("{topic}")[0]).parent
            assert legal and ".." not in folder.parts and folder.is_relative_to(above)
            assert len(folder.parts) == len(PurePosixPath(route.folder.partition("://")[2]).parts)
            if "/" not in route.table:
                assert len(name_parts(table_for(route.table, name))) == 2


def _sql(name: str) -> None:
    """A name is one identifier, a text is one literal, and nothing of them is read as SQL or as a variable."""
    with refused():
        quoted = sql_name([name])
        assert quoted[0] == quoted[-1] == "`" and quoted[1:-1].replace("``", "") == name.replace("`", "")
        assert quoted[1:-1].count("`") % 2 == 0 and "${" not in quoted
    assert "${" not in sql_text(name)
    inner, escaped = sql_text(name)[1:-1], False
    for char in inner:
        assert escaped or char != "'"
        escaped = char == "\\" and not escaped
    assert not escaped
    with refused():
        parts = name_parts(name)
        assert all(map(str.isprintable, parts)) and name_parts(quoted_name(parts)) == parts


def _user(name: str) -> None:
    text = name.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'a.b.PlainLoginModule required username="{text}";').options == {"username": name}


def _column(name: str) -> None:
    """A field of values is a column of that name, or is refused."""
    schema = {"type": "object", "properties": {name: {"type": "integer"}}}
    for mapped in ({}, {f"{PROPERTY_PREFIX}{COLUMN_MAPPING}": "name"}):
        with refused():
            settings = {"ingest.value.format": "json", "ingest.value.schema": orjson.dumps(schema).decode(), **mapped}
            columns = spark_columns(plan_rows(table_spec(settings), include_headers=False).written, None)
            assert columns.names[1] == name
            sql_columns(columns)


def _replay(name: str) -> None:
    """A replay's checkpoint is in its folder."""
    with refused():
        folder = PurePosixPath(checkpoint_in("/table", check_name(name)))
        assert folder.parent == PurePosixPath("/table/_checkpoints") and folder.name == f"replay-{name}"


def _gateway(name: str) -> None:
    """A topic of the metadata topic is refused, or leads to objects in its folder. A peer's names add no lines.

    The names are in a SaslHandshake of version 1 and a Metadata of version 8, and in the responses.
    """
    segment = RemoteLogSegment(TopicPartition(name, 3), UUID(int=1), UUID(int=2), 0, 9, 100)
    with refused():
        metadata = decode_remote_log_metadata(segment_record(segment, FINISHED))
        assert isinstance(metadata, SegmentMetadata) and is_topic_name(name)
        for key in (object_key(segment, ".log"), main_path(segment)):
            assert PurePosixPath(key).parts[0].startswith(f"{name}-") and ".." not in PurePosixPath(key).parts
    text = name.encode("utf-8", "replace")[: 1 << 10]
    text = fixed(len(text), 2) + text
    requests = fixed(17, 2) + fixed(1, 2) + fixed(7, 4) + text + text, fixed(3, 2) + fixed(8, 2) + fixed(8, 4) + text
    requests = requests[0], requests[1] + fixed(1, 4) + text + bytes(3)
    brokers, topics = fixed(1, 4) + fixed(7, 4) + text + fixed(9092, 4) + text, fixed(1, 4) + bytes(2) + text + bytes(9)
    answers = (
        fixed(7, 4) + fixed(33, 2) + fixed(1, 4) + text,
        fixed(8, 4) + bytes(4) + brokers + text + bytes(4) + topics,
    )
    client, broker = b"".join(map(frame, requests)), b"".join(map(frame, (answers[0], answers[1] + bytes(4))))
    try:
        relayed_streams.relay(fixed(len(client), 4) + client + broker)
    except (FrameError, MemoryShortError, OSError, TieredStreamError) as error:
        assert str(error).isprintable(), "a client or a broker adds a line to the log"


def _apart(first: str, second: str) -> None:
    """Two topics have two tables, or are refused."""
    for routes in (ROUTES[:1], ROUTES[1:]):
        routing = Routing(TableSpec(""), routes)
        with refused():
            routing.check_separate_tables([first, second])
            folders = {routing.route(topic).uri_for(topic) for topic in (first, second)}
            assert len(folders) == len({first, second})


TARGETS = (Target("names", names, go_through, refusals=()),)

"""Hostile names: topics, partitions, columns, subjects, users and properties on their way into paths, SQL and URLs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path, PurePosixPath
from random import Random
from types import SimpleNamespace
from urllib.parse import unquote

import orjson

from tests.rigs.fuzz.mutation import CHARACTERS, below, one, spoiled_text
from tests.rigs.fuzz.target import Target
from tiered_stream.broker.cluster_metadata import read_topics
from tiered_stream.broker.login.sasl import parse_jaas
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.delta.schema.table_names import name_parts, quoted_name, table_for
from tiered_stream.delta.settings.ingest_settings import TableFiles, TableStorage
from tiered_stream.errors import TieredStreamError
from tiered_stream.export.target_files import ExportFolder, Manifest
from tiered_stream.formats.registry.schema_registry import subject_path
from tiered_stream.model import TopicPartition, is_topic_name
from tiered_stream.options.offset_json import offsets_from_dict

WORDS = (
    "orders", "Orders", "orders--raw", "orders/*", "orders.raw", "a`b", "``", "`", "..", ".", "../x", "/etc/x", "-- x",
    "_delta_log", "{topic}", "x;DROP TABLE t", "\x1b[2J", "\u202e", "a\nb", "ORDERS", "old_orders", "'", "\\'", "=3D",
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
    _apart(first, second)


def _two(data: bytes) -> tuple[str, str]:
    try:
        first, second = orjson.loads(data)
    except (ValueError, TypeError):
        first, second = data.decode("utf-8", "replace"), ""
    return str(first), str(second)


def _topic(name: str) -> None:
    """A topic is refused where it comes in, or leads to a file and to tables within their folders."""
    legal = is_topic_name(name)
    described = SimpleNamespace(name=name, error_code=0, topic_id=None, is_internal=False, partitions=())
    with suppress(TieredStreamError):
        assert list(read_topics(SimpleNamespace(topics=[described], API_VERSION=9))[0]) == [name] and legal
    with suppress(TieredStreamError):
        assert list(offsets_from_dict({name: {"0": 5}})) == [TopicPartition(name, 0)] and legal
    planted = {
        "version": 1, "arguments": {}, "format": "parquet", "finished": True,
        "startOffsets": {name: {"0": 0}}, "endOffsets": {name: {"0": 5}}, "topicIds": {},
    }  # fmt: skip
    with suppress(TieredStreamError):
        (partition,) = Manifest.from_json(orjson.dumps(planted)).ranges
        assert ExportFolder(Path("/target")).file_of(partition, "parquet").parent == Path("/target") and legal
    with suppress(TieredStreamError):
        Manifest.from_json(orjson.dumps({**planted, "startOffsets": {}, "endOffsets": {}, "format": name}))
        assert "/" not in name
    for route in ROUTES:
        with suppress(TieredStreamError):
            folder = PurePosixPath(route.uri_for(name).partition("://")[2])
            above = PurePosixPath(route.folder.partition("://")[2].partition("{topic}")[0]).parent
            assert legal and ".." not in folder.parts and folder.is_relative_to(above)
            assert len(folder.parts) == len(PurePosixPath(route.folder.partition("://")[2]).parts)
            if "/" not in route.table:
                assert len(name_parts(table_for(route.table, name))) == 2


def _sql(name: str) -> None:
    """A name is one identifier, a text is one literal, and nothing of them is read as SQL."""
    quoted = sql_name([name])
    assert quoted[0] == quoted[-1] == "`" and quoted[1:-1].replace("``", "") == name.replace("`", "")
    assert quoted[1:-1].count("`") % 2 == 0
    inner, escaped = sql_text(name)[1:-1], False
    for char in inner:
        assert escaped or char != "'"
        escaped = char == "\\" and not escaped
    assert not escaped
    with suppress(TieredStreamError):
        parts = name_parts(name)
        assert all(map(str.isprintable, parts)) and name_parts(quoted_name(parts)) == parts


def _user(name: str) -> None:
    text = name.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'a.b.PlainLoginModule required username="{text}";').options == {"username": name}


def _apart(first: str, second: str) -> None:
    """Two topics have two tables, or are refused."""
    for routes in (ROUTES[:1], ROUTES[1:]):
        routing = Routing({}, TableFiles("", TableStorage()), routes)
        with suppress(TieredStreamError):
            routing.check_apart([first, second])
            folders = {routing.route(topic).uri_for(topic) for topic in (first, second)}
            assert len(folders) == len({first, second})


TARGETS = (Target("names", names, go_through, refusals=()),)

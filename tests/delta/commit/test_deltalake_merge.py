"""Rows of tables of the latest state after runs of a query with deltalake's MERGE, and without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from tests.delta import toasted_rows
from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.dead_letter_model.without_spark import Session
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land
from tiered_stream.errors import ConfigurationError

pytestmark = pytest.mark.costly

TEXT = ["null", "string"]
FIELDS = {1: ("id", "note"), 2: ("id",)}
"""Fields of each version of the schema of values."""


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as server:
        for number, names in FIELDS.items():
            fields = [{"name": name, "type": "long" if name == "id" else TEXT, "default": None} for name in names]
            fields[0].pop("default")
            text = orjson.dumps({"type": "record", "name": "o", "fields": fields}).decode()
            server.schemas[number] = {"schema": text}
        yield server


def value(version: int, key: int, note: str = "") -> Record:
    texts = b"".join(b"\2" + bytes([2 * len(note)]) + note.encode() for _ in FIELDS[version][1:])
    return Record(orjson.dumps({"id": key}), b"\0" + version.to_bytes(4) + bytes([2 * key]) + texts)


class Topic:
    """A topic with one partition, and its table."""

    def __init__(self, folder: Path, name: str = "table", **given: str) -> None:
        self.folder, self.name, self.given, self.end = folder, name, given, 0

    def land(self, records: Sequence[Record], **given: str) -> list[dict[str, Any]]:
        """Land the records, and return the table's rows."""
        write_topic(self.folder / "bucket", "orders", [records], self.end)
        self.end += len(records)
        options = topic_options(self.folder / "bucket", "orders", {**self.given, **given})
        session = Session()
        with session.installed():
            query = land(
                session,  # type: ignore[arg-type]
                options=options, table=str(self.folder / self.name), checkpoint=str(self.folder / "c"), lane="direct",
            )  # fmt: skip
            query.awaitTermination(60)
        rows: list[dict[str, Any]] = self.table.to_pyarrow_table().to_pylist()
        return rows

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.folder / self.name.replace("{topic}", "orders"))


class RegisteredTopic(Topic):
    """A topic of values in Avro, and its table of the latest state."""

    def __init__(self, folder: Path, registry: ScriptedRegistry, name: str = "table", **given: str) -> None:
        self.registry = registry
        super().__init__(
            folder, name,
            **{"ingest.mode": "upsert", "ingest.keys": "id", "ingest.value.format": "avro",
               "ingest.value.schema": "registry", "ingest.schema.registry.url": registry.url, **given},
        )  # fmt: skip

    def run(self, newest: int, *records: Record, **given: str) -> list[dict[str, Any]]:
        """Land the records, while the schema `newest` is the newest one, and return the table's rows."""
        self.registry.versions["orders-value", "latest"] = {**self.registry.schemas[newest], "id": newest}
        rows = self.land(records, **given)
        named = [{name: each[name] for name in ("id", "note", "own") if name in each} for each in rows]
        return sorted(named, key=lambda row: row["id"])


@pytest.mark.parametrize("evolution", ["none", "add"])
@pytest.mark.parametrize("starts_again", [False, True])
@pytest.mark.parametrize("name", ["table", "{topic}"])
def test_a_row_has_the_fields_of_its_record_whichever_schema_was_the_newest_at_the_start(
    tmp_path: Path, registry: ScriptedRegistry, evolution: str, starts_again: bool, name: str
) -> None:
    topic = RegisteredTopic(
        tmp_path, registry, name, **{"ingest.schemaEvolution": evolution, "maxOffsetsPerTrigger": "1"}
    )
    batches = [value(1, 1, "a")], [value(1, 2, "b"), value(1, 3, "c")], [value(2, 1)], [value(1, 2, "later")]
    if starts_again:
        rows = [topic.run(min(number, 2), *batch) for number, batch in enumerate(batches, 1)][-1]
    else:
        rows = topic.run(1, *(record for batch in batches for record in batch))
    assert rows == [{"id": 1, "note": None}, {"id": 2, "note": "later"}, {"id": 3, "note": "c"}]


def test_a_column_of_the_users_own_keeps_its_values(tmp_path: Path, registry: ScriptedRegistry) -> None:
    topic = RegisteredTopic(tmp_path, registry)
    topic.run(1, value(1, 1, "a"), value(1, 2, "b"))
    with pytest.raises(ConfigurationError, match=r"ingest.ownColumns has own, which the table .* lacks"):
        topic.run(1, **{"ingest.ownColumns": "own"})
    topic.table.alter.add_columns([Field("own", PrimitiveType("string"))])
    topic.table.update({"own": "'mine'"})
    rows = topic.run(2, value(2, 1), **{"ingest.ownColumns": "Own"})
    assert rows == [{"id": 1, "note": None, "own": "mine"}, {"id": 2, "note": "b", "own": "mine"}]
    assert topic.run(2, value(2, 2))[1] == {"id": 2, "note": None, "own": None}


@pytest.mark.parametrize("limit", ["99", "1"])
@pytest.mark.parametrize("envelope", toasted_rows.ENVELOPES)
def test_an_update_with_placeholders_keeps_the_rows_values(tmp_path: Path, envelope: str, limit: str) -> None:
    settings = {**toasted_rows.SETTINGS, **toasted_rows.ENVELOPES[envelope]}
    topic = Topic(tmp_path, maxOffsetsPerTrigger=limit, **settings)
    topic.land(toasted_rows.first(envelope))
    assert toasted_rows.by_key(topic.land(toasted_rows.second(envelope))) == toasted_rows.LATEST


def test_a_placeholder_keeps_the_last_value_by_the_column_that_orders_rows(tmp_path: Path) -> None:
    settings = {**toasted_rows.SETTINGS, **toasted_rows.ENVELOPES["debezium"], "ingest.orderBy": "timestamp"}
    topic = Topic(tmp_path, **settings)
    topic.land(toasted_rows.first("debezium", at=5))
    assert toasted_rows.by_key(topic.land(toasted_rows.out_of_order("debezium"))) == toasted_rows.LATEST_BY_TIME


def test_a_setting_other_than_the_placeholder_lands_the_placeholder(tmp_path: Path) -> None:
    settings = {**toasted_rows.SETTINGS, **toasted_rows.ENVELOPES["none"], "ingest.unavailableValue": "none of these"}
    (row,) = Topic(tmp_path, **settings).land([toasted_rows.change("none", 1, 1, None)])
    assert row["doc"] == toasted_rows.TOAST


def test_a_table_that_appends_has_placeholders_as_they_are(tmp_path: Path) -> None:
    settings = {**toasted_rows.SETTINGS, **toasted_rows.ENVELOPES["debezium"]}
    del settings["ingest.keys"], settings["ingest.mode"]
    (row,) = Topic(tmp_path, **settings).land([toasted_rows.change("debezium", 1, 1, None)])
    assert row["tags"] == [toasted_rows.TOAST]

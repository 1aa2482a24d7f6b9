"""The settings in docs/guides/debezium-json.md land the records that the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.delta.archive import land_in
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import ROOT
from tests.tier.topics import topic_options, write_topic
from tiered_stream.options.settings_files import read_settings

PAGE = (ROOT / "docs/guides/debezium-json.md").read_text("utf-8")
PROPERTIES = re.findall(r"^```properties\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1:]
(LINES,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("count", [3, 5])
def test_the_page_lands_what_it_shows(spark: SparkSession, tmp_path: Path, schemas: bool, count: int) -> None:
    key, *values = [json.loads(line) for line in LINES.splitlines()]
    events = [None if value is None else wrapped(value, schemas) for value in values[: count - 1]]
    write_topic(tmp_path / "bucket", "shop.public.orders", [[Record(wrapped(key, schemas), event) for event in events]])
    (tmp_path / "job.properties").write_text(PROPERTIES[schemas])
    settings = read_settings(tmp_path / "job.properties")
    for name in ("subscribe", "ingest.table", "ingest.checkpointLocation"):
        del settings[name]
    options = topic_options(tmp_path / "bucket", "shop.public.orders", settings)
    land_in(tmp_path, spark, options, "auto")
    table = DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert table.schema.names == ["id", "name", "price", "__op", "__source", "__ts_ms"]
    rows = [(row["id"], row["name"], str(row["price"]), row["__op"]) for row in table.to_pylist()]
    assert rows == ([(1, "b", "9.90", "u")] if count == 3 else [])


def wrapped(document: object, schemas: bool) -> bytes:
    """Return the document as Kafka Connect's JSON converter writes it."""
    return json.dumps(
        {"schema": {"type": "struct", "optional": True}, "payload": document} if schemas else document
    ).encode()

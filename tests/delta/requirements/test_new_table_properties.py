"""What a table gets when it is made: the job's properties, and the session's defaults for new tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, everything, options
from tests.rigs.stack.spark import configured
from tiered_stream import land
from tiered_stream.delta.requirements.session_requirements import (
    CREATED_ALIKE,
    CREATED_WELL,
    DEFAULTS_PREFIX,
    check_created_by_deltalake,
    merged_defaults,
)
from tiered_stream.errors import ConfigurationError

TOPIC = ODD.partition(",")[0]
DEFAULTS = {
    "enableChangeDataFeed": "true",
    "logRetentionDuration": "interval 60 days",
    "enableDeletionVectors": "true",
    "checkpointInterval": "25",
}
SESSION = {DEFAULTS_PREFIX + name: value for name, value in DEFAULTS.items()}
EXPLICIT = {"ingest.tableProperty.delta.checkpointInterval": "7"}
EXPECTED = {f"delta.{name}": value for name, value in DEFAULTS.items()} | {"delta.checkpointInterval": "7"}
BROKEN = {
    "ingest.value.format": "json", "ingest.value.schema": "no STRING", "ingest.onDecodeError": "deadLetter",
}  # fmt: skip


@pytest.mark.parametrize(
    ("defaults", "given", "merged"),
    [
        ({"delta.appendOnly": "true"}, {}, {"delta.appendOnly": "true"}),
        ({"delta.appendOnly": "true"}, {"delta.appendonly": "false"}, {}),
        ({"delta.feature.a": "supported", "delta.minReaderVersion": "3"}, {"x": "y"},
         {"delta.feature.a": "supported", "delta.minReaderVersion": "3"}),
        ({"delta.feature.a": "supported", "delta.minReaderVersion": "3", "delta.appendOnly": "true",
          "delta.ignoreProtocolDefaults": "true"}, {}, {"delta.appendOnly": "true"}),
        ({"delta.minWriterVersion": "7"}, {"delta.ignoreProtocolDefaults": "true"}, {}),
    ],
)  # fmt: skip
def test_defaults_are_merged_as_by_delta_spark(
    defaults: Mapping[str, str], given: Mapping[str, str], merged: Mapping[str, str]
) -> None:
    assert merged_defaults(defaults, given) == merged


def test_what_deltalake_gives_no_table_is_refused_by_the_settings_name() -> None:
    check_created_by_deltalake({"delta.enableChangeDataFeed": "true"}, CREATED_ALIKE)
    with pytest.raises(ConfigurationError, match=r"^spark\.databricks\.delta\.properties\.defaults\.feature\.x "):
        check_created_by_deltalake({"delta.feature.x": "supported"}, ())
    with pytest.raises(ConfigurationError, match=r"^ingest\.tableProperty\.delta\.enableDeletionVectors "):
        check_created_by_deltalake({}, ["delta.enableDeletionVectors"])
    assert "delta.enableDeletionVectors" not in CREATED_WELL


@pytest.mark.slow
def test_tables_of_every_maker_have_the_sessions_defaults_and_the_jobs_own_properties(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(name: str, **given: str) -> dict[str, str]:
        query = land(
            spark, options=options(TOPIC, {**EXPLICIT, **given}), table=f"{tmp_path}/{name}",
            checkpoint=f"{tmp_path}/{name} checkpoint", lane="direct",
        )  # fmt: skip
        query.awaitTermination()
        return DeltaTable(tmp_path / name.format(topic=TOPIC)).metadata().configuration

    with configured(spark, SESSION):
        assert run("one") == EXPECTED
        assert run("many {topic}") == EXPECTED
        dead = {"ingest.deadLetterTable": f"{tmp_path}/dead", **BROKEN}
        assert run("with letters", **dead) == EXPECTED
        assert DeltaTable(tmp_path / "dead").metadata().configuration == EXPECTED
        assert run("by spark", **{"ingest.commit": "spark"}) == EXPECTED
    # Whoever has made them, delta-spark takes both kinds for tables with a change data feed.
    for name in ("one", f"many {TOPIC}"):
        changes = spark.read.option("readChangeFeed", "true").option("startingVersion", "0")
        assert changes.format("delta").load(f"{tmp_path}/{name}").count() == everything(TOPIC).num_rows


@pytest.mark.slow
def test_deltalake_makes_the_tables_that_delta_spark_makes(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    from tiered_stream.delta.catalog.address import create_by_spark, find_address
    from tiered_stream.delta.commit.deltalake_commit import create_table
    from tiered_stream.delta.settings.ingest_settings import TableSpec

    values = {
        "Cols": "3", "Columns": "n", "Interval": "20", "Duration": "interval 40 days", "Length": "3",
        "isolationLevel": "Serializable",
    }  # fmt: skip
    given = {
        name: next((value for end, value in values.items() if name.endswith(end)), "true")
        for name in sorted(CREATED_ALIKE)
    }
    schema = StructType([StructField("n", LongType())])
    target = TableSpec("", columns=schema, own_properties=tuple(given.items()))
    create_by_spark(spark, find_address(spark, f"{tmp_path}/spark"), target)
    create_table(TableSpec((tmp_path / "lake").as_uri()), schema, given)
    assert first_actions(tmp_path / "spark") == first_actions(tmp_path / "lake")


def first_actions(table: Path) -> tuple[object, object]:
    """Of its first version: the protocol, and the properties."""
    lines = (table / "_delta_log" / f"{0:020}.json").read_bytes().splitlines()
    actions = {name: action for line in lines for name, action in orjson.loads(line).items()}
    return actions["protocol"], actions["metaData"]["configuration"]

"""Tables with TIMESTAMP_NTZ in maps, made and grown by the `deltalake` library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from tiered_stream.delta.commit.deltalake_commit import add_columns, create_table
from tiered_stream.delta.schema.row_schema import LOCAL_TIMES
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.errors import TableError

LOCAL = TimestampNTZType()
MAPS: dict[str, DataType] = {
    "values": MapType(StringType(), LOCAL),
    "keys": MapType(LOCAL, StringType()),
    "deep": ArrayType(StructType().add("m", MapType(StringType(), ArrayType(LOCAL)))),
}


def folder_files(folder: Path, day_column: str | None = None) -> TableSpec:
    return TableSpec(folder.as_uri(), TableStorage(), day_column)


def names(files: TableSpec) -> list[str]:
    return [field.name for field in DeltaTable(files.uri).schema().fields]


@pytest.mark.parametrize("kind", MAPS.values(), ids=MAPS.keys())
def test_a_table_with_local_times_in_a_map_is_made_with_their_feature(tmp_path: Path, kind: DataType) -> None:
    files = folder_files(tmp_path)
    schema = StructType().add("a", LongType()).add("m", kind).add("b", StringType())
    made = create_table(files, schema, {"delta.appendOnly": "true"})
    assert StructType.fromJson(json.loads(made.schema().to_json())) == schema
    assert made.metadata().configuration == {"delta.appendOnly": "true"}
    assert LOCAL_TIMES in (DeltaTable(files.uri).protocol().writer_features or ())
    version = create_table(files, schema, {}).version()
    assert version == made.version(), "nothing is done again"


def test_such_a_column_comes_last_where_the_table_cannot_begin_with_it(tmp_path: Path) -> None:
    schema = StructType().add("m", MAPS["values"]).add("a", LongType())
    create_table(folder_files(tmp_path / "first"), schema, {})
    assert names(folder_files(tmp_path / "first")) == ["a", "m"]
    schema = StructType().add("a", LongType()).add("m", MAPS["values"]).add("day", StringType())
    by_day = folder_files(tmp_path / "day", "day")
    assert create_table(by_day, schema, {}).metadata().partition_columns == ["day"]
    assert names(by_day) == ["a", "day", "m"]


def test_a_table_of_nothing_but_such_columns_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=f"{tmp_path.as_uri()} .*TIMESTAMP_NTZ"):
        create_table(folder_files(tmp_path), StructType().add("m", MAPS["values"]), {})


def test_a_table_grows_by_such_a_column(tmp_path: Path) -> None:
    files = folder_files(tmp_path)
    create_table(files, StructType().add("a", LongType()), {})
    add_columns(files, StructType().add("m", MAPS["deep"]))
    add_columns(files, StructType().add("n", MAPS["keys"]))
    assert names(files) == ["a", "m", "n"]

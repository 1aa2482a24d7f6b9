"""Fields of structs that Delta refuses in columns that a table is to get."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

from tiered_stream.delta.commit.deltalake_commit import add_columns, describe
from tiered_stream.delta.requirements.lane import table_rules
from tiered_stream.delta.requirements.writer_requirements import DECLARED_TYPE
from tiered_stream.delta.schema.row_schema import check_new_columns
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.table_rules import TextLimit

DECLARED = "struct<a:varchar(2),x:string>"

FORBIDDEN = " ,;{}()\n\t="
"""Delta: `SchemaUtils.findInvalidColumnNames`."""


def struct(*names: str, nullable: bool = True) -> StructType:
    made = StructType()
    for name in names:
        made = made.add(name, IntegerType(), nullable)
    return made


@pytest.mark.parametrize("letter", FORBIDDEN)
def test_a_name_that_delta_refuses_is_refused_wherever_it_is(letter: str) -> None:
    name = f"a{letter}b"
    for column, said in (
        (struct(name), "c."),
        (ArrayType(struct("x", name)), "c.element."),
        (MapType(struct(name), IntegerType()), "c.key."),
        (MapType(StringType(), StructType().add("x", struct(name))), "c.value.x."),
    ):
        with pytest.raises(ConfigurationError, match="cannot be a field in a Delta table") as raised:
            check_new_columns(StructType().add("c", column))
        assert repr(said + name) in str(raised.value)
        check_new_columns(StructType().add("c", column), {"delta.columnMapping.mode": "name"})


def test_a_name_that_is_there_twice_is_refused_with_column_mapping_too() -> None:
    for properties in ({}, {"delta.columnMapping.mode": "name"}):
        with pytest.raises(ConfigurationError, match=r"'c.A' is in its struct twice"):
            check_new_columns(StructType().add("c", struct("a", "A")), properties)


def test_not_null_is_refused_within_lists_and_maps_alone() -> None:
    required = struct("a", nullable=False)
    check_new_columns(StructType().add("c", StructType().add("s", required)))
    for column, said in (
        (ArrayType(required), "c.element.a"),
        (MapType(StringType(), StructType().add("s", required)), "c.value.s.a"),
    ):
        with pytest.raises(ConfigurationError, match=f"{said} is NOT NULL, which Delta refuses"):
            check_new_columns(StructType().add("c", column))


def test_other_names_are_taken() -> None:
    check_new_columns(StructType().add("c", struct("a.b", "a-b", "é", "`", "")))


def test_a_table_that_gets_fields_keeps_what_it_asks_of_those_that_it_has(tmp_path: Path) -> None:
    columns = (
        StructType().add("Id", IntegerType(), False)
        .add("s", StructType().add("a", StringType(), False).add("x", StringType()), True, {DECLARED_TYPE: DECLARED})
        .add("l", ArrayType(StructType().add("z", IntegerType(), False), False))
    )  # fmt: skip
    DeltaTable.create(tmp_path, Schema.from_json(columns.json()))
    rules = table_rules(describe(DeltaTable(tmp_path)))
    wanted = (
        StructType().add("s", StructType().add("A", StringType()).add("n", IntegerType()))
        .add("l", ArrayType(StructType().add("w", IntegerType()))).add("new", StringType())
    )  # fmt: skip
    add_columns(TableSpec(tmp_path.as_uri()), wanted)
    found = describe(DeltaTable(tmp_path))
    assert [field["name"] for field in found.fields] == ["Id", "s", "l", "new"]
    assert [field["name"] for field in found.fields[1]["type"]["fields"]] == ["a", "x", "n"]
    assert [field["name"] for field in found.fields[2]["type"]["elementType"]["fields"]] == ["z", "w"]
    assert table_rules(found) == rules
    assert rules.nested_not_null == (("l", "element"), ("l", "element", "z"), ("s", "a"))
    assert rules.text_limits == (TextLimit(("s", "a"), 2, False),)

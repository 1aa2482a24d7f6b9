"""Looks for a table; `landing/test_land.py` has what suits the direct lane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.delta.committing import QUERY, planned, table, written
from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.commit import open_table as opened
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.deltalake_commit import create_table, describe
from tiered_stream.delta.commit.open_table import _create, _found_soon, replace_unused
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_SPARK, TableSpec
from tiered_stream.errors import ConfigurationError, TableError


def test_a_table_that_another_query_is_creating_is_found_a_little_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TableSpec((tmp_path / "table").as_uri())
    monkeypatch.setattr("time.sleep", lambda _: create_table(files, table_schema(True, None), {}))
    found = _found_soon(files)
    assert found is not None and found.version() == 0


SPARK: Any = None
"""Session of tests that answer in its place."""
COLUMNS = table_schema(True, None)
INTERVAL, FEED = "delta.checkpointInterval", "delta.enableChangeDataFeed"


@pytest.fixture
def made(tmp_path: Path) -> TableSpec:
    """A table that got no rows yet."""
    spec = TableSpec((tmp_path / "table").as_uri(), columns=COLUMNS)
    create_table(spec, COLUMNS, {INTERVAL: "7"})
    return spec


def address_of(spec: TableSpec) -> TableAddress:
    return TableAddress("/table", None, spec.uri)


def ask_for(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], *, has_delta_spark: bool = True) -> None:
    monkeypatch.setattr(opened, "new_table_properties", lambda *_: properties)
    monkeypatch.setattr(opened, "session_defaults", lambda *_: {})
    monkeypatch.setattr(opened, "has_delta_spark", lambda _: has_delta_spark)


@pytest.mark.parametrize(
    ("properties", "columns"), [({}, ()), ({FEED: "true"}, ()), ({}, ("offset",))], ids=["", "properties", "clustering"]
)
def test_a_table_that_another_query_has_created_is_taken_only_if_it_is_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], columns: tuple[str, ...]
) -> None:
    spec = TableSpec((tmp_path / "table").as_uri(), columns=COLUMNS, cluster_by=columns)
    ask_for(monkeypatch, properties)
    monkeypatch.setattr(opened, "choose_committer", lambda *_: (COMMIT_BY_SPARK, ""))
    monkeypatch.setattr(opened, "is_created_by_spark", lambda *_, **__: True)

    def create_and_fail(_: TableAddress) -> None:
        create_table(spec, COLUMNS, {})
        raise TableError("the session is gone")

    monkeypatch.setattr("time.sleep", lambda _: None)
    if properties or columns:
        with pytest.raises(TableError, match="the session is gone"):
            _create(SPARK, address_of(spec), spec, create_and_fail)
    else:
        assert isinstance(_create(SPARK, address_of(spec), spec, create_and_fail), DeltaTable)


@pytest.mark.parametrize(
    ("settings", "properties", "changes"),
    [
        ({}, {INTERVAL: "7"}, []),
        ({"cluster_by": ("offset",)}, {INTERVAL: "9"}, []),
        ({"columns": COLUMNS[:1]}, {FEED: "true"}, [("replace",), ("set", {FEED: "true"})]),
        ({"columns": COLUMNS[:1], "cluster_by": ("key",)}, {INTERVAL: "7"}, [("replace",), ("cluster", ("key",))]),
    ],
)
def test_a_table_of_other_columns_without_rows_gets_from_spark_what_it_lacks(
    made: TableSpec, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], properties: dict[str, str],
    changes: list[tuple[Any, ...]],
) -> None:  # fmt: skip
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(opened, "replace_columns", lambda *_: seen.append(("replace",)))
    monkeypatch.setattr(opened, "set_properties", lambda *given: seen.append(("set", given[2])))
    monkeypatch.setattr(opened, "cluster_table", lambda *given: seen.append(("cluster", given[2])))
    ask_for(monkeypatch, properties)
    replaced = replace_unused(SPARK, address_of(made), replace(made, **settings), describe(table(made)))
    assert (replaced, seen) == (bool(changes), changes)


def test_without_delta_spark_a_table_without_rows_gets_other_properties_from_deltalake(
    made: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected = replace(made, columns=COLUMNS[:1])
    ask_for(monkeypatch, {INTERVAL: "9"}, has_delta_spark=False)
    assert replace_unused(SPARK, address_of(made), corrected, describe(table(made)))
    assert describe(table(made)).configuration == {INTERVAL: "9"}
    assert not replace_unused(SPARK, address_of(made), corrected, describe(table(made)))


def test_without_delta_spark_a_property_that_deltalake_cannot_give_is_refused(
    made: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = replace(made, columns=COLUMNS[:1], own_properties=(("delta.enableDeletionVectors", "true"),))
    ask_for(monkeypatch, asking.properties, has_delta_spark=False)
    with pytest.raises(ConfigurationError):
        replace_unused(SPARK, address_of(made), asking, describe(table(made)))
    assert describe(table(made)).configuration == {INTERVAL: "7"}


def test_a_table_with_rows_keeps_its_properties(made: TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    TableCommits(planned(made), lambda *_: None).commit(QUERY, 0, written(made, 3))
    ask_for(monkeypatch, {INTERVAL: "9"}, has_delta_spark=False)
    corrected = replace(made, columns=COLUMNS[:1])
    assert not replace_unused(SPARK, address_of(made), corrected, describe(table(made)))
    assert describe(table(made)).configuration == {INTERVAL: "7"}

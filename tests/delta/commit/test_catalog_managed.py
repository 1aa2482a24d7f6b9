"""deltalake neither opens nor changes a table whose commits go through a catalog, and the error names the feature."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from tests.delta.managed_tables import PRESENT, SPELLINGS, make_managed, protocol, versions, write_version
from tiered_stream.delta.commit import deltalake_commit
from tiered_stream.delta.commit.deltalake_commit import (
    DeltalakeTable,
    add_columns,
    create_table,
    delete_rows,
    open_table,
)
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.commit.transaction import BatchCommit, CatalogManagedError
from tiered_stream.delta.requirements.writer_requirements import managing_feature
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import TableError

PLAIN = StructType().add("value", "string")


def files_of(table: Path) -> TableSpec:
    return TableSpec(table.as_uri())


@pytest.mark.parametrize("feature", [*SPELLINGS, "CATALOGMANAGED"])
def test_a_table_that_a_catalog_manages_is_refused_by_the_name_of_its_feature(tmp_path: Path, feature: str) -> None:
    make_managed(tmp_path, feature)
    files = files_of(tmp_path)
    for change in (
        lambda: open_table(files),
        lambda: add_columns(files, PLAIN),
        lambda: delete_rows(files, "true"),
        lambda: DeltalakeTable(files).begin(),
    ):
        with pytest.raises(CatalogManagedError, match=f" {feature}: "):
            change()
    with pytest.raises(TableError):
        create_table(files, PLAIN, {})
    assert versions(tmp_path) == [0]


@pytest.mark.parametrize("side", ["reader_features", "writer_features"])
def test_a_deltalake_that_opens_such_a_table_is_not_used_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    features = {"reader_features": None, "writer_features": None, side: [PRESENT]}
    opened = SimpleNamespace(protocol=lambda: SimpleNamespace(**features))
    monkeypatch.setattr(deltalake_commit, "DeltaTable", lambda *_, **__: opened)
    with pytest.raises(CatalogManagedError, match=PRESENT):
        open_table(files_of(tmp_path))


@pytest.mark.parametrize("prepared", [False, True])
def test_a_table_that_a_catalog_takes_over_gets_no_further_commit(tmp_path: Path, prepared: bool) -> None:
    files = files_of(tmp_path)
    create_table(files, PLAIN, {})
    table = DeltalakeTable(files)
    table.begin().commit(BatchCommit("query", 0, []))
    if prepared:
        table.prepare()
        assert table._prepared is not None
        table._prepared.result()
    write_version(tmp_path, 2, [protocol(PRESENT)])
    with pytest.raises(CatalogManagedError, match=PRESENT):
        table.begin()
    assert versions(tmp_path) == [0, 1, 2]


def test_a_catalog_that_takes_over_during_a_commit_wins(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    create_table(files, PLAIN, {})
    transaction = DeltalakeTable(files).begin()
    write_version(tmp_path, 1, [protocol(PRESENT)])
    with pytest.raises(TableError):
        transaction.commit(BatchCommit("query", 0, []))
    assert versions(tmp_path) == [0, 1]


def test_the_newest_protocol_counts(tmp_path: Path) -> None:
    make_managed(tmp_path, "first")
    write_version(tmp_path, 1, [protocol("second")])
    write_version(tmp_path, 2, [])
    (tmp_path / "_delta_log" / "00000000000000000003.checkpoint.parquet").write_bytes(b"")
    features = TableLog(files_of(tmp_path)).features()
    assert features & {"first", "second"} == {"second"}


def test_a_log_without_a_protocol_has_no_features(tmp_path: Path) -> None:
    write_version(tmp_path, 7, [])
    assert TableLog(files_of(tmp_path)).features() == frozenset()
    with pytest.raises(TableError, match="missing"):
        TableLog(files_of(tmp_path / "missing")).features()


def test_other_features_are_no_sign_of_a_catalog() -> None:
    assert managing_feature(["inCommitTimestamp", "columnMapping", "v2Checkpoint", "managed"]) is None
    assert managing_feature(["appendOnly", "catalogOwned-preview"]) == "catalogOwned-preview"

"""Looks for a table; `landing/test_land.py` has what suits the direct lane."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.commit.open_table import _found_soon
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec


def test_a_table_that_another_query_is_creating_is_found_a_little_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TableSpec((tmp_path / "table").as_uri())
    monkeypatch.setattr("time.sleep", lambda _: create_table(files, table_schema(True, None), {}))
    found = _found_soon(files)
    assert found is not None and found.version() == 0

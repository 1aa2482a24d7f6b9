"""A new table for tests of commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec


@pytest.fixture
def files(tmp_path: Path) -> TableSpec:
    """Files of a new table."""
    made = TableSpec((tmp_path / "a table").as_uri())
    create_table(made, table_schema(True, None), {})
    return made

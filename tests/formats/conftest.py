"""A schema registry of each test, which waits for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.formats.scripted_registry import ScriptedRegistry
from tiered_stream.formats.registry import schema_registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedRegistry]:
    monkeypatch.setattr(schema_registry, "_FIRST_WAIT", 0)
    with ScriptedRegistry() as server:
        yield server

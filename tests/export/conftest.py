"""Exports run in the tests' process, whose heap and environment they leave as they are."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiered_stream.cli.export_command.share_heap_with_arrow", lambda: None)

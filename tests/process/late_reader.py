"""Standard error as a pipe whose reader reads only while its writer sleeps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest


@contextmanager
def late_reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TextIO, list[bytes]]]:
    """Yield the process's standard error for the block, and what its reader has read, a piece for each sleep."""
    reader, writer = os.pipe()
    read: list[bytes] = []
    monkeypatch.setattr("tiered_stream.process.logs.time.sleep", lambda _: read.append(os.read(reader, 100)))
    with open(reader, "rb"), open(writer, "w") as standard_error:
        monkeypatch.setattr(sys, "__stderr__", standard_error)
        yield standard_error, read

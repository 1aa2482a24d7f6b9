from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="package")
def frozen() -> None:
    """Keep what earlier tests have left from the garbage collection before each target: `Memory.settle`."""
    gc.collect()
    gc.freeze()

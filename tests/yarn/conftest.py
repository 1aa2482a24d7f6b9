from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dist.packed_environment import pack
from tests.rigs.stack.yarn import Yarn


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of `make dist`."""
    return pack(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """YARN with one node manager, and local folders as its file system."""
    with Yarn(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster

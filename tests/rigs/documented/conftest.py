"""The site of the documentation's tests, in the namespaces of `tests/rigs/cloud/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rigs.cloud.front import Front
    from tests.rigs.documented.site import Site


@pytest.fixture(scope="module")
def documented(cloud_front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Brokers, buckets and hosts that README and docs name."""
    from tests.rigs.documented.site import site

    with site(tmp_path_factory.mktemp("site"), cloud_front) as running:
        yield running

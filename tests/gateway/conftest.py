"""A gateway before the session's stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.gateway.running import RunningGateway

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack


@pytest.fixture(scope="package")
def gateway(stack: TieredStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """It signs locations, and serves all tests of this folder."""
    settings = {**stack.options(), "gateway.signed.location.lifetime.seconds": "60"}
    with RunningGateway(tmp_path_factory.mktemp("gateway"), settings) as running:
        yield running

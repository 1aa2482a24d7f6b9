"""Fixtures of the tests of Delta tables."""

from __future__ import annotations

import pytest

from tests.delta.clouds import Cloud, azure, google


@pytest.fixture(
    params=[pytest.param("azurite", marks=pytest.mark.stack), pytest.param("fake_gcs", marks=pytest.mark.stack)]
)
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """Each emulator of Azure's and Google's storage in turn."""
    server = request.getfixturevalue(request.param)
    return azure(server) if request.param == "azurite" else google(server)

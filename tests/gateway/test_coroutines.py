"""The folder's hook for coroutines leaves other tests to pytest."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import pytest_pyfunc_call


async def test_a_test_that_is_no_coroutine_is_left_to_pytest(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request.node, "obj", lambda: None)
    assert pytest_pyfunc_call(request.node) is None

"""Access of tasks to a store for which the session has no settings."""

from __future__ import annotations

import pytest

from tests.delta.requirements.made_hadoop import made_hadoop
from tiered_stream.delta.requirements import store_access
from tiered_stream.delta.settings.ingest_settings import TableStorage


def test_a_store_that_hadoop_does_not_know_is_reached_by_the_jobs_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    own, hadoop = TableStorage(anonymous=True), made_hadoop({})
    assert store_access.find_access(own, "memory://lake/orders", hadoop)[1] is not None
    monkeypatch.setattr(store_access, "BUCKET_SCHEMES", ("memory",))
    assert store_access.find_access(own, "memory://lake/orders", hadoop) == (own, None)

"""A metadata topic that is large enough for the compiled scan and for a snapshot, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.bench.metadata_topic import Cluster, fill_metadata_topic, seconds_to_know
from tests.rigs.stack.broker import KafkaBroker

pytestmark = pytest.mark.stack

CLUSTER = Cluster(topics=3, partitions=5, segments=4_000)


@pytest.mark.slow
def test_a_query_knows_its_segments_at_first_and_by_what_was_kept(tmp_path: Path) -> None:
    assert CLUSTER.records > 100_000
    not_tiered = {"remote.log.storage.system.enable": "false"}
    with KafkaBroker(tmp_path / "broker", tmp_path / "tier", properties=not_tiered) as broker:
        fill_metadata_topic(broker, CLUSTER)
        for _ in range(2):
            assert seconds_to_know(broker, CLUSTER, tmp_path / "kept")  # it counts the segments
            assert any((tmp_path / "kept").iterdir())

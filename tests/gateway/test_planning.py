"""Many segments in one answer, from a cluster that is made up of metadata records."""

from __future__ import annotations

import pytest

from tests.gateway.planning import locate_all, made_up_gateway

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def test_every_segment_of_every_partition_is_named_and_again() -> None:
    with made_up_gateway(60, 20) as gateway:
        assert locate_all(gateway, 60, 20, times=3) == [60 * 20] * 3
        assert gateway.metric("named_segments_total") == 60 * 20, "what was named once is not made anew"
        assert gateway.metric('requests_total{handling="located"}') == 3, "one request for all partitions"

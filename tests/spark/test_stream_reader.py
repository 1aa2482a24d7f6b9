from __future__ import annotations

import pytest

from tests.spark.connect_session import connect_session
from tiered_stream.spark.stream_reader import has_read_limits


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("4.0.2", False), ("4.1.0-amzn-1", False), ("4.1.2.dev0", False), ("3.5.9", False), ("unknown", False),
        ("4.2.0", True), ("4.2.0-SNAPSHOT", True), ("4.10.0", True), ("5.0", True),
    ],
)  # fmt: skip
def test_a_server_has_read_limits_from_4_2_on(version: str, has: bool) -> None:
    assert has_read_limits(connect_session(version)) == has

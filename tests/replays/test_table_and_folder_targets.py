from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError
from tiered_stream.replays.table_and_folder_targets import DeltaTarget, ParquetTarget, target_of, with_byte_rate
from tiered_stream.replays.topic_target import TopicTarget

NO_SPARK = cast(SparkSession, None)


@pytest.mark.parametrize(
    ("text", "kind", "described"),
    [
        ("kafka:{topic}-again", TopicTarget, "topic {topic}-again"),
        ("parquet:s3a://lake/day", ParquetTarget, "parquet s3a://lake/day"),
        ("s3a://lake/orders", DeltaTarget, "table s3a://lake/orders"),
        ("lake.orders", DeltaTarget, "table lake.orders"),
    ],
)
def test_a_target_says_what_it_is(text: str, kind: type[Any], described: str) -> None:
    target = target_of(NO_SPARK, text, {}, tasks=3)
    assert isinstance(target, kind)
    assert target.described == described


@pytest.mark.parametrize(("text", "lane"), [("kafka:", "auto"), ("parquet:", "auto"), ("kafka:t", "direct")])
def test_what_names_nothing_is_refused(text: str, lane: str) -> None:
    with pytest.raises(ConfigurationError):
        target_of(NO_SPARK, text, {}, lane=lane)


def test_tasks_share_the_pace() -> None:
    assert with_byte_rate(NO_SPARK, {"a": "b"}, 1000, 3) == {"a": "b", "remote.max.bytes.per.second": "333"}
    assert with_byte_rate(NO_SPARK, {"a": "b"}, None, 3) == {"a": "b"}
    with pytest.raises(ConfigurationError, match="2 bytes .*5 parallel tasks"):
        with_byte_rate(NO_SPARK, {}, 2, 5)

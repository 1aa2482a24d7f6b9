"""A topic that is deleted and made again while no query runs, on the real stack: the table knows which one it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.reading import options, records
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, recreate_topic
from tiered_stream.delta.landing.land import land


@pytest.mark.parametrize("commit", ["spark", "deltalake"])
def test_a_topic_that_is_made_again_between_two_runs_is_data_loss_by_name(
    stack: TieredStack, spark: SparkSession, topic: str, tmp_path: Path, commit: str
) -> None:
    given = options(stack, topic, {"ingest.commit": commit})

    def run(**more: str) -> None:
        where: dict[str, Any] = {"table": str(tmp_path / "table"), "checkpoint": str(tmp_path / "checkpoint")}
        land(spark, options={**given, **more}, lane="direct", **where).awaitTermination()

    def landed() -> list[int]:
        return sorted(row.offset for row in spark.read.format("delta").load(str(tmp_path / "table")).collect())

    create_tiered_topic(stack.broker, topic)
    produce_batch(stack.broker, topic, records(10))
    run()
    run()
    recreate_topic(stack.broker, topic)
    produce_batch(stack.broker, topic, records(30))

    with pytest.raises(StreamingQueryException, match=rf"TOPIC_RECREATED.*{topic} was deleted and made again"):
        run()
    assert landed() == list(range(10))

    run(failOnDataLoss="false")
    run()
    assert landed() == list(range(30))

"""A few jobs with hostile names, and jobs that found a fault once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.depth import examples
from tests.rigs.hostile_names.drawing import Job, draw
from tests.rigs.hostile_names.execution import HostileNames

PLAIN = Job(
    ("orders", "orders--raw"), "{topic}", by_path=True, raw=False, a_query_each=True, id_column="id", of_column="of",
    topic_column="topic", dead="dead", registry=False, mapped=False, properties={}, replayed="replayed",
    replay_name=None, lane="auto",
)  # fmt: skip
pytestmark = pytest.mark.slow


@pytest.mark.drawn
def test_each_row_is_in_its_own_topics_table_or_its_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rig = HostileNames(spark, tmp_path)
    for number in range(examples(10)):
        rig.run(draw(Random(f"a few/{number}")), str(number))
    assert rig.problems == []


def test_a_plain_job_does_each_step(spark: SparkSession, tmp_path: Path) -> None:
    rig = HostileNames(spark, tmp_path)
    rig.run(PLAIN, "plain")
    assert rig.problems == []
    steps = (
        "plan", "land", "verify", "correct the dead letters", "redrive", "replay --replace", "replay --dry-run",
        "replay", "export",
    )  # fmt: skip
    assert rig.counts.keys() == {f"{step}: done" for step in steps}

"""Abilities that only some versions of Spark have. `python -m tests.spark.abilities` records those of the one here.

A test that needs an ability is skipped where Spark lacks it. `make test-spark` runs the tests with another Spark, and
then records that Spark's abilities, from which the table in docs/compatibility.md is made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import datasource

from tests.rigs.stack.jars import SPARK, pinned_jars
from tests.rigs.tables import markdown
from tiered_stream.spark.stream_reader import HAS_READ_LIMITS

RECORDS = Path(__file__).parents[2] / "docs" / "spark-versions.json"


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that users get with some versions of Spark; `without` is what they get with the others."""

    name: str
    present: bool
    without: str

    @property
    def needed(self) -> pytest.MarkDecorator:
        """Mark of a test that is skipped where Spark lacks the ability."""
        return pytest.mark.skipif(not self.present, reason=f"this Spark lacks: {self.name}")


PUSHED_FILTERS = Ability(
    "`remote.filter.pushdown`: a batch query fetches only segments that its filters may match",
    hasattr(datasource.DataSourceReader, "pushFilters"),
    "the option is refused",
)
SEVERAL_BATCHES = Ability(
    "a plain stream with `availableNow` reads all that is there, in as many micro-batches as its limits ask for",
    HAS_READ_LIMITS,
    "a run is one micro-batch, a repeated one counts; `land` and the jobs read all",
)
LAST_COMMIT = Ability(
    "a run with `availableNow` commits the end of its last micro-batch to `kafka.consumer.commit.groupid`",
    HAS_READ_LIMITS,
    "the next run does",
)
REPORTED_LAG = Ability(
    "the lag is in Spark's progress, in `report_queries` and in the lines of the job",
    HAS_READ_LIMITS,
    "no lag there; `tiered-stream lag` shows it",
)
KAFKA_AND_DELTA = Ability(
    "Delta and Spark's `kafka` source have jars for it",
    SPARK in ("4.0", "4.1", "4.2"),
    "none yet: tables by `deltalake` alone, no Spark lane",
)
ABILITIES = (PUSHED_FILTERS, SEVERAL_BATCHES, LAST_COMMIT, REPORTED_LAG, KAFKA_AND_DELTA)


def abilities_here() -> dict[str, bool]:
    """Return whether the installed Spark has each ability, by the ability's name."""
    return {ability.name: ability.present for ability in ABILITIES}


def record() -> None:
    """Record the abilities of the installed Spark, and the versions of the jars that tests take with it."""
    known = json.loads(RECORDS.read_text("utf-8")) if RECORDS.exists() else {}
    jars = {jar.artifact: jar.version for jar in pinned_jars(["delta", "s3a"])}
    known[SPARK] = {
        "pyspark": pyspark.__version__,
        "delta-spark": jars["delta-spark"],
        "hadoop-aws": jars["hadoop-aws"],
        "abilities": abilities_here(),
    }
    RECORDS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", "utf-8")


def render() -> str:
    """Return the recorded versions as a Markdown table."""
    known = json.loads(RECORDS.read_text("utf-8"))
    rows = [
        ["pyspark that was tried", *(each["pyspark"] for each in known.values())],
        ["Delta's jar", *(each["delta-spark"] if _has_jars(each) else "none" for each in known.values())],
        ["hadoop-aws", *(each["hadoop-aws"] for each in known.values())],
    ]
    for ability in ABILITIES:
        cells = ("yes" if each["abilities"][ability.name] else f"no: {ability.without}" for each in known.values())
        rows.append([ability.name, *cells])
    return markdown(["", *(f"Spark {version}" for version in known)], rows)


def _has_jars(version: dict[str, dict[str, bool]]) -> bool:
    return version["abilities"][KAFKA_AND_DELTA.name]


if __name__ == "__main__":
    record()

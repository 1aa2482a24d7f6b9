"""A part of a table is lost; a replay of that time puts it back, and its verification says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from tests.rigs.stack.rows import Row
from tiered_stream import replay, verify
from tiered_stream.verification.verify_report import VerifyReport


def middle_half(rows: Sequence[Row]) -> tuple[str, str]:
    """From when to when the middle half of the records were made, as `--from` and `--to` take it."""
    times = sorted(row.timestamp_ms for row in rows)
    quarter = len(times) // 4
    first, last = (datetime.fromtimestamp(times[at] / 1000, UTC) for at in (quarter, 3 * quarter))
    return first.isoformat(timespec="milliseconds"), last.isoformat(timespec="milliseconds")


def lose(spark: SparkSession, table: Path, times: tuple[str, str]) -> int:
    """Delete every third record of that time; how many there were."""
    where = f"timestamp >= '{times[0]}' AND timestamp < '{times[1]}' AND offset % 3 = 1"
    return int(spark.sql(f"DELETE FROM delta.`{table}` WHERE {where}").first()[0])  # type: ignore[index]


def mend(spark: SparkSession, options: Mapping[str, str], table: Path, times: tuple[str, str]) -> VerifyReport:
    """Replay that time into the ingest job's table, in place of what the table has of it, and verify the table."""
    replay(spark, options=options, from_time=times[0], to_time=times[1], into=str(table), replace=True)
    report = verify(spark, options=options, table=str(table))
    assert isinstance(report, VerifyReport)
    return report

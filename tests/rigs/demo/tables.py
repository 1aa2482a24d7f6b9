"""Tables of the demo against what a consumer returned; a part is lost, and a replay of that time puts it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.rigs.demo.topic import TOPIC
from tests.rigs.stack.rows import Row
from tiered_stream import replay, verify
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS
from tiered_stream.verification.verify_report import VerifyReport


def expected_table(rows: Sequence[Row]) -> pa.Table:
    """The consumer's rows in the columns of the source."""
    headers = [[{"key": name, "value": value} for name, value in row.headers] or None for row in rows]
    columns = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "topic": [TOPIC] * len(rows),
        "partition": [row.partition for row in rows],
        "offset": [row.offset for row in rows],
        "timestamp": [row.timestamp_ms * 1000 for row in rows],
        "timestampType": [row.timestamp_type for row in rows],
        "headers": headers,
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA_WITH_HEADERS})


def landed_table(path: Path) -> pa.Table:
    """The Delta table, by partition and offset, read without Spark."""
    by_offset = [("partition", "ascending"), ("offset", "ascending")]
    landed = pa.table(DeltaTable(path).to_pyarrow_table()).sort_by(by_offset)
    return landed.select(SCHEMA_WITH_HEADERS.names).cast(SCHEMA_WITH_HEADERS)


def count_mismatches(expected: pa.Table, landed: pa.Table) -> int:
    """Records that are missing, too many, or differ in any field."""
    if expected.num_rows != landed.num_rows:
        keys = ["partition", "offset"]
        wanted, got = ({tuple(row.values()) for row in each.select(keys).to_pylist()} for each in (expected, landed))
        return len(wanted ^ got) + int(landed.num_rows) - len(got)
    wrong = pa.array([False] * expected.num_rows)
    for name in expected.column_names:
        left, right = expected[name].combine_chunks(), landed[name].combine_chunks()
        if not left.equals(right):
            differs = [one != other for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)]
            wrong = pc.or_(wrong, pa.array(differs))
    return int(pc.sum(wrong).as_py() or 0)


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

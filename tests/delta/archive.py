"""What the landing tests land: topics of a golden archive, which needs no broker; and all that is in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from tests.archives import planned
from tests.golden import NAMES, golden
from tests.storage.golden_aiven import KEY_PREFIX
from tests.tier.topics import topic_options
from tiered_stream.options.parsing import parse_options
from tiered_stream.read.split_reader import read_split
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PLAIN = NAMES[0]
ODD = "s32-codecs,s32-txn"
"""Nulls, empty keys and values, headers, every codec, aborted transactions; two partitions each."""
LONG = "s32-big"
"""18,687 records in one partition, a millisecond apart."""
FIRST_MS = 1_700_000_000_000
"""Time of the first record of `LONG`."""
COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
"""Columns of a table that gets all of them, in SQL."""


def options(topics: str = ODD, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Everything in the topics; `given` comes on top."""
    golden_set = {"rsm.config.key.prefix": KEY_PREFIX[PLAIN], "includeHeaders": "true"}
    return topic_options(golden(PLAIN).bucket, topics, {**golden_set, **(given or {})})


def copy_segments(put: Callable[[str, bytes], object]) -> None:
    """Put the segments of `ODD` into another store, by their keys."""
    folders = tuple(f"{KEY_PREFIX[PLAIN]}{topic}-" for topic in ODD.split(","))
    for key, data in golden(PLAIN).objects():
        if key.startswith(folders):
            put(key, data)


def in_order(rows: pa.Table) -> pa.Table:
    """The columns of the source, by topic, partition and offset."""
    keys = ("topic", "partition", "offset")
    ordered = rows.sort_by([(key, "ascending") for key in keys])
    return ordered.select(SCHEMA_WITH_HEADERS.names).cast(SCHEMA_WITH_HEADERS)


def everything(topics: str = ODD) -> pa.Table:
    """All records of the topics, read without Spark."""
    given = options(topics)
    parsed = parse_options(given, streaming=False)
    batches = [batch for split in planned(given) for batch in read_split(split, parsed)]
    return in_order(pa.Table.from_batches(batches))


def land_in(
    folder: Path, spark: SparkSession, options: Mapping[str, str], lane: str = "direct", table: str = "table"
) -> StreamingQuery:
    """Land in a table of the folder, which has the checkpoint, too; the query, which has ended."""
    from tiered_stream import land  # late, because other functions here need no Spark

    query = land(spark, options=options, table=f"{folder}/{table}", checkpoint=f"{folder}/checkpoint", lane=lane)
    query.awaitTermination()
    return query


def landed(table: Path | str) -> pa.Table:
    """All records of a Delta table, read without Spark."""
    return in_order(pa.table(DeltaTable(table).to_pyarrow_table()))


def rows_of(table: Path | str) -> int:
    """Rows of a Delta table, counted without Spark; 0 if there is none."""
    if not DeltaTable.is_deltatable(str(table)):
        return 0
    return int(DeltaTable(str(table)).get_add_actions(flatten=True)["num_records"].to_numpy().sum())


def offsets_of(table: Path | str) -> list[int]:
    """Offsets in a Delta table, in ascending order, read without Spark."""
    return sorted(DeltaTable(str(table)).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())

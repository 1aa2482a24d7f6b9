"""`ingest.select` and `ingest.where` give what Spark's SQL gives, for made-up expressions and hostile values.

An example is 30 expressions over 200 rows. `SEED=… EXAMPLES=1` repeats the example that an error names, and
`make sql EXAMPLES=300` runs more of them.
"""

from __future__ import annotations

import os
import sys
from random import Random, SystemRandom

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tests.formats.sql.made_sql import COLUMNS, Expressions, parsed, rows, selected
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_steps import RowQuery

pytestmark = pytest.mark.stack

EXAMPLES = int(os.environ.get("EXAMPLES") or "6")
"""Number of examples of each test and each value of `spark.sql.ansi.enabled`.

Spark compiles the expressions of an example, which takes about a second.
"""
SEED = int(os.environ.get("SEED") or ("1" if os.environ.get("CI") else SystemRandom().randrange(1 << 32)))
"""Seed of the first example: random, but always the same in CI, whose runs do not stand for a search."""
ROWS = 200


def exact(values: pa.ChunkedArray | pa.Array) -> list[str]:
    """Texts that differ wherever values do; times as numbers, because Python does not hold all of them."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return list(map(repr, values.to_pylist()))


def accepted(random: Random, count: int) -> list[str]:
    """Expressions of the list; a made-up one whose types do not go together is refused by a clear error."""
    made: list[str] = []
    while len(made) < count:
        text = Expressions(random).some()
        try:
            RowQuery(parsed(f"{text} AS x"), COLUMNS, "UTC")
        except ConfigurationError as error:
            assert " is refused: " in str(error) or " is no SQL of the list " in str(error), error
            continue
        made.append(text)
    return made


def frame(spark: SparkSession, batch: pa.RecordBatch) -> DataFrame:
    """The rows in Spark, with its types of the columns: it would take each Arrow timestamp for a TIMESTAMP."""
    schema = StructType(spark_columns(batch.schema, None))
    return spark.createDataFrame(pa.Table.from_batches([batch]), schema).coalesce(1)


def seeds(capsys: pytest.CaptureFixture[str]) -> list[int]:
    """Seeds of the examples; the first one is printed, because all others follow from it."""
    with capsys.disabled():
        sys.stdout.write(f" SEED={SEED} EXAMPLES={EXAMPLES} ")
    random = Random(SEED)
    return [SEED, *(random.randrange(1 << 32) for _ in range(EXAMPLES - 1))]


def test_each_expression_has_sparks_type_and_sparks_values(
    in_utc: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in seeds(capsys):
        random = Random(seed)
        batch, texts = rows(random, ROWS), accepted(random, 30)
        found = selected(", ".join(f"{text} AS x{at}" for at, text in enumerate(texts)), batch)
        data = frame(in_utc, batch)
        by_spark = data.selectExpr(*(f"{text} AS x{at}" for at, text in enumerate(texts)))
        kinds = [field.dataType for field in by_spark.schema]
        theirs = by_spark.toArrow()
        for at, text in enumerate(texts):
            assert spark_columns(found.schema, None)[at].dataType == kinds[at], (f"SEED={seed}", text)
            for row, (one, other) in enumerate(zip(exact(found.column(at)), exact(theirs.column(at)), strict=True)):
                if one != other:
                    cells = batch.slice(row, 1)
                    values = {name: exact(cells.column(name)) for name in COLUMNS.names if name in text.lower()}
                    pytest.fail(f"SEED={seed}: {text} is {one}, and {other} by Spark, of {values}")


def test_bytes_are_compared_with_a_text_as_in_spark(in_utc: SparkSession) -> None:
    values = [b"a", b"", b"\xc3\xa9", b"\xff", b"b", None]
    batch = pa.RecordBatch.from_pylist([{"raw": value} for value in values], pa.schema([("raw", pa.binary())]))
    texts = [f"raw {op} '{text}'" for op in ("=", "<>", "<", ">=", "<=>") for text in ("a", "é", "")]
    texts += ["'b' > raw", "raw BETWEEN '' AND 'b'", "nullif(raw, 'a')"]
    select = ", ".join(f"{text} AS x{at}" for at, text in enumerate(texts))
    found = selected(select, batch)
    theirs = frame(in_utc, batch).selectExpr(*texts).toArrow()
    for text, one, other in zip(texts, found.columns, theirs.columns, strict=False):
        assert one.to_pylist() == other.to_pylist(), text


def test_each_character_has_sparks_upper_and_lower_case_also_next_to_a_sigma(spark: SparkSession) -> None:
    assert spark._jvm is not None
    version = str(spark._jvm.com.ibm.icu.lang.UCharacter.getUnicodeVersion())
    if not version.startswith("17."):
        pytest.skip(f"this Spark has the letters of Unicode {version}")
    characters = [chr(point) for point in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE1000))]
    texts = pa.array([f"{one} aΣ{one}a {one}Σ aΣ{one} a{one}Σ" for one in characters])
    batch = pa.record_batch({"s": texts})
    theirs = frame(spark, batch).selectExpr("lower(s)", "upper(s)").toArrow()
    ours = selected("lower(s) AS l, upper(s) AS u", batch)
    for one, other in zip(ours.columns, theirs.columns, strict=False):
        differing = pc.not_equal(one, other.combine_chunks())
        assert texts.filter(differing).to_pylist() == []

"""Records to rows and dead letters by Spark's own functions, for the Spark lane: the same as `RowDecoder` makes.

Two columns of their own say what is wrong with a record, so that a micro-batch is decoded once for both tables.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from tiered_stream.delta.days import spark_day
from tiered_stream.delta.row_schema import spark_columns
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.envelope import ADDED, NO_ENVELOPE
from tiered_stream.formats.kafka_columns import HIDDEN
from tiered_stream.formats.row_choices import Envelope, Format, OnDecodeError
from tiered_stream.formats.row_format import KEY, VALUE, PartFormat, RowFormat, Source, schema_from_text
from tiered_stream.formats.row_transformation import UserTransform
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

_OWN = "__tiered_stream_"
_FAILED, _REASON, _CORRUPT = f"{_OWN}failed", f"{_OWN}reason", f"{_OWN}corrupt"
_DECODED = {KEY: f"{_OWN}key", VALUE: f"{_OWN}value"}


def classified(records: DataFrame, how: RowFormat) -> DataFrame:
    """Records, with headers, decoded beside; and what is wrong with them, which is null where the record is a row.

    Raises:
        ConfigurationError: Spark's functions do not do what the settings ask for.
    """
    found = records
    for name, part in ((KEY, how.key), (VALUE, how.value)):
        if part.kind is not None:
            found = found.withColumn(_DECODED[name], _decoded(name, part, how.envelope))
    failed, reason = sql.lit(None).cast("string"), sql.lit(None).cast("string")
    for why, what in reversed(list(_reasons(how))):
        failed, reason = sql.when(what, why[0]).otherwise(failed), sql.when(what, why[1]).otherwise(reason)
    return found.withColumn(_FAILED, failed).withColumn(_REASON, reason)


def _reasons(how: RowFormat) -> Iterator[tuple[tuple[str, str], Column]]:
    """What may be wrong: (which of key, value and row, why), and where it is so."""
    for name, part in ((KEY, how.key), (VALUE, how.value)):
        column = sql.col(_DECODED[name])
        if part.format is Format.STRING:
            yield (name, "not UTF-8"), ~sql.is_valid_utf8(sql.col(name).cast("string"))
        elif part.kind is not None:
            bad = sql.col(name).isNotNull() & column.isNull()
            if part.format is Format.JSON:
                bad = sql.col(name).isNotNull() & (column.isNull() | column[_CORRUPT].isNotNull())
            yield (name, f"Spark's from_{part.format.value} takes it for malformed"), bad
            if name == VALUE and how.envelope is Envelope.DEBEZIUM:
                yield (name, NO_ENVELOPE), column.isNotNull() & _inner(part, column)["op"].isNull()
    if not how.transform:
        rows = {field.name: column for field, column in _columns(how)}
        for name in how.rules.not_null:
            yield ("row", f"the column {name} is NOT NULL"), rows[name].isNull()


def _decoded(name: str, part: PartFormat, envelope: Envelope) -> Column:
    """What Spark makes of it; of JSON with a field for what is malformed."""
    value = sql.col(name)
    if part.registered:
        raise ConfigurationError(
            f"ingest.{name}.schema is registry, which Spark does not read: use lane direct, or give the schema"
        )
    try:
        match part.format:
            case Format.STRING:
                return value.cast("string")
            case Format.JSON:
                fields = list(_spark_type(part, envelope))
                schema = StructType([*fields, StructField(_CORRUPT, StringType())])
                return sql.from_json(value.cast("string"), schema, {"columnNameOfCorruptRecord": _CORRUPT})
            case Format.AVRO:
                from pyspark.sql.avro.functions import from_avro

                return from_avro(value, part.schema, {"mode": "PERMISSIVE"})
            case _:
                from pyspark.sql.protobuf.functions import from_protobuf

                descriptors = b64decode(part.schema)
                return from_protobuf(
                    value, part.message, options={"mode": "PERMISSIVE"}, binaryDescriptorSet=descriptors
                )
    except (PySparkException, TypeError) as error:
        raise ConfigurationError(
            f"Spark's from_{part.format.value} is not in the session: add org.apache.spark:spark-"
            f"{part.format.value}_2.13 to spark.jars.packages, or use lane direct ({str(error).splitlines()[0]})"
        ) from error


def _spark_type(part: PartFormat, envelope: Envelope) -> StructType:
    """As the text is; without an envelope as the table has it."""
    kind: Any = part.kind
    if envelope is Envelope.NONE and pa.types.is_struct(kind):
        return spark_columns(pa.schema(list(kind)), None)
    return spark_columns(schema_from_text(part.schema), None)


def _fields_of(part: PartFormat) -> list[pa.Field]:
    """Those of a decoded value that is a struct."""
    kind: Any = part.kind
    return list(kind)


def _inner(part: PartFormat, column: Column) -> Column:
    has_payload = part.format is Format.JSON and "payload" in schema_from_text(part.schema).names
    return column["payload"] if has_payload else column


def _columns(how: RowFormat) -> Iterator[tuple[pa.Field, Column]]:
    """The rows' columns, of `classified` records, before the user's function."""
    for field, source in how.layout(how.value.kind):
        if not field.name.startswith(HIDDEN):
            yield field, _column(how, field, source).alias(field.name)


def _column(how: RowFormat, field: pa.Field, source: Source) -> Column:
    if source.kafka:
        return sql.col(source.kafka)
    column = sql.col(_DECODED[source.part])
    if how.on_error is OnDecodeError.NULL:
        column = sql.when(sql.col(_FAILED).isNull() | (sql.col(_FAILED) != source.part), column)
    part = how.key if source.part == KEY else how.value
    if source.part == VALUE and how.envelope is Envelope.DEBEZIUM:
        unwrapped = _unwrapped(how, column)
        return unwrapped[source.field][1] if source.field is not None else _as_struct(unwrapped, column)
    if source.field is not None:
        return column[field.name]
    if part.format is Format.JSON:
        return _as_struct([(each.name, column[each.name]) for each in _fields_of(part)], column)
    return column


def _unwrapped(how: RowFormat, column: Column) -> list[tuple[str, Column]]:
    """See `formats.envelope`."""
    inner = _inner(how.value, column)
    added = {own: name for name, own in ADDED}
    return [
        (each.name, inner[added[each.name]])
        if each.name in added
        else (
            each.name,
            sql.when(inner["after"].isNotNull(), inner["after"][each.name]).otherwise(inner["before"][each.name]),
        )
        for each in _fields_of(how.value)
    ]


def _as_struct(columns: Iterable[tuple[str, Column]], of: Column) -> Column:
    return sql.when(of.isNotNull(), sql.struct(*(column.alias(name) for name, column in columns)))


def good_rows(found: DataFrame, how: RowFormat, day_column: str | None) -> DataFrame:
    """The rows among `classified` records, in the table's columns."""
    if how.on_error is OnDecodeError.DEAD_LETTER:
        found = found.where(sql.col(_FAILED).isNull())
    elif how.on_error is OnDecodeError.FAIL:
        found = found.where(sql.when(sql.col(_FAILED).isNull(), True).otherwise(_refusal()))
    days = [sql.expr(spark_day()).alias(day_column)] if day_column else []
    rows = found.select([column for _, column in _columns(how)] + days)
    if not how.transform:
        return rows
    return rows.mapInArrow(_by_user(how.transform), spark_columns(how.written, None))


def _refusal() -> Column:
    where = sql.concat(
        sql.lit("the "), sql.col(_FAILED), sql.lit(" of topic "), sql.col("topic"), sql.lit(", partition "),
        sql.col("partition"), sql.lit(", offset "), sql.col("offset"), sql.lit(": "), sql.col(_REASON),
        sql.lit(". To keep such records aside, set ingest.onDecodeError=deadLetter and ingest.deadLetterTable"),
    )  # fmt: skip
    return sql.raise_error(where).cast("boolean")


def dead_letters(found: DataFrame) -> DataFrame:
    """The dead letters among `classified` records."""
    kafka = [sql.col(name) for name in SCHEMA_WITH_HEADERS.names]
    told = (
        sql.col(_REASON).alias("reason"),
        sql.col(_FAILED).alias("failed"),
        sql.lit(None).cast("bigint").alias("redrive"),
    )
    return found.where(sql.col(_FAILED).isNotNull()).select(*kafka, *told)


def count_dead_letters(found: DataFrame) -> tuple[int, int]:
    """How many of `classified` records are dead letters, and how many records there are."""
    row = found.agg(sql.count(_FAILED), sql.count(sql.lit(1))).first()
    assert row is not None
    return int(row[0]), int(row[1])


def _by_user(name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def transformed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transform = UserTransform(name)
        yield from map(transform.called, batches)

    return transformed

"""Inference of JSON schemas (`ingest.value.schema=infer` and `ingest.key.schema=infer`).

A schema is taken from the table's columns. If the table does not exist, or does not have the columns, the schema is
inferred from a sample of records. The first start creates the table with the inferred schema, so later starts take the
schema from the table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.schema.row_plan import kept_columns
from tiered_stream.delta.schema.row_schema import spark_columns, struct_type
from tiered_stream.delta.schema.sql_types import arrow_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec, with_overrides
from tiered_stream.delta.settings.row_settings import FLAT, INFER, RowSettings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json.json_inference import infer_json
from tiered_stream.formats.rows.row_choices import Envelope, Format
from tiered_stream.formats.rows.row_format import KEY
from tiered_stream.options.spark_options import INCLUDE_HEADERS, STARTING_OFFSETS
from tiered_stream.read.scanner import scan

log = logging.getLogger(__name__)

SAMPLE = 1000
"""Maximum number of records in a sample, which has the first records of the first partitions."""


def with_inferred(
    spec: TableSpec, options: Mapping[str, str], table: TableDescription | None, *, include_headers: bool
) -> TableSpec:
    """Return the settings with a schema in place of `infer` in `ingest.key.schema` and `ingest.value.schema`.

    The schema comes from the columns of `table`. If `table` is None or does not have the columns, the schema is
    inferred from a sample of records, which this function reads.

    Args:
        spec: settings of the table.
        options: options of the source.
        table: description of the table; None: there is no table yet.
        include_headers: true if the rows have Kafka's headers.

    Raises:
        ConfigurationError: the sample has no JSON objects, or `ingest.transform`, `ingest.select` or `ingest.envelope`
            is set.
        TieredStreamError: the topics cannot be read.
    """
    rows = spec.rows
    for part in (rows.key, rows.value):
        if part.schema == INFER:
            name = f"ingest.{part.name}.schema"
            if rows.transform or rows.select or rows.envelope is not Envelope.NONE:
                raise ConfigurationError(
                    f"{name} is infer: with ingest.transform, ingest.select and ingest.envelope, give one"
                )
            kind = _kind_in_table(part.name, rows, table, spec.day_column, include_headers=include_headers)
            kind = kind or infer_json(_sample(options, part.name))
            schema = spark_columns(pa.schema(list(kind)), None)
            log.info("%s: %s", name, schema.simpleString())
            given, found = replace(part, schema=schema.json()), spec.rows
            spec = replace(spec, rows=replace(found, key=given) if part is rows.key else replace(found, value=given))
    return spec


def _kind_in_table(
    part: str, rows: RowSettings, table: TableDescription | None, day_column: str | None, *, include_headers: bool
) -> pa.StructType | None:
    """Return the struct type of keys or of values (`part` is `key` or `value`), taken from the table's columns.

    If the keys or values are in one column, the result is the type of this column. If each field of a value has a
    column, the result has all columns except Kafka's columns, the key's column and `day_column`. If there is no table,
    or the table does not have the columns, the result is None. `include_headers` is true if the rows have Kafka's
    headers.
    """
    if table is None or not table.fields:
        return None
    columns = {column.name.lower(): column for column in arrow_schema(struct_type(table.fields))}
    name = (KEY if part == KEY else rows.value_columns).lower()
    if part == KEY or name != FLAT:
        column = columns.get(name)
        return column.type if column is not None and pa.types.is_struct(column.type) else None
    others = {own.lower() for _, own in kept_columns(rows, include_headers)} | {(day_column or "").lower()}
    if rows.key.format is not Format.BINARY:
        others |= {KEY}
    fields = [column for lower, column in columns.items() if lower not in others]
    return pa.struct(fields) if fields else None


def _sample(options: Mapping[str, str], part: str) -> list[bytes | None]:
    """Return the first `SAMPLE` keys or values of the topics, read in this process and without Spark.

    `part` is `key` or `value`. Partitions are read one after another from their earliest offsets. If the topics have
    fewer records, the list is shorter.
    """
    sampled = {STARTING_OFFSETS.name: "earliest", INCLUDE_HEADERS.name: "false"}
    with scan(with_overrides(options, sampled), threads=1, waiting_bytes=1) as batches:
        values = (value for batch in batches for value in batch.column(part).slice(0, SAMPLE).to_pylist())
        return list(islice(values, SAMPLE))

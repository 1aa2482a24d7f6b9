"""Functions by which the driver makes a table's `RowFormat`, and conversions between Arrow's and Spark's schemas.

A row format is made from settings, and from the schemas that they contain or that they name in a file or a registry.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructField, StructType

from tiered_stream.delta.schema.sql_types import parse_ddl
from tiered_stream.delta.settings.ingest_settings import COLUMN_MAPPING, PROPERTY_PREFIX
from tiered_stream.delta.settings.part_settings import INFER, REGISTRY, PartSettings
from tiered_stream.delta.settings.row_settings import (
    FLAT,
    KAFKA_COLUMNS,
    NONE,
    SELECT,
    VALUE_COLUMNS,
    WHERE,
    RowSettings,
    registry_properties,
    row_settings,
)
from tiered_stream.errors import ConfigurationError
from tiered_stream.extras import check_installed
from tiered_stream.formats.columns.schema_growth import grown, joined
from tiered_stream.formats.json.json_schema import json_schema_kind
from tiered_stream.formats.open_decoder import open_decoder, with_registered
from tiered_stream.formats.rows.envelope import unwrapped_type
from tiered_stream.formats.rows.kafka_columns import table_columns
from tiered_stream.formats.rows.row_choices import Envelope, Format, SchemaIdsIn
from tiered_stream.formats.rows.row_format import KEY, VALUE, PartFormat, RowFormat, schema_to_text
from tiered_stream.formats.rows.row_transformation import UserTransform
from tiered_stream.formats.rows.sql_query import COLUMN, SqlQuery
from tiered_stream.formats.sql.row_query import RowQuery
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.spark_options import SUBSCRIBE
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=\0]")
"""Characters that Delta forbids in column names without column mapping (Delta: `SchemaUtils.checkFieldNames`)."""
_FILE = re.compile(r"[^\r\n{}\"]+\.(ddl|json|avsc|proto|desc)", re.IGNORECASE)
"""Pattern of a schema setting that is the path of a file; no schema that is written as text matches it."""


def plan_rows(settings: Mapping[str, str], include_headers: bool, zone: str = "UTC") -> RowFormat:
    """Return the row format that the settings describe, without regard to the columns of an existing table.

    `zone` is the session's time zone. Without `include_headers`, the table gets no headers unless `ingest.kafkaColumns`
    names them. A DDL string needs a Spark session. If a registry has a separate schema for each topic, the result does
    not have the types of the columns yet.

    Raises:
        ConfigurationError: a setting or a schema is malformed, or two columns would have one name.
        SchemaRegistryError: the registry does not return a schema.
    """
    rows = row_settings(settings)
    row_format = RowFormat(
        kept_columns(rows, include_headers),
        _part(rows.key),
        _part(rows.value),
        None if rows.value_columns.lower() == FLAT else rows.value_columns,
        rows.on_decode_error,
        rows.schema_evolution,
        rows.envelope,
        rows.transform or "",
        query=_query(rows),
        zone=zone,
        registry=registry_properties(settings),
    )
    if row_format.key.is_of_topic or row_format.value.is_of_topic:
        return row_format
    return _checked(resolved(row_format)) if row_format.is_resolved else resolved(row_format)


def plan_topics(settings: Mapping[str, str], include_headers: bool, zone: str = "UTC") -> dict[str, RowFormat]:
    """Return the row formats of the topics of one table, by topic.

    The key '' stands for all topics. It is the only key, unless a schema registry has a separate schema for each topic.

    Raises:
        ConfigurationError: a setting or a schema is malformed, two columns would have one name, or topics with separate
            schemas are not named by `subscribe`.
        SchemaRegistryError: the registry does not return a schema.
    """
    row_format = plan_rows(settings, include_headers, zone)
    if row_format.is_resolved:
        return {"": row_format}
    topics = GivenOptions(settings).read(SUBSCRIBE)
    if not topics:
        raise ConfigurationError("with a schema registry, topics of one table are named by subscribe")
    return {topic: resolved(row_format, topic) for topic in topics}


def time_zone(spark: SparkSession) -> str:
    """Return the session's time zone, which applies to times in keys and values that name no zone; default: UTC."""
    return spark.conf.get("spark.sql.session.timeZone", None) or "UTC"


def shared_columns(rows: Iterable[RowFormat], day_column: str | None) -> StructType:
    """Return the columns of a table that takes rows of all these formats, then `day_column` unless it is None.

    A column whose type differs between formats has the type of the first format.
    """
    return spark_columns(_reduced((row_format.written for row_format in rows), grown), day_column)


def joined_columns(schemas: Iterable[StructType]) -> StructType:
    """Return the columns of a table that takes rows of all `schemas`.

    The schemas must have grown from one schema by new fields and wider types.

    Raises:
        UnsupportedDataError: a number has become wider in two ways, so that no type holds both.
    """
    return spark_columns(_reduced(map(arrow_schema, schemas), joined), None)


def _reduced(schemas: Iterable[pa.Schema], by: Callable[[pa.DataType, pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema(list(reduce(by, (pa.struct(list(schema)) for schema in schemas))))


def resolved(row_format: RowFormat, topic: str = "") -> RowFormat:
    """Return the row format with the types of all columns.

    A schema from a registry is the newest one for `topic`. A format that is resolved already is returned unchanged.

    Raises:
        ConfigurationError: a setting or a schema is malformed, or two columns would have one name.
        SchemaRegistryError: the registry does not return a schema.
    """
    if row_format.is_resolved:
        return row_format
    row_format = registered(row_format, topic)
    key, value = _with_kind(row_format.key, row_format, KEY), _with_kind(row_format.value, row_format, VALUE)
    if row_format.envelope is not Envelope.NONE and value.kind is not None:
        value = replace(value, kind=unwrapped_type(value.kind))
    return _checked(replace(row_format, key=key, value=value))


def registered(row_format: RowFormat, topic: str) -> RowFormat:
    """Return the row format with the topic's newest key and value schemas, if they come from a schema registry.

    A row format whose schemas do not come from a registry is returned unchanged.

    Raises:
        SchemaRegistryError: the registry does not return a schema.
        ConfigurationError: the registry's settings are wrong, or the schema does not suit the format.
    """
    return replace(
        row_format,
        key=with_registered(row_format.key, row_format, row_format.key.subject_for(topic, KEY)),
        value=with_registered(row_format.value, row_format, row_format.value.subject_for(topic, VALUE)),
    )


def _checked(row_format: RowFormat) -> RowFormat:
    """Check the names of the format's columns, and return the row format.

    If the row format has SQL or a transform of the user, the result also has the columns that these give.

    Raises:
        ConfigurationError: Delta does not accept a column name, two columns have one name, or the transform is wrong.
    """
    if row_format.query is not None:
        output = RowQuery(row_format.query, row_format.decoded, row_format.zone).output
        row_format = replace(row_format, selected=output if row_format.query.select else None)
    _check_columns(row_format.written.names)
    if row_format.transform:
        row_format = replace(row_format, transformed=UserTransform(row_format.transform).schema(row_format.decoded))
        _check_columns(row_format.written.names)
    return row_format


def check_new_columns(
    columns: DataType, properties: Mapping[str, str] = MappingProxyType({}), path: str = "", *, in_items: bool = False
) -> None:
    """Check that Delta accepts the fields of all structs in new columns, at any depth.

    Args:
        columns: the struct of the new columns; in recursive calls, a type inside of it. Characters in the names of the
            new columns themselves are not checked here, but by `plan_rows`.
        properties: the table's properties, by name.
        path: path of the type `columns`; '' for the struct of the new columns.
        in_items: true if `columns` is inside a list or a map, where Delta refuses NOT NULL.

    Raises:
        ConfigurationError: Delta refuses a field, which the error names.
    """
    if isinstance(columns, ArrayType):
        check_new_columns(columns.elementType, properties, f"{path}.element", in_items=True)
    elif isinstance(columns, MapType):
        check_new_columns(columns.keyType, properties, f"{path}.key", in_items=True)
        check_new_columns(columns.valueType, properties, f"{path}.value", in_items=True)
    elif isinstance(columns, StructType):
        is_mapped = properties.get(COLUMN_MAPPING, "none").lower() != "none"
        seen: set[str] = set()
        for field in columns:
            name = f"{path}.{field.name}" if path else field.name
            if path and not is_mapped and _FORBIDDEN.search(field.name):
                raise ConfigurationError(
                    f"{name!r:.100} cannot be a field in a Delta table: blanks and ,;{{}}()= are not allowed in its "
                    f"name. Rename it by ingest.transform, or give a new table {PROPERTY_PREFIX}{COLUMN_MAPPING}=name"
                )
            if field.name.lower() in seen:
                raise ConfigurationError(
                    f"{name!r:.100} is in its struct twice, since Delta heeds no case: rename one by ingest.transform"
                )
            if in_items and not field.nullable:
                raise ConfigurationError(
                    f"{name} is NOT NULL, which Delta refuses within lists and maps: take NOT NULL away"
                )
            seen.add(field.name.lower())
            check_new_columns(field.dataType, properties, name, in_items=in_items)


def fit_to_table(row_format: RowFormat, fields: Sequence[Mapping[str, Any]]) -> RowFormat:
    """Return the row format with the table's types, where the table has wider numbers or more fields in a struct.

    `fields` are the table's columns in Spark's JSON. If `fields` is empty, or the row format has a transform or
    selects columns, the row format is returned unchanged.
    """
    if not fields or row_format.transform or row_format.selected is not None:
        return row_format
    decoded = {name.lower() for name in row_format.decoded.names}
    known = [field for field in fields if field["name"].lower() in decoded]
    table = arrow_schema(StructType.fromJson({"type": "struct", "fields": known}))
    kinds = {column.name.lower(): column.type for column in table}
    key, value = row_format.key, row_format.value
    if key.kind is not None and KEY in kinds:
        key = replace(key, kind=grown(key.kind, kinds[KEY], widen=True))
    if value.kind is not None and row_format.struct_column is None and pa.types.is_struct(value.kind):
        columns = [
            (column.name, grown(column.type, kinds.get(column.name.lower(), column.type), widen=True))
            for column in value.kind
        ]
        value = replace(value, kind=pa.struct(columns))
    elif value.kind is not None and (name := (row_format.struct_column or VALUE).lower()) in kinds:
        value = replace(value, kind=grown(value.kind, kinds[name], widen=True))
    fitted = replace(row_format, key=key, value=value)
    return fitted if row_format.query is None else _checked(fitted)


def written_columns(row_format: RowFormat, day_column: str | None) -> StructType:
    """Return the columns that both lanes write for rows of this format, then `day_column` unless it is None."""
    return spark_columns(row_format.written, day_column)


def spark_columns(schema: pa.Schema, day_column: str | None) -> StructType:
    """Return the Spark schema of the Arrow columns, then `day_column` unless it is None.

    Hidden columns, which are not written to the table, are left out.
    """
    bare = pa.schema([(column.name, column.type) for column in table_columns(schema)])
    return with_day(from_arrow_schema(bare, prefer_timestamp_ntz=True), day_column)


def with_day(columns: StructType, day_column: str | None) -> StructType:
    """Return the columns, then a column `day_column` of type DATE unless it is None."""
    return StructType([*columns, StructField(day_column, DateType())]) if day_column else columns


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema to which Spark converts these columns; instants get the time zone UTC."""
    # Before Spark 4.2, the function has no such argument, and gives instants UTC.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def kept_columns(rows: RowSettings, include_headers: bool) -> tuple[tuple[str, str], ...]:
    """Return Kafka's columns that the table gets, as pairs of Kafka's name and the name in the table.

    If `ingest.kafkaColumns` is not set, the table gets all of Kafka's columns with these exceptions: a key or value
    whose format is not `binary`, and headers if `include_headers` is false.
    """
    if rows.kafka_columns is not None:
        return rows.kafka_columns
    omitted = {KEY} if rows.key.format is not Format.BINARY else set()
    omitted |= {VALUE} if rows.value.format is not Format.BINARY else set()
    omitted |= set() if include_headers else {"headers"}
    return tuple((name, name) for name in SCHEMA_WITH_HEADERS.names if name not in omitted)


def record_columns(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the table's columns that hold an unchanged column of Kafka, by Kafka's name of the column.

    A key or value of format `string` counts as unchanged. Columns that are decoded, that the table does not get or
    that `ingest.select` changes are left out. The result has `headers` even if `includeHeaders` is off.

    Raises:
        ConfigurationError: a setting is malformed.
    """
    rows = row_settings(settings)
    of_value = VALUE if rows.value_columns.lower() == FLAT else rows.value_columns
    texts = {KEY: KEY} if rows.key.format is Format.STRING else {}
    texts |= {VALUE: of_value} if rows.value.format is Format.STRING else {}
    names = texts | dict(kept_columns(rows, include_headers=True))
    query = _query(rows)
    if query is None or not query.select:
        return names
    found = ((column, _selected_as(query, name)) for column, name in names.items())
    return {column: name for column, name in found if name is not None}


def _selected_as(query: SqlQuery, name: str) -> str | None:
    """Return the name that `ingest.select` gives the unchanged column `name`, or None if it does not have it."""
    for item in query.select:
        if item.tree is None:
            return name
        if item.tree.op == COLUMN and item.tree.text.lower() == name.lower():
            return item.name
    return None


def _query(rows: RowSettings) -> SqlQuery | None:
    """Return the parsed `ingest.select` and `ingest.where`, or None if neither is set.

    Raises:
        ConfigurationError: a text is no SQL of the list, or the package sqlglot is missing.
    """
    if rows.select is None and rows.where is None:
        return None
    check_installed("sqlglot", f"{SELECT.name} or {WHERE.name}")
    # Imported here, because the import takes 0.3 s, and most jobs have no SQL.
    from tiered_stream.formats.sql.parser import parse_query

    return parse_query(rows.select, rows.where)


def _with_kind(part: PartFormat, row_format: RowFormat, name: str) -> PartFormat:
    decoder = None if part.kind is not None else open_decoder(row_format, name)
    return part if decoder is None else replace(part, kind=decoder.kind)


def _part(settings: PartSettings) -> PartFormat:
    part = PartFormat(settings.format, message=settings.message or "")
    if settings.schema == REGISTRY or settings.id_place is not None:  # each key or value names its schema
        part = replace(part, registered=True, ids=settings.id_place or SchemaIdsIn.DUAL, subject=settings.subject_name)
    if settings.schema is not None and settings.schema != REGISTRY:
        part = replace(part, schema=_schema(settings.name, settings.format, settings.schema))
    return part


def _schema(name: str, kind: Format, schema: str) -> str:
    """Return a schema in the form of `PartFormat.schema`; if the setting is the path of a file, read the file.

    `schema` is the setting `ingest.key.schema` or `ingest.value.schema`. `name` is `key` or `value`, and `kind` is the
    format of the key or value.

    Raises:
        ConfigurationError: the schema is `infer` or malformed, or the file cannot be read.
    """
    if schema == INFER:
        raise ConfigurationError(f"ingest.{name}.schema is infer, which is for a query of one table: give the schema")
    content: str | bytes = schema
    if (match := _FILE.fullmatch(schema.strip())) is not None:
        content = _file(name, Path(schema.strip()), match[1].lower())
    if isinstance(content, bytes):
        return b64encode(content).decode()
    return schema_to_text(_json_schema(name, content)) if kind is Format.JSON else content


def _file(name: str, path: Path, ending: str) -> str | bytes:
    """Return the content of a schema file: a protobuf descriptor set (bytes) for `.desc` and `.proto`, otherwise text.

    A `.proto` file is compiled to a descriptor set.

    `name` is `key` or `value`, for errors. `ending` is the end of the file's name, in lower case and without the dot.

    Raises:
        ConfigurationError: the file cannot be read or compiled.
    """
    try:
        if ending != "proto":
            return path.read_bytes() if ending == "desc" else path.read_text()
        path.open("rb").close()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"ingest.{name}.schema: the file {path} cannot be read: {error}") from error
    from tiered_stream.formats.protobuf.proto_compiler import compiled_file

    try:
        return compiled_file(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"ingest.{name}.schema: {error}") from error


def _json_schema(name: str, text: str) -> pa.Schema:
    """Return the Arrow schema of a DDL string, of Spark's schema JSON, or of a JSON Schema.

    `name` is `key` or `value`, for errors.

    Raises:
        ConfigurationError: the text is no schema in one of these forms, has no fields, or has a type that no column can
            have.
    """
    try:
        if not text.lstrip().startswith("{"):
            schema = parse_ddl(text)
        elif (parsed := orjson.loads(text)).get("type") == "struct":
            schema = StructType.fromJson(parsed)
        else:
            return pa.schema(list(json_schema_kind(text)))
    except ConfigurationError as error:
        raise ConfigurationError(f"ingest.{name}.schema: {error}") from error
    except (PySparkException, ValueError, KeyError, TypeError, AttributeError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"ingest.{name}.schema is no schema: {line}. Write it as a Spark DDL string"
        ) from error
    if not isinstance(schema, StructType):
        raise ConfigurationError(f"ingest.{name}.schema is {schema.simpleString()}: it must have fields")
    try:
        return arrow_schema(schema)
    except PySparkException as error:
        raise ConfigurationError(
            f"ingest.{name}.schema is {schema.simpleString()}, which no column here can be: {error}. For VARCHAR(n) "
            "and CHAR(n), write STRING, and create the table with these types before: its lengths then hold"
        ) from error


def check_day_column(name: str) -> None:
    """Raise ConfigurationError if the name is empty, or has a character that Delta forbids without column mapping."""
    if _FORBIDDEN.search(name) or not name:
        raise ConfigurationError(
            f"ingest.dayColumn is {name!r:.100}, which cannot be a column of a Delta table: blanks and ,;{{}}()= are "
            "not allowed in its name. Take another one."
        )


def _check_columns(names: Sequence[str]) -> None:
    """Raise ConfigurationError if two names differ at most by case, or if Delta does not accept a name."""
    seen: dict[str, str] = {}
    kafka = {name.lower() for name in SCHEMA_WITH_HEADERS.names}
    for name in names:
        if name.lower() in seen:
            rename = f"{name} as kafka_{name}" if name.lower() in kafka else f"… as kafka_{name}"
            raise ConfigurationError(
                f"two columns of the table would be called {name}: rename Kafka's with {KAFKA_COLUMNS.name}={rename}, "
                f"leave it out ({KAFKA_COLUMNS.name}={NONE}), or keep the value in one column with {VALUE_COLUMNS.name}"
            )
        if _FORBIDDEN.search(name) or not name:
            raise ConfigurationError(
                f"{name!r:.100} cannot be a column of a Delta table: blanks and ,;{{}}()= are not allowed in its name. "
                f"Rename it by ingest.transform, or keep the value in one column with {VALUE_COLUMNS.name}"
            )
        seen[name.lower()] = name

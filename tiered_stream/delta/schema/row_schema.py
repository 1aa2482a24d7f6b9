"""Resolution of a table's `RowFormat` on the driver, from settings, schemas and files; conversion to Spark's types."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
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
    VALUE_COLUMNS,
    RowSettings,
    registry_properties,
    row_settings,
)
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.schema_growth import grown, joined
from tiered_stream.formats.json.json_schema import json_schema_kind
from tiered_stream.formats.open_decoder import open_decoder, with_registered
from tiered_stream.formats.rows.envelope import unwrapped_type
from tiered_stream.formats.rows.kafka_columns import table_columns
from tiered_stream.formats.rows.row_choices import Envelope, Format, SchemaIdsIn
from tiered_stream.formats.rows.row_format import KEY, VALUE, PartFormat, RowFormat, schema_to_text
from tiered_stream.formats.rows.row_transformation import UserTransform
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.spark_options import SUBSCRIBE
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=\0]")
"""Characters that Delta forbids in column names without column mapping (Delta: `SchemaUtils.checkFieldNames`)."""
_FILE = re.compile(r"[^\r\n{}\"]+\.(ddl|json|avsc|proto|desc)", re.IGNORECASE)
"""Form of a schema setting that is a file's path; no schema written as text ends like this."""


def plan_rows(settings: Mapping[str, str], include_headers: bool, zone: str = "UTC") -> RowFormat:
    """Return the row format that the settings describe, independent of the table. A DDL string needs Spark's session.

    `zone` is the session's time zone. Types are not resolved yet if a registry has a separate schema for each topic.

    Raises:
        ConfigurationError: a setting or a schema is malformed, or two columns would have one name.
        SchemaRegistryError: the registry does not return a schema.
    """
    given = row_settings(settings)
    how = RowFormat(
        kept_columns(given, include_headers),
        _part(given.key),
        _part(given.value),
        None if given.value_columns.lower() == FLAT else given.value_columns,
        given.on_decode_error,
        given.schema_evolution,
        given.envelope,
        given.transform or "",
        zone=zone,
        registry=registry_properties(settings),
    )
    if how.key.is_of_topic or how.value.is_of_topic:
        return how
    return _checked(resolved(how)) if how.is_resolved else resolved(how)


def plan_topics(settings: Mapping[str, str], include_headers: bool, zone: str = "UTC") -> dict[str, RowFormat]:
    """Return the row formats of topics that share a table, by topic; '' stands for all topics if they have one schema.

    Topics have separate formats if a schema registry has a schema for each topic.

    Raises:
        ConfigurationError: a setting or a schema is malformed, or two columns would have one name.
        SchemaRegistryError: the registry does not return a schema.
    """
    how = plan_rows(settings, include_headers, zone)
    if how.is_resolved:
        return {"": how}
    topics = GivenOptions(settings).read(SUBSCRIBE)
    if not topics:
        raise ConfigurationError("with a schema registry, topics of one table are named by subscribe")
    return {topic: resolved(how, topic) for topic in topics}


def time_zone(spark: SparkSession) -> str:
    """Return the session's time zone, which applies to times in values that name no zone."""
    return spark.conf.get("spark.sql.session.timeZone", None) or "UTC"


def shared_columns(rows: Iterable[RowFormat], day_column: str | None) -> StructType:
    """Return the columns of a table that takes rows of all these formats, and its day column if it has one."""
    return spark_columns(_in_one((how.written for how in rows), grown), day_column)


def joined_columns(schemas: Iterable[StructType]) -> StructType:
    """Return the columns that take rows of all these schemas, which have grown from one schema.

    Raises:
        UnsupportedDataError: a number has become wider in two ways that no column takes together.
    """
    return spark_columns(_in_one(map(arrow_schema, schemas), joined), None)


def _in_one(schemas: Iterable[pa.Schema], by: Callable[[pa.DataType, pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema(list(reduce(by, (pa.struct(list(each)) for each in schemas))))


def resolved(how: RowFormat, topic: str = "") -> RowFormat:
    """Return the row format with the types of its columns; schemas from a registry are the topic's newest.

    Raises:
        ConfigurationError: a setting or a schema is malformed, or two columns would have one name.
        SchemaRegistryError: the registry does not return a schema.
    """
    if how.is_resolved:
        return how
    how = registered(how, topic)
    key, value = (_with_kind(part, how, name) for name, part in ((KEY, how.key), (VALUE, how.value)))
    if how.envelope is not Envelope.NONE and value.kind is not None:
        value = replace(value, kind=unwrapped_type(value.kind))
    return _checked(replace(how, key=key, value=value))


def registered(how: RowFormat, topic: str) -> RowFormat:
    """Return the row format with the topic's newest key and value schemas from the registry, if it uses one.

    Raises:
        SchemaRegistryError: the registry does not return a schema.
        ConfigurationError: the registry's settings are wrong, or the schema does not suit the format.
    """
    return replace(
        how,
        key=with_registered(how.key, how, how.key.subject_for(topic, KEY)),
        value=with_registered(how.value, how, how.value.subject_for(topic, VALUE)),
    )


def _checked(how: RowFormat) -> RowFormat:
    """Check the column names; return the row format with the columns that the user's transform gives, if it has one."""
    _check_columns(how.decoded.names)
    if how.transform:
        how = replace(how, transformed=UserTransform(how.transform).schema(how.decoded))
        _check_columns(how.written.names)
    return how


def check_new_columns(columns: DataType, properties: Mapping[str, str] = MappingProxyType({}), path: str = "") -> None:
    """Check that Delta accepts the fields of structs in new columns, at any depth.

    `properties` are the table's properties. Names of the columns themselves are checked when rows are planned.

    Raises:
        ConfigurationError: Delta refuses a field, which the error names.
    """
    if isinstance(columns, ArrayType):
        _check_within_items(columns.elementType, properties, f"{path}.element")
    elif isinstance(columns, MapType):
        _check_within_items(columns.keyType, properties, f"{path}.key")
        _check_within_items(columns.valueType, properties, f"{path}.value")
    elif isinstance(columns, StructType):
        is_mapped = properties.get(COLUMN_MAPPING, "none").lower() != "none"
        seen: set[str] = set()
        for each in columns:
            name = f"{path}.{each.name}" if path else each.name
            if path and not is_mapped and _FORBIDDEN.search(each.name):
                raise ConfigurationError(
                    f"{name!r:.100} cannot be a field in a Delta table: blanks and ,;{{}}()= are not allowed in its "
                    f"name. Rename it by ingest.transform, or give a new table {PROPERTY_PREFIX}{COLUMN_MAPPING}=name"
                )
            if each.name.lower() in seen:
                raise ConfigurationError(
                    f"{name!r:.100} is in its struct twice, since Delta heeds no case: rename one by ingest.transform"
                )
            seen.add(each.name.lower())
            check_new_columns(each.dataType, properties, name)


def _check_within_items(kind: DataType, properties: Mapping[str, str], path: str) -> None:
    """Raise ConfigurationError if Delta refuses a field within a list or map, because of its name or NOT NULL."""
    check_new_columns(kind, properties, path)
    if isinstance(kind, StructType):
        for each in kind:
            if not each.nullable:
                raise ConfigurationError(
                    f"{path}.{each.name} is NOT NULL, which Delta refuses within lists and maps: take NOT NULL away"
                )
            if isinstance(each.dataType, StructType):
                _check_within_items(each.dataType, properties, f"{path}.{each.name}")


def fit_to_table(how: RowFormat, fields: Sequence[Mapping[str, Any]]) -> RowFormat:
    """Return the row format with the table's types where the table has wider types or more fields of structs.

    `fields` are the table's columns in Spark's JSON. A format with a transform is returned unchanged.
    """
    if not fields or how.transform:
        return how
    decoded = {name.lower() for name in how.decoded.names}
    known = [field for field in fields if field["name"].lower() in decoded]
    table = arrow_schema(StructType.fromJson({"type": "struct", "fields": known}))
    kinds = {each.name.lower(): each.type for each in table}
    key, value = how.key, how.value
    if key.kind is not None and KEY in kinds:
        key = replace(key, kind=grown(key.kind, kinds[KEY], widen=True))
    if value.kind is not None and how.struct_column is None and pa.types.is_struct(value.kind):
        columns = [
            (each.name, grown(each.type, kinds.get(each.name.lower(), each.type), widen=True)) for each in value.kind
        ]
        value = replace(value, kind=pa.struct(columns))
    elif value.kind is not None and (name := (how.struct_column or VALUE).lower()) in kinds:
        value = replace(value, kind=grown(value.kind, kinds[name], widen=True))
    return replace(how, key=key, value=value)


def written_columns(how: RowFormat, day_column: str | None) -> StructType:
    """Return the columns that rows of the format write, and the day column; they are the same in both lanes."""
    return spark_columns(how.written, day_column)


def spark_columns(schema: pa.Schema, day_column: str | None) -> StructType:
    """Return a table's columns as Spark's schema: Arrow columns that are not hidden, then the day column if any."""
    bare = pa.schema([(each.name, each.type) for each in table_columns(schema)])
    return with_day(from_arrow_schema(bare), day_column)


def with_day(columns: StructType, day_column: str | None) -> StructType:
    """Return the columns, followed by the day column if the table has one."""
    return StructType([*columns, StructField(day_column, DateType())]) if day_column else columns


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema to which Spark converts these columns, with UTC as the time zone."""
    return to_arrow_schema(schema, timezone="UTC")


def kept_columns(given: RowSettings, include_headers: bool) -> tuple[tuple[str, str], ...]:
    """Return Kafka's columns that the table gets, as pairs of Kafka's name and the name in the table."""
    if given.kafka_columns is not None:
        return given.kafka_columns
    left_out = {KEY} if given.key_format is not Format.BINARY else set()
    left_out |= {VALUE} if given.value_format is not Format.BINARY else set()
    left_out |= set() if include_headers else {"headers"}
    return tuple((name, name) for name in SCHEMA_WITH_HEADERS.names if name not in left_out)


def record_columns(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that hold a record's parts unchanged: the name in the table, by Kafka's name.

    A key or value of format `string` counts as unchanged. Parts that are decoded or left out are missing. `headers` are
    included even if includeHeaders is off.

    Raises:
        ConfigurationError: a setting is malformed.
    """
    given = row_settings(settings)
    of_value = VALUE if given.value_columns.lower() == FLAT else given.value_columns
    texts = {KEY: KEY} if given.key_format is Format.STRING else {}
    texts |= {VALUE: of_value} if given.value_format is Format.STRING else {}
    return texts | dict(kept_columns(given, include_headers=True))


def _with_kind(part: PartFormat, how: RowFormat, name: str) -> PartFormat:
    decoder = None if part.kind is not None else open_decoder(how, name)
    return part if decoder is None else replace(part, kind=decoder.kind)


def _part(given: PartSettings) -> PartFormat:
    part = PartFormat(given.format, message=given.message or "")
    if given.is_registered:
        part = replace(part, registered=True, ids=given.id_place or SchemaIdsIn.DUAL, subject=given.subject_name)
    return (
        part
        if given.schema in (None, REGISTRY)
        else replace(part, schema=_schema(given.name, given.format, given.schema))
    )


def _schema(name: str, kind: Format, schema: str) -> str:
    """Return the schema setting in the form of `PartFormat.schema`; read the file if the setting is a path."""
    if schema == INFER:
        raise ConfigurationError(f"ingest.{name}.schema is infer, which is for a query of one table: give the schema")
    content: str | bytes = schema
    if (match := _FILE.fullmatch(schema.strip())) is not None:
        content = _file(name, Path(schema.strip()), match[1].lower())
    if isinstance(content, bytes):
        return b64encode(content).decode()
    return schema_to_text(_json_schema(name, content)) if kind is Format.JSON else content


def _file(name: str, path: Path, ending: str) -> str | bytes:
    """Read a schema file: bytes of a descriptor set for `.desc` and `.proto`, else text."""
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
    """Return the Arrow schema of a DDL string, of Spark's schema JSON, or of a JSON Schema."""
    try:
        if not text.lstrip().startswith("{"):
            found = parse_ddl(text)
        elif (parsed := orjson.loads(text)).get("type") == "struct":
            found = StructType.fromJson(parsed)
        else:
            return pa.schema(list(json_schema_kind(text)))
    except ConfigurationError as error:
        raise ConfigurationError(f"ingest.{name}.schema: {error}") from error
    except (PySparkException, ValueError, KeyError, TypeError, AttributeError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"ingest.{name}.schema is no schema: {line}. Write it as a Spark DDL string"
        ) from error
    if not isinstance(found, StructType):
        raise ConfigurationError(f"ingest.{name}.schema is {found.simpleString()}: it must have fields")
    try:
        return arrow_schema(found)
    except PySparkException as error:
        raise ConfigurationError(
            f"ingest.{name}.schema is {found.simpleString()}, which no column here can be: {error}. Of VARCHAR(n) and "
            "CHAR(n) write STRING, and make the table with them before: its lengths are kept to"
        ) from error


def check_day_column(name: str) -> None:
    """Raise ConfigurationError if Delta refuses a column of this name in a table without column mapping."""
    if _FORBIDDEN.search(name) or not name:
        raise ConfigurationError(
            f"ingest.dayColumn is {name!r:.100}, which cannot be a column of a Delta table: blanks and ,;{{}}()= are "
            "not allowed in its name. Take another one."
        )


def _check_columns(names: Sequence[str]) -> None:
    """Raise ConfigurationError if two columns have the same name for Delta, or Delta does not accept a name."""
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

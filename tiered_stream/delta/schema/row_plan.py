"""Functions that make a table's `RowFormat` from settings, and from schemas in settings, files or a registry.

Nothing here needs Spark, so a schema does not depend on the settings of a Spark session.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa

from tiered_stream.delta.settings import row_settings as row
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import ConfigurationError, SchemaRegistryError, UnknownSchemaError
from tiered_stream.formats.avro.avro_schema import LargeScaleError
from tiered_stream.formats.json.json_schema import json_schema_columns
from tiered_stream.formats.open_decoder import open_decoder, with_registered
from tiered_stream.formats.rows.change_records import check_flattened, check_key_columns, named_column, unwrapped_type
from tiered_stream.formats.rows.row_choices import AvroColumns, Envelope, Format, SchemaIdsIn
from tiered_stream.formats.rows.row_format import KEY, VALUE, PartFormat, RowFormat, schema_to_text
from tiered_stream.formats.rows.row_steps import RowQuery, UserTransform, with_time_types
from tiered_stream.formats.sql.parser import COLUMN, SqlQuery, parse_query
from tiered_stream.formats.sql.sql_reader import parse_spark_schema
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

FORBIDDEN = re.compile(r"[ ,;{}()\n\t=\0]")
"""Characters that Delta forbids in column names without column mapping (Delta: `SchemaUtils.checkFieldNames`)."""
_FILE = re.compile(r"[^\r\n{}\"]+\.(ddl|json|avsc|proto|desc)", re.IGNORECASE)
"""Pattern of a schema setting that is the path of a file; no schema that is written as text matches it."""


def plan_rows(spec: TableSpec, include_headers: bool, zone: str = "UTC") -> RowFormat:
    """Return the row format that the settings describe, without regard to the columns of an existing table.

    `zone` is the session's time zone. Without `include_headers`, the table gets no headers unless `ingest.kafkaColumns`
    names them. If a registry has a separate schema for each topic, the result has no types of the columns yet.

    Raises:
        ConfigurationError: a setting or a schema is malformed, or two columns would have one name.
        SchemaRegistryError: the registry does not return a schema.
    """
    rows = spec.rows
    row_format = RowFormat(
        kept_columns(rows, include_headers),
        _part(rows.key),
        _part(rows.value),
        None if rows.value_columns.lower() == row.FLAT else rows.value_columns,
        rows.on_decode_error,
        rows.schema_evolution,
        rows.envelope,
        AvroColumns(rows.large_decimals, rows.times == row.NAMED_TIMES),
        () if rows.times == row.NAMED_TIMES else rows.times,
        rows.transform or "",
        query=_query(rows),
        lands_key=_lands_key(rows, spec.keys),
        keys=spec.keys,
        order_by=spec.order_by or "",
        placeholder=spec.placeholder,
        zone=zone,
        registry=dict(rows.registry),
    )
    if row_format.key.registered or row_format.value.registered:
        from tiered_stream.formats.registry.schema_registry import RegistrySettings  # late, because it needs urllib3

        with errors_name(row.REGISTRY_PREFIX.rstrip(".")):
            RegistrySettings.parse(row_format.registry)
    if row_format.key.awaits_topic or row_format.value.awaits_topic:
        return row_format
    return checked(resolved(row_format)) if row_format.is_resolved else resolved(row_format)


def plan_topics(
    spec: TableSpec, topics: Sequence[str], include_headers: bool, zone: str = "UTC"
) -> dict[str, RowFormat]:
    """Return the row formats of one table, by topic; `topics` are the topics that `subscribe` names.

    The key '' stands for all topics. It is the only key, unless a schema registry has a separate schema for each topic.

    Raises:
        ConfigurationError: a setting or a schema is malformed, two columns would have one name, or topics with separate
            schemas are not named by `subscribe`.
        SchemaRegistryError: the registry does not return a schema.
    """
    row_format = plan_rows(spec, include_headers, zone)
    if row_format.is_resolved:
        return {"": row_format}
    if not topics:
        raise ConfigurationError("with a schema registry, topics of one table are named by subscribe")
    return {topic: resolved(row_format, topic) for topic in topics}


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
    with errors_name(f"{row.ENVELOPE.name}={row_format.envelope}"):
        if row_format.envelope is Envelope.FLATTENED and value.kind is not None:
            check_flattened(value.kind)
        if row_format.envelope is Envelope.DEBEZIUM and value.kind is not None:
            value = replace(value, kind=unwrapped_type(value.kind))
    if row_format.times:
        if value.kind is None or not pa.types.is_struct(value.kind):
            raise ConfigurationError(
                f"{row.TIMES.name} is for values with fields: set ingest.value.format, or remove it"
            )
        with errors_name(row.TIMES.name):
            value = replace(value, kind=with_time_types(value.kind, row_format.times))
    return checked(replace(row_format, key=key, value=value))


def registered(row_format: RowFormat, topic: str) -> RowFormat:
    """Return the row format with the topic's newest key and value schemas, if they come from a schema registry.

    A row format whose schemas do not come from a registry is returned unchanged.

    Raises:
        SchemaRegistryError: the registry does not return a schema.
        ConfigurationError: the registry's settings are wrong, or the schema does not suit the format.
    """
    try:
        return replace(
            row_format,
            key=with_registered(row_format.key, row_format, row_format.key.subject_for(topic, KEY)),
            value=with_registered(row_format.value, row_format, row_format.value.subject_for(topic, VALUE)),
        )
    except UnknownSchemaError as error:
        raise UnknownSchemaError(
            f"{error}; if writers use another subject, set ingest.value.subject.name.strategy or ingest.value.subject "
            "(of keys: ingest.key.…)"
        ) from error


def checked(row_format: RowFormat) -> RowFormat:
    """Check the names of the format's columns, and return the row format.

    If `ingest.select`, `ingest.where` or `ingest.transform` is set, the result also has the columns that this SQL or
    function returns. Names of key columns get the upper and lower case of the columns that they name.

    Raises:
        ConfigurationError: Delta does not accept a column name, two columns have one name, or the SQL or the transform
            is wrong. Or key columns are set and are missing, or are set together with SQL.
    """
    if row_format.query is not None:
        with errors_name(f"{row.SELECT.name}, {row.WHERE.name}"):
            output = RowQuery(row_format.query, row_format.decoded, row_format.zone).output
        row_format = replace(row_format, selected=output if row_format.query.select else None)
    _check_columns(row_format.written.names)
    if row_format.transform:
        with errors_name(row.TRANSFORM.name):
            row_format = replace(row_format, transformed=UserTransform(row_format.transform).schema(row_format.decoded))
        _check_columns(row_format.written.names)
    if not row_format.keys:
        return row_format
    if row_format.query is not None:
        raise ConfigurationError(
            f"{row.SELECT.name} and {row.WHERE.name} cannot be used with {row.KEYS.name}: a row that is left out "
            "would keep an older state in the table. Land the rows in another table first, and select there"
        )
    with errors_name(f"{row.KEYS.name}, {row.ORDER_BY.name}"):
        check_key_columns(row_format.written, row_format.keys, row_format.order_by or None)
    as_written = partial(named_column, row_format.written)
    return replace(
        row_format, keys=tuple(as_written(name) or name for name in row_format.keys),
        order_by=as_written(row_format.order_by) or "",
    )  # fmt: skip


def _query(rows: row.RowSettings) -> SqlQuery | None:
    with errors_name(f"{row.SELECT.name}, {row.WHERE.name}"):
        return parse_query(rows.select, rows.where)


@contextmanager
def errors_name(place: str, advice: str = "") -> Iterator[None]:
    """Add text to the message of a ConfigurationError or SchemaRegistryError that the `with` block raises.

    `place`, such as a setting's name, is put before the message, and `advice` after it.
    """
    try:
        yield
    except (ConfigurationError, SchemaRegistryError) as error:
        raise type(error)(f"{place}: {error}{advice}") from error


def kept_columns(rows: row.RowSettings, include_headers: bool) -> tuple[tuple[str, str], ...]:
    """Return Kafka's columns that the table gets, as pairs of Kafka's name and the name in the table.

    If `ingest.kafkaColumns` is not set, the table gets all of Kafka's columns with these exceptions: a key or value
    whose format is not `binary`, and headers if `include_headers` is false.
    """
    if rows.kafka_columns is not None:  # a decoded key is a column of its own
        decoded = (KEY, KEY) if rows.key.format is not Format.BINARY else None
        return tuple(pair for pair in rows.kafka_columns if pair != decoded)
    omitted = {KEY} if rows.key.format is not Format.BINARY else set()
    omitted |= {VALUE} if rows.value.format is not Format.BINARY else set()
    omitted |= set() if include_headers else {"headers"}
    return tuple((name, name) for name in SCHEMA_WITH_HEADERS.names if name not in omitted)


def _lands_key(rows: row.RowSettings, keys: Sequence[str]) -> bool:
    """Return whether a decoded key becomes a column of the table.

    With `ingest.kafkaColumns=none`, it does only if it is one of `keys`, or if an SQL query or a transform is set.
    """
    named = KEY in (name.lower() for name in keys)
    return rows.kafka_columns != () or named or bool(rows.select or rows.where or rows.transform)


def record_columns(spec: TableSpec) -> dict[str, str]:
    """Return a dictionary from the names of Kafka's columns to the table's columns that hold them unchanged.

    A key or value of format `string` counts as unchanged. Columns that are decoded, that the table does not get or that
    `ingest.select` changes are left out. `headers` is never left out because `includeHeaders` is off: this option is
    no part of `spec`.

    Raises:
        ConfigurationError: `ingest.select` or `ingest.where` is malformed.
    """
    rows = spec.rows
    of_value = VALUE if rows.value_columns.lower() == row.FLAT else rows.value_columns
    texts = {KEY: KEY} if rows.key.format is Format.STRING and _lands_key(rows, spec.keys) else {}
    texts |= {VALUE: of_value} if rows.value.format is Format.STRING else {}
    names = texts | dict(kept_columns(rows, include_headers=True))
    query = _query(rows)
    if query is None or not query.select:
        return names
    found = ((column, _selected_as(query, name)) for column, name in names.items())
    return {column: name for column, name in found if name is not None}


def _selected_as(query: SqlQuery, name: str) -> str | None:
    """Return the name that `ingest.select` gives the column `name`, or None if it does not select it unchanged."""
    for item in query.select:
        if item.tree is None:
            return name
        if item.tree.op == COLUMN and item.tree.text.lower() == name.lower():
            return item.name
    return None


def _with_kind(part: PartFormat, row_format: RowFormat, name: str) -> PartFormat:
    try:
        decoder = None if part.kind is not None else open_decoder(row_format, name)
    except LargeScaleError as error:
        raise ConfigurationError(f"{error}. Set {row.LARGE_DECIMALS.name} to string, double or binary") from error
    return part if decoder is None else replace(part, kind=decoder.kind)


def _part(settings: row.PartSettings) -> PartFormat:
    part = PartFormat(settings.format, message=settings.message or "")
    if settings.schema == row.REGISTRY or settings.id_place is not None:  # each key or value names its schema
        part = replace(part, registered=True, ids=settings.id_place or SchemaIdsIn.DUAL, subject=settings.subject_name)
    if settings.schema is not None and settings.schema != row.REGISTRY:
        part = replace(part, schema=_schema(settings.name, settings.format, settings.schema))
    return part


def _schema(name: str, kind: Format, schema: str) -> str:
    """Return a schema in the form of `PartFormat.schema`; if the setting is the path of a file, read the file.

    `schema` is the setting `ingest.key.schema` or `ingest.value.schema`. `name` is `key` or `value`, and `kind` is the
    format of the key or value. Raise ConfigurationError if the file cannot be read, or the schema is malformed.
    """
    if schema == row.INFER:
        raise ConfigurationError(f"ingest.{name}.schema is infer, which is for a query of one table: give the schema")
    content: str | bytes = schema
    if (match := _FILE.fullmatch(schema.strip())) is not None:
        content = _file(name, Path(schema.strip()), match[1].lower())
    if isinstance(content, bytes):
        return b64encode(content).decode()
    return schema_to_text(_json_schema(name, content)) if kind is Format.JSON else content


def _file(name: str, path: Path, ending: str) -> str | bytes:
    """Return the content of a schema file: a protobuf descriptor set (bytes) for `.desc` and `.proto`, otherwise text.

    A `.proto` file is compiled to a descriptor set. `name` is `key` or `value`, for errors. `ending` is the end of the
    file's name, in lower case and without the dot. Raise ConfigurationError if the file cannot be read or compiled.
    """
    try:
        if ending != "proto":
            return path.read_bytes() if ending == "desc" else path.read_text("utf-8-sig")
        path.open("rb").close()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"ingest.{name}.schema: the file {path} cannot be read: {error}") from error
    from tiered_stream.formats.protobuf.proto_compiler import compiled_file

    with errors_name(f"ingest.{name}.schema"):
        return compiled_file(path)


def _json_schema(name: str, text: str) -> pa.Schema:
    """Return the Arrow schema of a DDL string, of Spark's schema JSON, or of a JSON Schema.

    `name` is `key` or `value`, for errors. Raise ConfigurationError if the text is no schema.
    """
    try:
        is_json = text.lstrip().startswith("{")
        if is_json and orjson.loads(text).get("type") != "struct":
            return json_schema_columns(text)
        return parse_spark_schema(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"ingest.{name}.schema: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        line = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"ingest.{name}.schema is no schema: {line}. Write it as a Spark DDL string"
        ) from error


def _check_columns(names: Sequence[str]) -> None:
    """Raise ConfigurationError if two names differ at most by case, or if Delta does not accept a name."""
    seen: dict[str, str] = {}
    kafka = {name.lower() for name in SCHEMA_WITH_HEADERS.names}
    for name in names:
        if name.lower() in seen:
            rename = f"{name} as kafka_{name}" if name.lower() in kafka else f"… as kafka_{name}"
            raise ConfigurationError(
                f"two columns of the table would be called {name}: rename Kafka's with "
                f"{row.KAFKA_COLUMNS.name}={rename}, leave it out ({row.KAFKA_COLUMNS.name}={row.NONE}), or keep the "
                f"value in one column with {row.VALUE_COLUMNS.name}. A table that exists keeps its "
                "columns: if the field is new, land in another table"
            )
        if FORBIDDEN.search(name) or not name:
            raise ConfigurationError(
                f"{name!r:.100} cannot be a column of a Delta table: blanks and ,;{{}}()= are not allowed in its name. "
                f"Rename it by ingest.transform, or keep the value in one column with {row.VALUE_COLUMNS.name}"
            )
        seen[name.lower()] = name


def check_day_column(name: str) -> None:
    """Raise ConfigurationError if the name is empty, or has a character that Delta forbids without column mapping."""
    if FORBIDDEN.search(name) or not name:
        raise ConfigurationError(
            f"ingest.dayColumn is {name!r:.100}, which cannot be a column of a Delta table: blanks and ,;{{}}()= are "
            "not allowed in its name. Take another one."
        )

"""Factory of decoders of Kafka keys and values. A format's modules are imported only if a table uses the format."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tiered_stream.errors import ConfigurationError, UnsupportedDataError
from tiered_stream.formats.columns.conform import grown
from tiered_stream.formats.columns.decoded import TextDecoder, ValueDecoder
from tiered_stream.formats.rows.row_choices import Envelope, Evolution, Format
from tiered_stream.formats.rows.row_format import KEY, VALUE, PartFormat, RowFormat, schema_from_text, schema_to_text

if TYPE_CHECKING:
    from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings

_HEADERS = {KEY: "__key_schema_id", VALUE: "__value_schema_id"}
"""Names of the record headers that hold the id or GUID of the key's and the value's schema (Confluent: `SchemaId`)."""
_IMAGES = ("payload", "before", "after")
"""Fields of Debezium's envelope that hold the row before or after a change; `payload` holds the other two fields."""


def open_decoder(row_format: RowFormat, name: str) -> ValueDecoder | None:
    """Return the decoder of a table's keys (`name` is `key`) or values (`name` is `value`).

    Returns None if the keys or values have the format `binary`, which needs no decoder. For JSON, Avro and protobuf,
    `row_format` must already have the schema. `with_registered` fetches the schema from a registry.

    Raises:
        ConfigurationError: the schema or the registry's settings are invalid, or no column can have the schema's types.
    """
    part = row_format.key if name == KEY else row_format.value
    try:
        match part.format:
            case Format.STRING:
                return TextDecoder()
            case Format.JSON:
                return _json_decoder(part, row_format, name)
            case Format.AVRO:
                return _avro_decoder(part, row_format, name)
            case Format.PROTOBUF:
                return _protobuf_decoder(part, row_format, name)
    except UnsupportedDataError as error:
        raise ConfigurationError(f"the {name}'s schema: {error}") from error
    return None


def _json_decoder(part: PartFormat, row_format: RowFormat, name: str) -> ValueDecoder:
    evolution, zone = _evolution(row_format, name), row_format.zone
    kind = _json_kind(part, row_format, evolution)
    if not part.registered:
        from tiered_stream.formats.json.json_decoder import JsonDecoder

        return JsonDecoder(kind, zone, widens=evolution is Evolution.WIDEN)
    from tiered_stream.formats.registry.registry_json import RegistryJsonDecoder

    registry = _registry_of(part, row_format)
    return RegistryJsonDecoder(registry, kind, zone, record=part.message, evolution=evolution, header=_HEADERS[name])


def _avro_decoder(part: PartFormat, row_format: RowFormat, name: str) -> ValueDecoder:
    evolution, columns = _evolution(row_format, name), row_format.avro_columns
    if not part.registered:
        from tiered_stream.formats.avro.avro_decoder import AvroDecoder
        from tiered_stream.formats.avro.avro_schema import parse_avro_schema

        schema = parse_avro_schema(part.schema, columns=columns)
        return AvroDecoder(schema, schema)
    from tiered_stream.formats.registry.registry_decoder import RegistryDecoder

    # Rows of a table of the latest state have the table's columns that only older schemas have.
    needs_column = name == VALUE and (row_format.keys or evolution is Evolution.WIDEN)
    column = _as_in_table(part, row_format) if needs_column else None
    return RegistryDecoder(
        _registry_of(part, row_format), part.schema, part.references, header=_HEADERS[name], evolution=evolution,
        column=column, columns=columns,
    )  # fmt: skip


def _protobuf_decoder(part: PartFormat, row_format: RowFormat, name: str) -> ValueDecoder:
    # In a table of the latest state, these columns are never null.
    keys = [*row_format.keys, *filter(None, [row_format.order_by])]
    images = _IMAGES if row_format.envelope is Envelope.DEBEZIUM else ()
    descriptors = b64decode(part.schema)
    if not part.registered:
        from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder

        return ProtobufDecoder(descriptors, part.message, keys, images)
    from tiered_stream.formats.registry.registry_protobuf import RegistryProtobufDecoder

    return RegistryProtobufDecoder(
        _registry_of(part, row_format), descriptors, part.message, header=_HEADERS[name], keys=keys, images=images
    )


def _evolution(row_format: RowFormat, name: str) -> Evolution:
    return Evolution.NONE if name == KEY else row_format.evolution


def _json_kind(part: PartFormat, row_format: RowFormat, evolution: Evolution) -> pa.StructType:
    """Return the struct type of the documents of `part`, a JSON format: its schema, grown by the table's columns.

    With `Evolution.WIDEN`, a number has the type of the table's column if the column's type is wider. In a table with
    one row for each key, values that name their schemas also get the table's columns that only older schemas have.
    """
    kind = pa.struct(list(schema_from_text(part.schema)))
    if part is row_format.value and part.registered and row_format.keys and part.kind is not None:
        kind = _with_fields(kind, part.kind, row_format.envelope)
    column = _as_in_table(part, row_format) if evolution is Evolution.WIDEN else None
    return kind if column is None else grown(kind, column, add=False, widen=True)


def _with_fields(kind: pa.StructType, row: pa.DataType, envelope: Envelope) -> pa.StructType:
    """Return the type `kind` of values, with the fields of the struct type `row` added to the rows in the values.

    With Debezium's envelope, the rows are the fields `before` and `after`, at the top level or within `payload`.
    Otherwise, the whole value is the row.
    """
    if envelope is not Envelope.DEBEZIUM:
        return grown(kind, row)
    fields = {field.name: field for field in kind}
    for name in fields.keys() & {"before", "after"}:
        fields[name] = pa.field(name, grown(fields[name].type, row))
    if "payload" in fields:
        fields["payload"] = pa.field("payload", _with_fields(fields["payload"].type, row, envelope))
    return pa.struct(list(fields.values()))


def _as_in_table(part: PartFormat, row_format: RowFormat) -> pa.DataType | None:
    """Return the type of values in which each row has the table's type, `part.kind`; None if `part.kind` is None.

    Columns that become times are BIGINT, so that they never widen to DOUBLE, from which no time can be made. Without
    Debezium's envelope, the result is the row's type. With the envelope, the result is a struct whose fields `before`
    and `after` have the row's type, both at the top level and within a field `payload`.
    """
    kind, times = part.kind, dict(row_format.times)
    if kind is not None and times:
        kind = pa.struct([pa.field(field.name, pa.int64()) if field.name in times else field for field in kind])
    if kind is None or row_format.envelope is not Envelope.DEBEZIUM:
        return kind
    row = pa.struct([("before", kind), ("after", kind)])
    return pa.struct([*row, ("payload", row)])


def _registry_of(part: PartFormat, row_format: RowFormat) -> RegistrySettings:
    """Return the settings of the schema registry's client. It looks up ids in the context that `part.subject` names."""
    from tiered_stream.formats.registry.schema_registry import RegistrySettings, context_of

    return replace(RegistrySettings.parse(row_format.registry), context=context_of(part.subject))


def with_registered(part: PartFormat, row_format: RowFormat, subject: str) -> PartFormat:
    """Return the key or value format `part` with the newest schema of `subject` in the schema registry.

    `part` is returned unchanged if it already has a schema, or if its schemas are not in a registry.

    Raises:
        UnknownSchemaError: the registry has no such subject.
        SchemaRegistryError: the registry cannot be reached, or refuses the request.
        ConfigurationError: the registry's settings are wrong, or the schema has another format or cannot be compiled.
    """
    if not part.registered or part.schema:
        return part
    from tiered_stream.formats.registry.schema_registry import schema_registry

    schema = schema_registry(_registry_of(part, row_format)).latest(subject)
    if schema.kind != part.format.value.upper():
        raise ConfigurationError(
            f"the newest schema of {subject!r} in the registry is of the format {schema.kind[:20]}, and the setting "
            f"says {part.format.value}: correct the format"
        )
    try:
        return _with_schema(part, schema)
    except ConfigurationError as error:
        raise ConfigurationError(f"the newest schema of {subject!r} in the registry: {error}") from error


def _with_schema(part: PartFormat, schema: RegisteredSchema) -> PartFormat:
    if part.format is Format.AVRO:
        return replace(part, schema=schema.text, references=tuple(dict.fromkeys(text for _, text in schema.references)))
    if part.format is Format.JSON:
        from tiered_stream.formats.json.json_schema import json_schema_columns

        columns = json_schema_columns(schema.text, dict(schema.references))
        return replace(part, schema=schema_to_text(columns))
    from tiered_stream.formats.registry.registry_protobuf import registered_descriptors

    return replace(part, schema=b64encode(registered_descriptors(schema)).decode())

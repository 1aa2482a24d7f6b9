"""The decoder that a format asks for. What a format needs is imported when a query uses it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tiered_stream.errors import ConfigurationError, UnsupportedDataError
from tiered_stream.formats.decoded import ValueDecoder
from tiered_stream.formats.row_choices import REGISTRY_PREFIX, Envelope, Evolution, Format
from tiered_stream.formats.row_format import KEY, PartFormat, RowFormat, schema_from_text
from tiered_stream.formats.schema_growth import adopted

if TYPE_CHECKING:
    from tiered_stream.formats.registry_connection import RegistrySettings


def open_decoder(how: RowFormat, name: str) -> ValueDecoder | None:
    """Of keys or of values, whose schema is known; None: the bytes stay as they are.

    Raises:
        ConfigurationError: the schema is none, or no table can have its types.
    """
    part = how.key if name == KEY else how.value
    try:
        return _open(part, how, Evolution.NONE if name == KEY else how.evolution)
    except UnsupportedDataError as error:
        raise ConfigurationError(f"ingest.{name}.schema: {error}") from error


def _open(part: PartFormat, how: RowFormat, evolution: Evolution) -> ValueDecoder | None:
    match part.format:
        case Format.BINARY:
            return None
        case Format.STRING:
            from tiered_stream.formats.text import TextDecoder

            return TextDecoder()
        case Format.JSON if not part.registered:
            from tiered_stream.formats.json_decoder import JsonDecoder

            kind = pa.struct(list(schema_from_text(part.schema)))
            if evolution is not Evolution.WIDEN:
                return JsonDecoder(kind, how.zone)
            from tiered_stream.formats.json_widening import WideningJsonDecoder

            column = _as_in_table(part, how)
            return WideningJsonDecoder(kind if column is None else adopted(kind, column, add=False), how.zone)
        case Format.AVRO if part.registered:
            from tiered_stream.formats.registry_decoder import RegistryDecoder

            column = _as_in_table(part, how) if evolution is Evolution.WIDEN else None
            return RegistryDecoder(_registry_of(how), part.schema, part.references, evolution=evolution, column=column)
        case Format.AVRO:
            from tiered_stream.formats.avro_decoder import AvroDecoder

            return AvroDecoder(part.schema)
        case Format.PROTOBUF if part.registered:
            from tiered_stream.formats.registry_protobuf import RegistryProtobufDecoder

            return RegistryProtobufDecoder(_registry_of(how), b64decode(part.schema), part.message)
        case Format.PROTOBUF:
            from tiered_stream.formats.protobuf_decoder import ProtobufDecoder

            return ProtobufDecoder(b64decode(part.schema), part.message)
    raise ConfigurationError(f"the format {part.format.value} cannot be read by a schema registry here")


def _as_in_table(part: PartFormat, how: RowFormat) -> pa.DataType | None:
    """The type of whole values whose columns the table has, where that is known."""
    if part.kind is None or how.envelope is Envelope.NONE:
        return part.kind
    row = pa.struct([("before", part.kind), ("after", part.kind)])
    return pa.struct([*row, ("payload", row)])


def _registry_of(how: RowFormat) -> RegistrySettings:
    from tiered_stream.formats.registry_connection import RegistrySettings

    return RegistrySettings.parse(how.registry, REGISTRY_PREFIX)


def with_registered(part: PartFormat, how: RowFormat, subject: str) -> PartFormat:
    """The format with the subject's newest schema, where a registry has it and it was not asked for yet.

    Raises:
        SchemaRegistryError: the registry does not tell.
        ConfigurationError: its settings are wrong, or the schema is another format's or cannot be compiled.
    """
    if not part.registered or part.schema:
        return part
    from tiered_stream.formats.schema_registry import schema_registry

    found = schema_registry(_registry_of(how)).latest(subject)
    if found.kind != part.format.value.upper():
        raise ConfigurationError(
            f"the newest schema of {subject!r} in the registry is of the format {found.kind[:20]}, and the setting "
            f"says {part.format.value}: correct the format"
        )
    if part.format is not Format.PROTOBUF:
        return replace(part, schema=found.text, references=tuple(text for _, text in found.references))
    from tiered_stream.formats.registry_protobuf import registered_descriptors

    return replace(part, schema=b64encode(registered_descriptors(found)).decode())

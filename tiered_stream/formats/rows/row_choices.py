"""Enums for the options that say how records become a table's rows (`ingest.*`). This module does not import Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Format(StrEnum):
    """Format of keys or values (`ingest.key.format`, `ingest.value.format`)."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class SchemaIdsIn(StrEnum):
    """Location of a value's schema id (`ingest.value.schema.id.deserializer`), by Confluent's class names."""

    DUAL = "DualSchemaIdDeserializer"
    """A record header has the schema's id or GUID. If a record lacks the header, the id is in front of the value."""
    PREFIX = "PrefixSchemaIdDeserializer"
    """The schema's id is in front of the value; headers are ignored."""


class SubjectNames(StrEnum):
    """Rule for the name of a schema's subject (`ingest.value.subject.name.strategy`), by Confluent's class names."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


class OnDecodeError(StrEnum):
    """Treatment of a record that does not decode (`ingest.onDecodeError`): error, dead letter, or null."""

    FAIL = "fail"
    DEAD_LETTER = "deadLetter"
    NULL = "null"


class Evolution(StrEnum):
    """Growth of a table's schema (`ingest.schemaEvolution`): none, new columns, or new columns and wider types."""

    NONE = "none"
    ADD = "add"
    WIDEN = "widen"


class LargeDecimals(StrEnum):
    """Column type for Avro decimals of more than 38 digits (`ingest.largeDecimals`)."""

    DECIMAL = "decimal"
    """DECIMAL(38, s) with the scale s of the schema. Larger values do not decode."""
    STRING = "string"
    DOUBLE = "double"
    BINARY = "binary"
    """The unscaled number as big-endian bytes, as in Avro."""


@dataclass(frozen=True, slots=True)
class AvroColumns:
    """User's choices of column types for some Avro types."""

    large_decimals: LargeDecimals = LargeDecimals.DECIMAL
    has_named_times: bool = False
    """True if numbers whose schema has one of Debezium's names `io.debezium.time.*` become dates and timestamps."""


AS_SPARK = AvroColumns()
"""Choices that give Avro types the same column types as Spark's `from_avro`."""


class Envelope(StrEnum):
    """Form in which values hold a row's change (`ingest.envelope`)."""

    NONE = "none"
    DEBEZIUM = "debezium"
    FLATTENED = "flattened"
    """Rows from Debezium's `ExtractNewRecordState`, in which the field `__deleted` marks deletes."""


_HEX = "hex:"


def placeholder_bytes(text: str) -> bytes:
    """Return the bytes that a Debezium connector's `unavailable.value.placeholder` stands for.

    These are the UTF-8 of `text` or, if it begins with `hex:`, the bytes that follow as hexadecimal digits.

    Raises:
        ValueError: the text is empty, or no hexadecimal digits follow `hex:`.
    """
    data = bytes.fromhex(text.removeprefix(_HEX)) if text.startswith(_HEX) else text.encode()
    if not data:
        raise ValueError("must not be empty")
    return data

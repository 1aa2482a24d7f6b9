"""Choices for the rows of a table, in a module of their own so that options can use them without importing Arrow."""

from __future__ import annotations

from enum import StrEnum

REGISTRY_PREFIX = "ingest.schema.registry."
"""Prefix of the settings of the schema registry's client. Confluent's names of the settings follow it."""


class Format(StrEnum):
    """Format of keys or values (`ingest.key.format`, `ingest.value.format`)."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class SchemaIdsIn(StrEnum):
    """Place where values name their schemas (`ingest.value.schema.id.deserializer`), by Confluent's class names."""

    DUAL = "DualSchemaIdDeserializer"
    """Values name their schemas in a record header if there is one, else in front of the value."""
    PREFIX = "PrefixSchemaIdDeserializer"
    """Values name their schemas in front of the value."""


class SubjectNames(StrEnum):
    """Rule by which writers name a subject (`ingest.value.subject.name.strategy`), by Confluent's class names."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


class OnDecodeError(StrEnum):
    """Treatment of a record that does not decode (`ingest.onDecodeError`)."""

    FAIL = "fail"
    DEAD_LETTER = "deadLetter"
    NULL = "null"


class Evolution(StrEnum):
    """Growth of a table's schema (`ingest.schemaEvolution`): none, new columns, or new columns and wider types."""

    NONE = "none"
    ADD = "add"
    WIDEN = "widen"


class Envelope(StrEnum):
    """Envelope in which values are wrapped (`ingest.envelope`)."""

    NONE = "none"
    DEBEZIUM = "debezium"

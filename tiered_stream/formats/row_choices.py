"""What may be chosen for the rows of a table. Apart from the rest: options know it without Arrow."""

from __future__ import annotations

from enum import StrEnum

REGISTRY_PREFIX = "ingest.schema.registry."
"""Of the settings of the schema registry's client, which have Confluent's names behind it."""


class Format(StrEnum):
    """`ingest.key.format`, `ingest.value.format`."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class SchemaIdsIn(StrEnum):
    """`ingest.value.schema.id.deserializer`: where values name their schemas; Confluent's names of classes."""

    DUAL = "DualSchemaIdDeserializer"
    """In a record header, where there is one, else in front of the value."""
    PREFIX = "PrefixSchemaIdDeserializer"
    """In front of the value."""


class SubjectNames(StrEnum):
    """`ingest.value.subject.name.strategy`: how writers name a subject; Confluent's names of classes."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


class OnDecodeError(StrEnum):
    """`ingest.onDecodeError`: what becomes of a record that does not decode."""

    FAIL = "fail"
    DEAD_LETTER = "deadLetter"
    NULL = "null"


class Evolution(StrEnum):
    """`ingest.schemaEvolution`: whether new fields become columns, and whether types become wider, too."""

    NONE = "none"
    ADD = "add"
    WIDEN = "widen"


class Envelope(StrEnum):
    """`ingest.envelope`: what values are wrapped in."""

    NONE = "none"
    DEBEZIUM = "debezium"

"""Settings that describe a table's rows: declared here and parsed without Spark; `row_schema.py` resolves them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from tiered_stream.delta.settings.part_settings import INFER, PartSettings, check_part
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import (
    REGISTRY_PREFIX,
    Envelope,
    Evolution,
    Format,
    OnDecodeError,
    SchemaIdsIn,
    SubjectNames,
)
from tiered_stream.options import types
from tiered_stream.options.fields import of, read_fields
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.types import COLUMNS, Option, option, optional

E = TypeVar("E", bound=StrEnum)

_REDACTED = "secret."
_REGISTRY_SECRETS = REGISTRY_PREFIX + _REDACTED
"""Prefix of the schema registry's settings in the options that tasks get.

Spark redacts the values of names with `secret` (`spark.redaction.regex`).
"""
FLAT, NONE = "flat", "none"
_KAFKA_COLUMN = re.compile(r"\s*(\w+)(?:\s+as\s+(\S+))?\s*", re.IGNORECASE)
_LIMIT = re.compile(r"\s*(\d{1,18}|\d{1,3}(?:\.\d{1,6})?\s*%)\s*")


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """Maximum number of dead letters in a micro-batch: a `count`, or a `percent` of the micro-batch's records.

    One of the two is None.
    """

    count: int | None = None
    percent: float | None = None

    def is_exceeded(self, dead: int, records: int) -> bool:
        """Return whether `dead` dead letters of a micro-batch with `records` records are more than the limit."""
        if self.count is not None:
            return dead > self.count
        return self.percent is not None and dead * 100 > self.percent * records

    def __str__(self) -> str:
        return str(self.count) if self.percent is None else f"{self.percent:g}%"


def _dead_letter_limit(text: str) -> DeadLetterLimit:
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError("must be a number of records a micro-batch, or a percentage such as 5%")
    number = match[1].removesuffix("%").strip()
    if number == match[1]:
        return DeadLetterLimit(int(number))
    if float(number) > 100:
        raise ValueError("must be at most 100%")
    return DeadLetterLimit(percent=float(number))


def _kafka_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Parse a list of Kafka's columns, such as `offset, timestamp as kafka_timestamp`; `none` is an empty list.

    Returns:
        Pairs of Kafka's name and the name in the table, in the order of Kafka's columns.

    Raises:
        ValueError: a column is malformed, unknown or named twice.
    """
    if text.strip().lower() == NONE:
        return ()
    names: dict[str, str] = {}
    known = {name.lower(): name for name in COLUMNS}
    for column in text.split(","):
        match = _KAFKA_COLUMN.fullmatch(column)
        if match is None or match[1].lower() not in known:
            raise ValueError(f"must be none, or some of {', '.join(known.values())}, each perhaps with AS and a name")
        name = known[match[1].lower()]
        if name in names:
            raise ValueError(f"names {name} twice")
        names[name] = match[2] or name
    return tuple((name, names[name]) for name in COLUMNS if name in names)


def _class_in(package: str, names: type[E]) -> Callable[[str], E]:
    """Return a parser for the names of Confluent's classes in a Java package.

    The parser accepts a name with or without `package`, and raises ValueError for a name that is not in `names`.
    """
    parse = types.word(names, any_case=False)
    return lambda value: parse(value.removeprefix(package))


_FORMATS = types.choice(Format)
_STRATEGIES = _class_in("io.confluent.kafka.serializers.subject.", SubjectNames)
_ID_PLACES = _class_in("io.confluent.kafka.serializers.schema.id.", SchemaIdsIn)
KEY_FORMAT = option(
    "ingest.key.format", _FORMATS, Format.BINARY, "What keys are: binary, string, json, avro, protobuf."
)
KEY_SCHEMA = optional("ingest.key.schema", types.text, "Their schema, as `ingest.value.schema`.")
KEY_MESSAGE = optional("ingest.key.message", types.text, "As `ingest.value.message`.")
KEY_SUBJECT = optional("ingest.key.subject", types.text, "As `ingest.value.subject`.")
KEY_STRATEGY = optional(
    "ingest.key.subject.name.strategy", _STRATEGIES, "As `ingest.value.subject.name.strategy`.",
    shown=SubjectNames.TOPIC,
)  # fmt: skip
KEY_ID_PLACE = optional(
    "ingest.key.schema.id.deserializer", _ID_PLACES, "As `ingest.value.schema.id.deserializer`.",
    shown=f"{SchemaIdsIn.DUAL}, with a registry",
)  # fmt: skip
VALUE_FORMAT = option(
    "ingest.value.format", _FORMATS, Format.BINARY,
    "What values are: `binary`, `string`, `json`, `avro` or `protobuf`. Each field becomes a column.",
)  # fmt: skip
VALUE_SCHEMA = optional(
    "ingest.value.schema", types.text,
    "Their schema: a Spark DDL string, an Avro schema as JSON, a file (`.ddl`, `.json`, `.avsc`, `.proto`, "
    "`.desc`), `registry`, or for JSON `infer`.",
)  # fmt: skip
VALUE_MESSAGE = optional(
    "ingest.value.message", types.text,
    "The message's full name, of protobuf; of Avro the record's and of JSON Schema the title, where a subject is named "
    "by it.",
)  # fmt: skip
VALUE_SUBJECT = optional(
    "ingest.value.subject", types.text,
    "The subject in the registry that has the schema, if no strategy names it; `{topic}` in it stands for the topic.",
)  # fmt: skip
VALUE_STRATEGY = optional(
    "ingest.value.subject.name.strategy", _STRATEGIES,
    "How writers name the subject: `TopicNameStrategy` (`TOPIC-value`), `RecordNameStrategy` (the record's name), or "
    "`TopicRecordNameStrategy` (`TOPIC-RECORD`).",
    shown=SubjectNames.TOPIC,
)  # fmt: skip
VALUE_ID_PLACE = optional(
    "ingest.value.schema.id.deserializer", _ID_PLACES,
    "Where a value names its schema in the registry: `DualSchemaIdDeserializer` (in the header `__value_schema_id`, "
    "else in front of the value), or `PrefixSchemaIdDeserializer` (in front). With a schema that is given, values name "
    "one only if this is set.",
    shown=f"{SchemaIdsIn.DUAL}, with a registry",
)  # fmt: skip
VALUE_COLUMNS = option(
    "ingest.value.columns", types.text, FLAT,
    "`flat`: a column for each field of the value; else the name of one column that has it all.",
)  # fmt: skip
KAFKA_COLUMNS = optional(
    "ingest.kafkaColumns", _kafka_columns,
    "Kafka's columns that the table gets, such as `topic, offset as kafka_offset`, or `none`.",
    shown="all but keys and values that are decoded",
)  # fmt: skip
ON_DECODE_ERROR = option(
    "ingest.onDecodeError", types.word(OnDecodeError, any_case=False), OnDecodeError.FAIL,
    "What becomes of a record that does not decode, or that the table does not take: `fail`, `deadLetter` or `null`.",
)  # fmt: skip
DEAD_LETTER_TABLE = optional("ingest.deadLetterTable", types.text, "The table for dead letters: a path, or a name.")
MAX_DEAD_LETTERS = optional(
    "ingest.maxDeadLetters", _dead_letter_limit,
    "The most dead letters of a micro-batch, as a number or in percent of its records; the query stops at more.",
    shown="no limit",
)  # fmt: skip
SCHEMA_EVOLUTION = option(
    "ingest.schemaEvolution", types.choice(Evolution), Evolution.NONE,
    "`add`: a new field of the schema becomes a column of the table. `widen`: as `add`, and columns take wider types.",
)  # fmt: skip
ENVELOPE = option(
    "ingest.envelope", types.choice(Envelope), Envelope.NONE,
    "`debezium`: the row after the change is landed, with `__op`, `__source` and `__ts_ms`.",
)  # fmt: skip
TRANSFORM = optional(
    "ingest.transform", types.text,
    "`package.module:function`, which makes of each decoded `pyarrow.RecordBatch` the one that is landed.",
)  # fmt: skip
ROW_OPTIONS = types.declared_in(globals())
_KEY: tuple[Option[Any], ...] = (KEY_FORMAT, KEY_SCHEMA, KEY_MESSAGE, KEY_SUBJECT, KEY_STRATEGY, KEY_ID_PLACE)
_VALUE: tuple[Option[Any], ...] = (
    VALUE_FORMAT, VALUE_SCHEMA, VALUE_MESSAGE, VALUE_SUBJECT, VALUE_STRATEGY, VALUE_ID_PLACE,
)  # fmt: skip
"""Options for the fields of `PartSettings` in their order, without `name`."""


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Settings of a table's rows as the user gave them: parsed, but without the types of the columns."""

    key: PartSettings
    value: PartSettings
    value_columns: str = of(VALUE_COLUMNS)
    kafka_columns: tuple[tuple[str, str], ...] | None = of(KAFKA_COLUMNS)
    on_decode_error: OnDecodeError = of(ON_DECODE_ERROR)
    dead_letter_table: str | None = of(DEAD_LETTER_TABLE)
    max_dead_letters: DeadLetterLimit | None = of(MAX_DEAD_LETTERS)
    schema_evolution: Evolution = of(SCHEMA_EVOLUTION)
    envelope: Envelope = of(ENVELOPE)
    transform: str | None = of(TRANSFORM)


def row_settings(settings: Mapping[str, str]) -> RowSettings:
    """Read and check the settings of a table's rows.

    Raises:
        ConfigurationError: a setting is malformed, or two settings contradict each other.
    """
    options = GivenOptions(settings)
    key, value = PartSettings("key", *map(options.read, _KEY)), PartSettings("value", *map(options.read, _VALUE))
    rows = RowSettings(key, value, **read_fields(RowSettings, options))
    for part in (rows.key, rows.value):
        check_part(part)
    dead = rows.on_decode_error is OnDecodeError.DEAD_LETTER
    if dead != (rows.dead_letter_table is not None):
        raise ConfigurationError(
            f"{ON_DECODE_ERROR.name}={OnDecodeError.DEAD_LETTER.value} and {DEAD_LETTER_TABLE.name} belong together: "
            "set both, or neither"
        )
    if rows.max_dead_letters and not dead:
        raise ConfigurationError(f"{MAX_DEAD_LETTERS.name} needs {ON_DECODE_ERROR.name}=deadLetter")
    if rows.envelope is not Envelope.NONE and rows.value.format in (Format.BINARY, Format.STRING):
        raise ConfigurationError(
            f"{ENVELOPE.name} needs a value that is json, avro or protobuf: set {VALUE_FORMAT.name}"
        )
    return rows


def makes_rows(settings: Mapping[str, str]) -> bool:
    """Return whether the settings make rows that differ from Kafka's unchanged records.

    They do if they decode keys or values, choose columns (`ingest.kafkaColumns`), or have a transform.
    """
    options = GivenOptions(settings)
    formats = {options.read(KEY_FORMAT), options.read(VALUE_FORMAT)}
    return formats != {Format.BINARY} or options.has(KAFKA_COLUMNS) or options.has(TRANSFORM)


def infers(settings: Mapping[str, str]) -> bool:
    """Return whether `ingest.key.schema` or `ingest.value.schema` is `infer`."""
    options = GivenOptions(settings)
    return INFER in (options.read(KEY_SCHEMA), options.read(VALUE_SCHEMA))


def evolution_of(settings: Mapping[str, str]) -> Evolution:
    """Return the value of `ingest.schemaEvolution`: whether the table gets new fields of a schema, and wider types."""
    return GivenOptions(settings).read(SCHEMA_EVOLUTION)


def registry_properties(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the schema registry's client, without their prefix.

    `settings` may be the job's settings, or options from `redacted_registry`.
    """
    given, renamed = (GivenOptions(settings).with_prefix(prefix) for prefix in (REGISTRY_PREFIX, _REGISTRY_SECRETS))
    return {name: value for name, value in given.items() if not name.startswith(_REDACTED)} | renamed


def redacted_registry(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings, with the schema registry's settings renamed so that Spark redacts their values."""
    others = {name: value for name, value in settings.items() if not name.lower().startswith(REGISTRY_PREFIX)}
    return others | {_REGISTRY_SECRETS + name: value for name, value in registry_properties(settings).items()}

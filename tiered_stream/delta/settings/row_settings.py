"""Declaration and parsing of the settings that describe a table's rows.

Nothing here needs Spark. `schema/row_plan.py` makes a `RowFormat` with column types from these settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from tiered_stream.errors import ConfigurationError, UndecodableRecordError
from tiered_stream.formats.rows.row_choices import (
    Envelope,
    Evolution,
    Format,
    LargeDecimals,
    OnDecodeError,
    SchemaIdsIn,
    SubjectNames,
    placeholder_bytes,
)
from tiered_stream.options import types
from tiered_stream.options.given_options import GivenOptions, of, read_fields
from tiered_stream.options.types import COLUMNS, Option, option, optional

REGISTRY, INFER = "registry", "infer"
"""Values of `ingest.value.schema` and `ingest.key.schema` that are not a schema.

The schema comes from a schema registry, or is inferred from records.
"""


# Settings of keys or of values: their format, their schema, and the schema's subject in a schema registry.


@dataclass(frozen=True, slots=True)
class PartSettings:
    """Settings `ingest.key.*` of the keys of records, or `ingest.value.*` of their values; `name` is `key` or `value`.

    `strategy` is the setting `subject.name.strategy`, and `id_place` is `schema.id.deserializer`. An attribute is None
    if its setting is not set.
    """

    name: str
    format: Format = Format.BINARY
    schema: str | None = None
    message: str | None = None
    subject: str | None = None
    strategy: SubjectNames | None = None
    id_place: SchemaIdsIn | None = None

    @property
    def subject_name(self) -> str:
        """Name of the schema's subject in the registry, in which `{topic}` stands for the topic.

        The name is the value of the setting `subject`. If `subject` is not set, the name follows from the strategy
        (default: `TopicNameStrategy`).
        """
        by_strategy = {SubjectNames.RECORD: self.message or "", SubjectNames.TOPIC_RECORD: f"{{topic}}-{self.message}"}
        return self.subject or by_strategy.get(self.strategy or SubjectNames.TOPIC, f"{{topic}}-{self.name}")


def _check_schema(settings: PartSettings) -> None:
    """Raise ConfigurationError if the schema in `settings` is missing, or contradicts the format."""
    part, kind, schema = settings.name, settings.format, settings.schema
    needs_schema = kind in (Format.JSON, Format.AVRO, Format.PROTOBUF)
    if needs_schema and schema is None:
        raise ConfigurationError(f"ingest.{part}.format is {kind}: set ingest.{part}.schema, too")
    if schema == REGISTRY and not needs_schema:
        raise ConfigurationError(
            f"ingest.{part}.schema is registry, which is for json, avro and protobuf, not for {kind}"
        )
    if schema == INFER and kind is not Format.JSON:
        raise ConfigurationError(f"ingest.{part}.schema is infer, which is for json alone, not for {kind}")
    if schema is not None and not needs_schema:
        raise ConfigurationError(f"ingest.{part}.schema is set, but ingest.{part}.format is {kind}, which has none")
    if settings.id_place and (not needs_schema or schema == INFER):
        raise ConfigurationError(
            f"ingest.{part}.schema.id.deserializer is for json, avro and protobuf with a schema that is given or "
            f"registered: remove it, or set ingest.{part}.format and ingest.{part}.schema"
        )


def _check_subject(part: PartSettings) -> None:
    """Raise ConfigurationError if settings in `part` that name the schema's subject do not go together."""
    prefix, named_by_record = f"ingest.{part.name}.", part.strategy in (SubjectNames.RECORD, SubjectNames.TOPIC_RECORD)
    for name, value in (("subject", part.subject), ("subject.name.strategy", part.strategy)):
        if value is not None and part.schema != REGISTRY:
            raise ConfigurationError(f"{prefix}{name} is set, but {prefix}schema is not registry: set both, or neither")
    if part.subject and part.strategy:
        raise ConfigurationError(f"{prefix}subject and {prefix}subject.name.strategy exclude each other: set one")
    if named_by_record and not part.message:
        raise ConfigurationError(
            f"{prefix}subject.name.strategy is {part.strategy}: set {prefix}message to the record's full name, or name "
            f"the subject by {prefix}subject"
        )
    if part.message and part.format is not Format.PROTOBUF and not named_by_record:
        raise ConfigurationError(
            f"{prefix}message is set, but {prefix}format is {part.format}, and no {prefix}subject.name.strategy names "
            "a subject by it: remove it"
        )


E = TypeVar("E", bound=StrEnum)

REGISTRY_PREFIX = "ingest.schema.registry."
"""Prefix of the options for the schema registry's client. Confluent's name of the property follows the prefix."""
FLAT, NONE = "flat", "none"
_KAFKA_COLUMN = re.compile(r"\s*(\w+)(?:\s+as\s+(\S+))?\s*", re.IGNORECASE)
_LIMIT = re.compile(r"\s*(\d{1,18}|\d{1,3}(?:\.\d{1,6})?\s*%)\s*")


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """Maximum number of dead letters in a micro-batch, or their maximum percentage of the micro-batch's records."""

    maximum: float
    is_percentage: bool = False

    def is_exceeded(self, dead: int, records: int) -> bool:
        """Return whether `dead` dead letters of a micro-batch with `records` records are more than the limit."""
        return dead * 100 > self.maximum * records if self.is_percentage else dead > self.maximum

    def __str__(self) -> str:
        return f"{self.maximum:g}%" if self.is_percentage else str(self.maximum)


def _dead_letter_limit(text: str) -> DeadLetterLimit:
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError("must be a number of records a micro-batch, or a percentage such as 5%")
    number = match[1].removesuffix("%").strip()
    if number == match[1]:
        return DeadLetterLimit(int(number))
    if float(number) > 100:
        raise ValueError("must be at most 100%")
    return DeadLetterLimit(float(number), is_percentage=True)


NAMED_TIMES = (("schema", ""),)
"""Parsed value of `ingest.times=schema`: names of types in Avro schemas decide which columns become times."""
_UNITS = ("days", "seconds", "millis", "micros")


def _times(text: str) -> tuple[tuple[str, str], ...]:
    if text.strip().lower() == "schema":
        return NAMED_TIMES
    pairs = [tuple(part.strip() for part in item.split("=")) for item in text.split(",")]
    if any(len(pair) != 2 or not pair[0] or pair[1].lower() not in _UNITS for pair in pairs):
        raise ValueError(f"must be schema, or columns with their units, such as created=millis ({', '.join(_UNITS)})")
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("must name each column once")
    return tuple((name, unit.lower()) for name, unit in pairs)


def _kafka_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Parse a list of Kafka's columns, such as `offset, timestamp as kafka_timestamp`; `none` is an empty list.

    Returns:
        Pairs of Kafka's name and the name in the table, in the order of Kafka's columns.

    Raises:
        ValueError: a name is not a column of Kafka's, or occurs twice.
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
_VALUE: tuple[Option[Any], ...] = (
    option(
        "ingest.value.format", _FORMATS, Format.BINARY,
        "Format of values: `binary`, `string`, `json`, `avro` or `protobuf`. Each field becomes a column.",
    ),
    optional(
        "ingest.value.schema", types.text,
        "Schema of values: a Spark DDL string, an Avro schema as JSON, a file (`.ddl`, `.json`, `.avsc`, `.proto`, "
        "`.desc`), `registry`, or for JSON `infer`.",
    ),
    optional(
        "ingest.value.message", types.text,
        "Full name of the protobuf message. For a subject that is named by it: full name of the Avro record, or title "
        "of the JSON Schema.",
    ),
    optional(
        "ingest.value.subject", types.text,
        "Subject of the schema in the registry, if no strategy names it; `{topic}` stands for the topic.",
    ),
    optional(
        "ingest.value.subject.name.strategy", _class_in("io.confluent.kafka.serializers.subject.", SubjectNames),
        "Strategy by which writers name the subject: `TopicNameStrategy` (`TOPIC-value`), `RecordNameStrategy` (the "
        "record's name), or `TopicRecordNameStrategy` (`TOPIC-RECORD`).",
        shown=SubjectNames.TOPIC,
    ),
    optional(
        "ingest.value.schema.id.deserializer", _class_in("io.confluent.kafka.serializers.schema.id.", SchemaIdsIn),
        "Place of the schema's id: `DualSchemaIdDeserializer` (the header `__value_schema_id`, or in front of the "
        "value without that header), or `PrefixSchemaIdDeserializer` (in front of the value). With a given schema, "
        "values are read without an id unless this is set.",
        shown=f"{SchemaIdsIn.DUAL}, with a registry",
    ),
)  # fmt: skip
"""Options of values: one for each field of `PartSettings` except `name`, in the order of the fields."""
_KEY: tuple[Option[Any], ...] = (
    option(
        "ingest.key.format", _FORMATS, Format.BINARY,
        "Format of keys: `binary`, `string`, `json`, `avro` or `protobuf`.",
    ),
    *(replace(each, name=each.name.replace(".value.", ".key."), doc=f"As `{each.name}`.") for each in _VALUE[1:]),
)  # fmt: skip
"""Options of keys: one for each field of `PartSettings` except `name`, in the order of the fields."""
VALUE_COLUMNS = option(
    "ingest.value.columns", types.text, FLAT,
    "`flat`: a column for each field of the value. Any other text: name of one column for the whole value.",
)  # fmt: skip
KAFKA_COLUMNS = optional(
    "ingest.kafkaColumns", _kafka_columns,
    "Columns of Kafka's that the table gets, such as `topic, offset as kafka_offset`, or `none`.",
    shown="all but keys and values that are decoded",
)  # fmt: skip
ON_DECODE_ERROR = option(
    "ingest.onDecodeError", types.word(OnDecodeError, any_case=False), OnDecodeError.FAIL,
    "If a record does not decode, or breaks a rule of the table: `fail`, `deadLetter` or `null`.",
)  # fmt: skip
DEAD_LETTER_TABLE = optional("ingest.deadLetterTable", types.text, "Table for dead letters: a path, or a name.")
MAX_DEAD_LETTERS = optional(
    "ingest.maxDeadLetters", _dead_letter_limit,
    "Maximum number of dead letters in a micro-batch, or percentage of its records. With more, the query fails.",
    shown="no limit",
)  # fmt: skip
SCHEMA_EVOLUTION = option(
    "ingest.schemaEvolution", types.choice(Evolution), Evolution.NONE,
    "`add`: a new field of the schema becomes a column of the table. `widen`: as `add`, and columns take wider types.",
)  # fmt: skip
ENVELOPE = option(
    "ingest.envelope", types.choice(Envelope), Envelope.NONE,
    "`debezium`: the row after the change is landed, with `__op`, `__source` and `__ts_ms`. `flattened`, with "
    "`ingest.mode=upsert`: a row of `ExtractNewRecordState` with `__deleted` = `true` deletes its row.",
)  # fmt: skip
TIMES: Option[tuple[tuple[str, str], ...]] = Option(
    "ingest.times", _times, (), "numbers stay numbers",
    "Columns of numbers that become dates or timestamps (UTC), with their unit since 1970: `days`, `seconds`, `millis` "
    "or `micros`, such as `born=days, created=millis`. `schema`: names of Debezium's types in Avro schemas "
    "(`io.debezium.time.Date`, `Timestamp`, `MicroTimestamp`) decide.",
)  # fmt: skip
LARGE_DECIMALS = option(
    "ingest.largeDecimals", types.choice(LargeDecimals), LargeDecimals.DECIMAL,
    "Columns for Avro decimals of more than 38 digits, such as Kafka Connect's of 64. `decimal`: DECIMAL(38, s) with "
    "the schema's scale; larger values do not decode. `string`, `double`, or `binary`: the unscaled number.",
)  # fmt: skip
TRANSFORM = optional(
    "ingest.transform", types.text,
    "`package.module:function`, which takes each decoded `pyarrow.RecordBatch` and returns the batch to land.",
)  # fmt: skip
SELECT = optional(
    "ingest.select", types.text,
    "Columns to land, in SQL, separated by commas, such as `id, upper(name) AS name, *`.",
    shown="*",
)  # fmt: skip
WHERE = optional(
    "ingest.where", types.text, "Condition in SQL for the rows to land, such as `amount > 0 AND kind <> 'ping'`.",
    shown="all rows",
)  # fmt: skip
ROW_OPTIONS: tuple[Option[Any], ...] = (*_KEY, *_VALUE, *types.declared_in(globals()))


# Settings for tables of the latest state (`ingest.mode=upsert`).

APPEND, UPSERT = "append", "upsert"


def column_names(value: str) -> tuple[str, ...]:
    """Parse names of columns, separated by commas; raise ValueError if a name is empty or occurs twice."""
    names = tuple(name.strip() for name in value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("must name columns, separated by commas, each once")
    return names


MODE = option(
    "ingest.mode", types.one_of(APPEND, UPSERT), APPEND,
    "`append`: each record becomes a row. `upsert`: the table has the latest row of each key.",
)  # fmt: skip
KEYS: Option[tuple[str, ...]] = Option(
    "ingest.keys", column_names, (), "",
    "With `ingest.mode=upsert`: columns that identify a row, separated by commas.",
)  # fmt: skip
ORDER_BY = optional(
    "ingest.orderBy", types.text,
    "With `ingest.mode=upsert`: column whose largest value is the latest. It is needed if a key occurs in several "
    "partitions.",
    shown="the offset",
)  # fmt: skip
MERGE_ON = optional(
    "ingest.mergeOn", types.text,
    "With `ingest.mode=upsert`: condition in SQL on `target` (the table) and `source` (the new rows) that limits the "
    "files in which keys are searched.",
)  # fmt: skip
OWN_COLUMNS: Option[tuple[str, ...]] = Option(
    "ingest.ownColumns", column_names, (), "",
    "With `ingest.mode=upsert`: columns of the table that records never set, separated by commas. They keep their "
    "values in an update. Each other column that a record does not have becomes null.",
)  # fmt: skip
DEBEZIUM_PLACEHOLDER = "__debezium_unavailable_value"
"""Default of the setting `unavailable.value.placeholder` of Debezium's connectors."""


def _placeholder(text: str) -> str:
    placeholder_bytes(text)
    return text


UNAVAILABLE_VALUE = optional(
    "ingest.unavailableValue", _placeholder,
    "With `ingest.mode=upsert`: placeholder of values that the database does not send "
    "(`unavailable.value.placeholder` of Debezium's connector). An update keeps the row's value in their place.",
    shown=f"{DEBEZIUM_PLACEHOLDER} if ingest.envelope is set",
)  # fmt: skip
UPSERT_OPTIONS: tuple[Option[Any], ...] = (MODE, KEYS, ORDER_BY, MERGE_ON, OWN_COLUMNS, UNAVAILABLE_VALUE)


# Parsed settings.


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Parsed settings of a table's rows, as the user gave them; the types of the columns are not known yet."""

    key: PartSettings = field(default_factory=partial(PartSettings, "key"))
    value: PartSettings = field(default_factory=partial(PartSettings, "value"))
    value_columns: str = of(VALUE_COLUMNS)
    kafka_columns: tuple[tuple[str, str], ...] | None = of(KAFKA_COLUMNS)
    on_decode_error: OnDecodeError = of(ON_DECODE_ERROR)
    dead_letter_table: str | None = of(DEAD_LETTER_TABLE)
    max_dead_letters: DeadLetterLimit | None = of(MAX_DEAD_LETTERS)
    schema_evolution: Evolution = of(SCHEMA_EVOLUTION)
    envelope: Envelope = of(ENVELOPE)
    large_decimals: LargeDecimals = of(LARGE_DECIMALS)
    times: tuple[tuple[str, str], ...] = of(TIMES)
    transform: str | None = of(TRANSFORM)
    select: str | None = of(SELECT)
    where: str | None = of(WHERE)
    registry: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Properties of the schema registry's client, with their names after `ingest.schema.registry.`."""

    @property
    def makes_rows(self) -> bool:
        """True if rows differ from Kafka's unchanged records.

        Rows differ if keys or values are decoded, Kafka's columns are chosen (`ingest.kafkaColumns`), or a transform,
        `ingest.select` or `ingest.where` is set.
        """
        chosen = (self.kafka_columns, self.transform, self.select, self.where)
        decodes = {self.key.format, self.value.format} != {Format.BINARY}
        return decodes or any(value is not None for value in chosen)

    @property
    def infers(self) -> bool:
        """True if `ingest.key.schema` or `ingest.value.schema` is `infer`."""
        return INFER in (self.key.schema, self.value.schema)


def row_settings(settings: Mapping[str, str]) -> RowSettings:
    """Return the settings of a table's rows, read from `settings` and checked.

    Raises:
        ConfigurationError: a setting is malformed, or two settings contradict each other.
    """
    options = GivenOptions(settings)
    key, value = PartSettings("key", *map(options.read, _KEY)), PartSettings("value", *map(options.read, _VALUE))
    registry = tuple(options.with_prefix(REGISTRY_PREFIX).items())
    rows = RowSettings(key, value, **read_fields(RowSettings, options), registry=registry)
    for part in (rows.key, rows.value):
        _check_schema(part)
        _check_subject(part)
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
            f"{ENVELOPE.name} needs a value that is json, avro or protobuf: set ingest.value.format"
        )
    if rows.envelope is Envelope.FLATTENED and rows.value_columns.lower() != FLAT:
        raise ConfigurationError(f"{ENVELOPE.name}={Envelope.FLATTENED} needs {VALUE_COLUMNS.name}={FLAT}")
    if rows.times == NAMED_TIMES and Format.AVRO not in (rows.key.format, rows.value.format):
        raise ConfigurationError(f"{TIMES.name}=schema is for avro: name the columns with their units")
    _check_query(rows)
    return rows


def _check_query(rows: RowSettings) -> None:
    """Raise ConfigurationError if `ingest.select` or `ingest.where` is set next to a setting that excludes it."""
    given = [option.name for option, value in ((SELECT, rows.select), (WHERE, rows.where)) if value is not None]
    if given and rows.transform is not None:
        raise ConfigurationError(f"{TRANSFORM.name} and {given[0]} exclude each other: do both in the function")
    if given and rows.schema_evolution is Evolution.WIDEN:
        raise ConfigurationError(
            f"{SCHEMA_EVOLUTION.name}={Evolution.WIDEN.value} and {given[0]} exclude each other, because a wider type "
            f"could change what an expression gives: set {Evolution.ADD.value}"
        )


@contextmanager
def advising() -> Iterator[None]:
    """Add advice to an UndecodableRecordError that the `with` block raises: settings by which records decode."""
    try:
        yield
    except UndecodableRecordError as error:
        fits = "".join(
            f" This {name} fits {f'ingest.{name}.format={form}, ' if form else ''}ingest.{name}.schema={schema}."
            for name, form, schema in error.fits
        )
        raise UndecodableRecordError(
            f"{error}.{fits} To keep such records aside, set ingest.onDecodeError=deadLetter and ingest.deadLetterTable"
        ) from error

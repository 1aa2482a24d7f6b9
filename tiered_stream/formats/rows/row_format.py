"""Format of a table's rows. The driver makes the format once, from options and schemas. Tasks receive it as JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tiered_stream.formats.rows import row_choices as choices
from tiered_stream.formats.rows.change_records import DELETED_FIELD
from tiered_stream.formats.rows.kafka_columns import HIDDEN, OFFSET, TIMESTAMP, hidden, marked
from tiered_stream.formats.rows.table_rules import NO_RULES, TableRules
from tiered_stream.formats.sql.parser import SqlQuery
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

KEY, VALUE = "key", "value"
TOPIC_IN_SUBJECT = "{topic}"
"""Placeholder that stands for the topic in the name of a schema registry's subject."""
DEAD_LETTER_SCHEMA = pa.schema(
    [
        *SCHEMA_WITH_HEADERS,
        ("reason", pa.string()),
        ("failed", pa.string()),
        ("redrive", pa.int64()),
        ("target", pa.string()),
        ("query", pa.string()),
        ("batch", pa.int64()),
    ]
)
"""Columns of a dead letter, a record that did not become a row.

Kafka's columns come first. `reason` says why the record is not a row, and `failed` which part failed: `key`, `value` or
`row`. `redrive` is null except while a redrive moves the record into its table. `target` is the folder (a URI) of the
table that the record was for. `query` and `batch` are the Delta application transaction of the record's micro-batch.
"""


@dataclass(frozen=True, slots=True)
class PartFormat:
    """Format of a table's keys or of its values.

    The form of `schema` depends on `format`: for JSON it is an Arrow schema (`schema_to_text`), for Avro the schema's
    JSON, for protobuf a descriptor set in base64. `message` is the full name of the wanted protobuf message, or the
    title of the wanted JSON Schema.

    If `registered` is True, each value names its writer's schema in a registry. `schema` is then the schema from an
    option or, without this option, the newest schema of `subject`. In the second case, `schema` is '' until the
    registry has returned the newest schema. `kind` is the type of the keys or values in the table. It is None in binary
    format, and as long as the type is not resolved.
    """

    format: choices.Format = choices.Format.BINARY
    schema: str = ""
    message: str = ""
    registered: bool = False
    kind: pa.DataType | None = None
    references: tuple[str, ...] = ()
    """Texts of the Avro schemas that `schema` refers to. Each one comes after the schemas that it refers to."""
    subject: str = ""
    """Name of the subject in the registry; it may contain `TOPIC_IN_SUBJECT`. '' means Confluent's default name."""
    ids: choices.SchemaIdsIn = choices.SchemaIdsIn.PREFIX
    """Location of the schema ids, if `registered` is True."""

    @property
    def reads_headers(self) -> bool:
        """Return whether values may name their schemas in a record header."""
        return self.registered and self.ids is choices.SchemaIdsIn.DUAL

    @property
    def awaits_topic(self) -> bool:
        """Return whether the registry's schema is not loaded yet, and its subject's name contains the topic."""
        return self.registered and not self.schema and TOPIC_IN_SUBJECT in (self.subject or TOPIC_IN_SUBJECT)

    def subject_for(self, topic: str, name: str) -> str:
        """Return the registry's subject for the keys (`name` is `key`) or values (`name` is `value`) of `topic`."""
        return (self.subject or f"{TOPIC_IN_SUBJECT}-{name}").replace(TOPIC_IN_SUBJECT, topic)


@dataclass(frozen=True, slots=True)
class Source:
    """Source of one column of a row.

    If `kafka` is not '', the source is the column of Kafka's record with this name. Otherwise it is the decoded `part`,
    which is `key` or `value`: the field with the index `field`, or the whole part if `field` is None.
    """

    part: str = ""
    field: int | None = None
    kafka: str = ""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """Format of one table's rows: columns, decoding of keys and values, table rules, and treatment of failures."""

    kafka_columns: tuple[tuple[str, str], ...]
    """Kafka's columns that the table gets, each as (Kafka's name, name in the table)."""
    key: PartFormat = PartFormat()
    value: PartFormat = PartFormat()
    struct_column: str | None = None
    """Name of the column for the whole value; None means that each field of a struct value is a column."""
    on_error: choices.OnDecodeError = choices.OnDecodeError.FAIL
    evolution: choices.Evolution = choices.Evolution.NONE
    envelope: choices.Envelope = choices.Envelope.NONE
    avro_columns: choices.AvroColumns = choices.AS_SPARK
    times: tuple[tuple[str, str], ...] = ()
    """Columns of numbers that become dates or timestamps, each as (name, unit)."""
    transform: str = ""
    """Name of the user's function, as `package.module:function`; '' means that there is none."""
    transformed: pa.Schema | None = None
    """Columns that the user's function returns; None if there is no function."""
    query: SqlQuery | None = None
    """Parsed `ingest.select` and `ingest.where`; None if neither is set."""
    selected: pa.Schema | None = None
    """Columns that `ingest.select` gives; None if it is not set."""
    lands_key: bool = True
    """True if a decoded key is a column of the table."""
    rules: TableRules = NO_RULES
    keys: tuple[str, ...] = ()
    """Key columns by which rows are merged into a table of the latest state. Empty: rows are appended to the table."""
    order_by: str = ""
    """Column whose largest value makes a key's latest row; '' means the offset."""
    placeholder: str = ""
    """Text that stands for values that the database does not send (`ingest.unavailableValue`); '' means none."""
    zone: str = "UTC"
    """Session's time zone, for times without a zone."""
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of the schema registry's client, which may hold a password."""

    @property
    def is_plain(self) -> bool:
        """Return whether rows are unchanged Kafka records.

        Such rows have all of Kafka's columns, except perhaps `headers`, under Kafka's names. There is no decoding, no
        user's function, no SQL, no table rule and no key of rows.
        """
        renamed = any(name != own for name, own in self.kafka_columns)
        complete = {name for name, _ in self.kafka_columns} >= set(SCHEMA_WITH_HEADERS.names) - {"headers"}
        decodes = self.key.kind is not None or self.value.kind is not None
        return complete and not (decodes or renamed or self.transform or self.query or self.rules or self.keys)

    @property
    def needs_headers(self) -> bool:
        """Return whether records must be read with their headers: for the table, or to decode the records."""
        return "headers" in dict(self.kafka_columns) or self.key.reads_headers or self.value.reads_headers

    @property
    def is_resolved(self) -> bool:
        """Return whether key and value each have a type or are binary, so that the types of all columns are known."""
        return all(part.kind is not None or part.format is choices.Format.BINARY for part in (self.key, self.value))

    @property
    def decoded(self) -> pa.Schema:
        """Return the columns of decoded rows, without hidden columns. The user's function gets these columns."""
        columns = self.layout(self.value.kind)
        # Not `table_columns`: a field of values may begin with HIDDEN, and must be refused like other forbidden names.
        return pa.schema([field for field, source in columns if not (source.kafka and field.name.startswith(HIDDEN))])

    @property
    def written(self) -> pa.Schema:
        """Return the table's columns, without the day column (`ingest.dayColumn`).

        These are the columns that the user's function returns, or that `ingest.select` gives, or else `decoded`.
        """
        own = self.selected if self.transformed is None else self.transformed
        return self.decoded if own is None else own

    def layout(self, value_kind: pa.DataType | None) -> Iterator[tuple[pa.Field, Source]]:
        """Yield each column of a decoded row with its source. Values have the type `value_kind` (None: binary).

        If the table has no columns for Kafka's offset or timestamp, hidden columns for them come last.
        """
        names = dict(self.kafka_columns)
        for column in SCHEMA_WITH_HEADERS:
            if column.name == KEY and self.key.kind is not None and self.lands_key:
                yield pa.field(KEY, self.key.kind), Source(KEY)
            if column.name == VALUE and value_kind is not None:
                yield from self._of_value(value_kind)
            if column.name in names:
                yield marked(pa.field(names[column.name], column.type), column.name), Source(kafka=column.name)
        for name in (OFFSET, TIMESTAMP):
            if name not in names:
                yield hidden(name, SCHEMA_WITH_HEADERS.field(name).type), Source(kafka=name)

    def _of_value(self, kind: pa.DataType) -> Iterator[tuple[pa.Field, Source]]:
        if self.struct_column is None and pa.types.is_struct(kind):
            is_flattened = self.envelope is choices.Envelope.FLATTENED
            for number, column in enumerate(kind):
                if is_flattened and column.name == DELETED_FIELD:
                    continue
                yield pa.field(column.name, column.type), Source(VALUE, number)
        else:
            yield pa.field(self.struct_column or VALUE, kind), Source(VALUE)


def plain_rows(include_headers: bool) -> RowFormat:
    """Return the format of rows that are unchanged Kafka records, with the column `headers` if `include_headers`."""
    names = SCHEMA_WITH_HEADERS.names if include_headers else SCHEMA_WITH_HEADERS.names[:-1]
    return RowFormat(tuple((name, name) for name in names))


def schema_to_text(schema: pa.Schema) -> str:
    """Return an Arrow schema as text: its IPC message in base64."""
    return b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """Return the Arrow schema that `schema_to_text` has written."""
    return pa.ipc.read_schema(pa.BufferReader(b64decode(text)))

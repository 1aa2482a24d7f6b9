"""Settings of keys or of values: their format, their schema, and the schema's subject in a schema registry."""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import Format, SchemaIdsIn, SubjectNames

REGISTRY, INFER = "registry", "infer"
"""Values of `ingest.value.schema` and `ingest.key.schema` that are not a schema.

The schema comes from a schema registry, or is inferred from records.
"""


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
    def has_schema(self) -> bool:
        """True if the format needs a schema: JSON, Avro and protobuf do."""
        return self.format in (Format.JSON, Format.AVRO, Format.PROTOBUF)

    @property
    def is_named_by_record(self) -> bool:
        """True if the subject's name contains the record's name (`RecordNameStrategy`, `TopicRecordNameStrategy`)."""
        return self.strategy in (SubjectNames.RECORD, SubjectNames.TOPIC_RECORD)

    @property
    def subject_name(self) -> str:
        """Name of the schema's subject in the registry, in which `{topic}` stands for the topic.

        The name is the value of the setting `subject`. If `subject` is not set, the name follows from the strategy
        (default: `TopicNameStrategy`).
        """
        by_strategy = {SubjectNames.RECORD: self.message or "", SubjectNames.TOPIC_RECORD: f"{{topic}}-{self.message}"}
        return self.subject or by_strategy.get(self.strategy or SubjectNames.TOPIC, f"{{topic}}-{self.name}")


def check_part(part: PartSettings) -> None:
    """Raise ConfigurationError if two settings in `part` contradict each other, or a required setting is missing."""
    _check_schema(part)
    _check_subject(part)
    if part.id_place and (not part.has_schema or part.schema == INFER):
        prefix = f"ingest.{part.name}."
        raise ConfigurationError(
            f"{prefix}schema.id.deserializer is for json, avro and protobuf with a schema that is given or registered: "
            f"remove it, or set {prefix}format and {prefix}schema"
        )


def _check_schema(settings: PartSettings) -> None:
    part, kind, schema, needs = settings.name, settings.format, settings.schema, settings.has_schema
    if needs and schema is None:
        raise ConfigurationError(f"ingest.{part}.format is {kind.value}: set ingest.{part}.schema, too")
    if schema == REGISTRY and not needs:
        raise ConfigurationError(
            f"ingest.{part}.schema is registry, which is for json, avro and protobuf, not for {kind.value}"
        )
    if schema == INFER and kind is not Format.JSON:
        raise ConfigurationError(f"ingest.{part}.schema is infer, which is for json alone, not for {kind.value}")
    if schema is not None and not needs:
        raise ConfigurationError(
            f"ingest.{part}.schema is set, but ingest.{part}.format is {kind.value}, which has none"
        )


def _check_subject(part: PartSettings) -> None:
    prefix = f"ingest.{part.name}."
    for name, value in (("subject", part.subject), ("subject.name.strategy", part.strategy)):
        if value is not None and part.schema != REGISTRY:
            raise ConfigurationError(f"{prefix}{name} is set, but {prefix}schema is not registry: set both, or neither")
    if part.subject and part.strategy:
        raise ConfigurationError(f"{prefix}subject and {prefix}subject.name.strategy exclude each other: set one")
    if part.is_named_by_record and not part.message:
        raise ConfigurationError(
            f"{prefix}subject.name.strategy is {part.strategy}: set {prefix}message to the record's full name, or name "
            f"the subject by {prefix}subject"
        )
    if part.message and part.format is not Format.PROTOBUF and not part.is_named_by_record:
        raise ConfigurationError(
            f"{prefix}message is set, but {prefix}format is {part.format.value}, and no {prefix}subject.name.strategy "
            "names a subject by it: remove it"
        )

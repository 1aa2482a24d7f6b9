"""Topics with made-up schemas and values of them, hostile ones among them, and the settings that land them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pyspark.sql.pandas.types import from_arrow_type

from tests.formats.avro_cases import Schemas, encoded, value
from tests.formats.json_documents import document, make_kind
from tests.formats.protobuf_cases import MESSAGE, WRAPPERS, Files, made, message_class
from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.fuzz.mutation import spoiled
from tests.rigs.stack.rows import Record
from tests.tier.topics import write_topic

SPOILED = 0.3
"""Of values that were right before."""


@dataclass(frozen=True)
class MadeTopic:
    """One schema, and values that mostly are of it."""

    name: str
    settings: Mapping[str, str]
    """Without the prefix `ingest.value.`."""
    values: tuple[bytes | None, ...]

    def write(self, bucket: Path) -> None:
        """In two partitions; some records have keys and headers."""
        records = [Record(b"k%d" % at if at % 3 else None, each, (("h", b"1"), ("h", None)) if at % 5 == 0 else ())
                   for at, each in enumerate(self.values)]  # fmt: skip
        middle = len(records) // 3
        write_topic(bucket, self.name, [records[:middle], records[middle:]])


def json_topic(random: Random, name: str, count: int) -> MadeTopic:
    """By Spark's JSON of a type."""
    kind = make_kind(random)
    values = [document(random, kind) for _ in range(count)]
    return MadeTopic(
        name, {"format": "json", "schema": from_arrow_type(kind, prefer_timestamp_ntz=True).json()}, (*values, None)
    )


def avro_topic(random: Random, name: str, count: int) -> MadeTopic:
    """By a schema as JSON."""
    schema = Schemas(random).record()
    values = [encoded(schema, value(random, schema)) for _ in range(count)]
    return MadeTopic(name, {"format": "avro", "schema": json.dumps(schema)}, _hostile(random, values))


def protobuf_topic(random: Random, name: str, count: int, folder: Path) -> MadeTopic:
    """By a `.proto` file in the folder."""
    file = folder / f"{name}.proto"
    text = Files(random, known=WRAPPERS).text()
    file.write_text(text)
    values = [made(random, message_class(text)()).SerializeToString() for _ in range(count)]
    settings = {"format": "protobuf", "schema": str(file), "message": MESSAGE}
    return MadeTopic(name, settings, _hostile(random, values))


def registered_avro_topic(random: Random, name: str, count: int, registry: ScriptedRegistry) -> MadeTopic:
    """By a registry: two writers, one with a field more; and ids of nobody."""
    schema = Schemas(random).record()
    older = {**schema, "fields": [{"name": "gone", "type": "int"}, *schema["fields"]]}
    number = 10 * (len(registry.schemas) + 1)
    registry.schemas |= {number: {"schema": json.dumps(schema)}, number + 1: {"schema": json.dumps(older)}}
    registry.versions[f"{name}-value", "latest"] = {"id": number, "schema": json.dumps(schema)}
    values = []
    for _ in range(count):
        schema_id = random.choice((number, number, number, number + 1, number + 2))
        content = encoded(schema, value(random, schema))
        values.append(b"\0" + schema_id.to_bytes(4) + (b"\x02" if schema_id == number + 1 else b"") + content)
    return MadeTopic(name, {"format": "avro", "schema": "registry"}, _hostile(random, values))


def registered_protobuf_topic(random: Random, name: str, count: int, registry: ScriptedRegistry) -> MadeTopic:
    """By a registry; some say that they are another message."""
    text = Files(random, known=WRAPPERS).text()
    number = 10 * (len(registry.schemas) + 1)
    registry.schemas[number] = {"schema": text, "schemaType": "PROTOBUF"}
    registry.versions[f"{name}-value", "latest"] = {"id": number, **registry.schemas[number]}
    values = []
    for _ in range(count):
        which = random.choice((b"\0", b"\0", b"\x02\0", b"\x02\x02", b""))
        values.append(b"\0" + number.to_bytes(4) + which + made(random, message_class(text)()).SerializeToString())
    settings = {"format": "protobuf", "schema": "registry", "message": MESSAGE}
    return MadeTopic(name, settings, _hostile(random, values))


def _hostile(random: Random, values: list[bytes]) -> tuple[bytes | None, ...]:
    found = [spoiled(random, each, values) if random.random() < SPOILED else each for each in values]
    return (*found, b"", random.randbytes(40), None)

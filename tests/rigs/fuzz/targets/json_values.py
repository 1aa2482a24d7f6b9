"""JSON documents, by both ways of reading them, and schemas of such."""

from __future__ import annotations

from functools import cache
from random import Random

import pyarrow as pa

from tests.formats.json_documents import document, in_python, make_kind
from tests.rigs.fuzz.mutation import below, spoiled, spoiled_json
from tests.rigs.fuzz.target import MIB, Target
from tiered_stream.errors import CorruptDataError
from tiered_stream.formats.json.exact_json import ExactJson
from tiered_stream.formats.json.json_decoder import JsonDecoder
from tiered_stream.formats.json.json_inference import infer_json
from tiered_stream.formats.json.json_schema import json_schema_kind

SCHEMAS = 8
SEPARATOR = b"\x1e"
"""Between the documents of a case, whose first byte chooses the schema. No JSON has it."""

JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": ["integer", "null"]},
        "b": {"type": "string", "format": "date-time"},
        "c": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "d": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": {"type": "number"}}]},
        "e": {"allOf": [{"$ref": "#/$defs/item"}, {"properties": {"z": {"const": "x"}}}]},
    },
    "$defs": {"item": {"type": "object", "properties": {"x": {"enum": [1, 2]}, "y": {"type": "boolean"}}}},
}


@cache
def decoders(number: int) -> tuple[JsonDecoder, ExactJson]:
    kind = make_kind(Random(number))
    return JsonDecoder(kind), ExactJson(kind, "UTC")


def documents(random: Random) -> bytes:
    number = below(random, SCHEMAS)
    kind = decoders(number)[0].kind
    made = [document(random, kind) for _ in range(1 + below(random, 4))]
    if random.random() < 0.4:
        at = below(random, len(made))
        made[at] = spoiled(random, made[at], made)
    return bytes([number]) + SEPARATOR.join(made)


def decode(data: bytes) -> None:
    """Each document alone, by the exact rules, is what the batch has in its slot."""
    decoder, exact = decoders(data[0] % SCHEMAS if data else 0)
    values = data[1:].split(SEPARATOR)
    found = decoder.decode(pa.array(values, pa.binary()))
    found.column.validate(full=True)
    rows = in_python(found.column)
    for slot, value in enumerate(values):
        try:
            row = exact.row(value)
        except CorruptDataError as error:
            assert (found.reasons.get(slot), found.column[slot].is_valid) == (str(error), False)
        else:
            expected = pa.scalar([row], pa.list_(decoder.kind)).values
            # By their printed form, as not-a-number equals nothing.
            assert slot not in found.reasons and str(rows[slot]) == str(in_python(expected)[0])


def infer(data: bytes) -> None:
    values = data[1:].split(SEPARATOR)
    kind = infer_json(values)
    JsonDecoder(kind).decode(pa.array(values, pa.binary())).column.validate(full=True)


TARGETS = (
    Target("json-documents", documents, decode, memory=512 * MIB),
    Target("json-inference", documents, infer, memory=512 * MIB),
    Target("json-schema", lambda random: spoiled_json(random, JSON_SCHEMA), json_schema_kind),
)

"""Types in Spark's JSON, as Delta's log has them: a text, or a dict for a struct, an array or a map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tiered_stream.formats.rows.table_rules import ELEMENT, MAP_KEY, MAP_VALUE

_ITEMS = (
    (ELEMENT, "elementType", "containsNull"),
    (MAP_KEY, "keyType", None),
    (MAP_VALUE, "valueType", "valueContainsNull"),
)
"""Inner types of arrays and maps: the name of each inner type in a path, and two keys of Spark's JSON.

The value of the first key is the inner type. The value of the second key says if the inner type may be null; None: the
JSON does not say it for keys of maps.
"""


def inner_fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of a struct, or the inner types of an array or a map as fields.

    These fields are called `element`, `key` and `value`. Nothing is yielded for a type without inner types. Keys of
    maps count as nullable.
    """
    if isinstance(kind, dict):
        yield from kind.get("fields", ())
        for step, name, nullable in _ITEMS:
            if name in kind:
                yield {"name": step, "type": kind[name], "nullable": kind.get(nullable, True), "metadata": {}}


def parts_of(kind: Any) -> Iterator[Any]:
    """Yield the type and all types nested in it."""
    yield kind
    for field in inner_fields(kind):
        yield from parts_of(field["type"])


def common_fields(one: Any, other: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the fields that two structs, arrays or maps have in common, as pairs of the field of `one` and of `other`.

    The fields are the same as `inner_fields` yields, matched by name without regard to case. Nothing is yielded unless
    the two types are both structs, both arrays or both maps.
    """
    if not isinstance(one, dict) or not isinstance(other, dict) or one["type"] != other["type"]:
        return
    known = {field["name"].lower(): field for field in inner_fields(one)}
    for field in inner_fields(other):
        if (same := known.get(field["name"].lower())) is not None:
            yield same, field


def struct_of(fields: Any) -> dict[str, Any]:
    """Return a struct type with the fields `fields`; the type and the fields are in Spark's JSON."""
    return {"type": "struct", "fields": list(fields)}

"""List of all requirements that a table, its columns (also nested ones) and the session can set for a writer.

The direct lane meets each requirement, or leaves the table to the Spark lane, or refuses the query. A requirement that
is not in the list leads to the Spark lane. The table in the docs is generated from the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from tiered_stream.delta.requirements.requirement import Asked, Handling, Kind, Requirement
from tiered_stream.delta.requirements.s3a_requirements import S3A_PREFIX, S3A_REQUIREMENTS
from tiered_stream.delta.requirements.session_requirements import SESSION_REQUIREMENTS
from tiered_stream.delta.requirements.table_requirements import TABLE_REQUIREMENTS
from tiered_stream.delta.schema.json_types import inner_fields

WRITER_REQUIREMENTS: tuple[Requirement, ...] = (
    *TABLE_REQUIREMENTS, *SESSION_REQUIREMENTS, *S3A_REQUIREMENTS,
)  # fmt: skip
_BY_NAME = {(each.kind, each.name.lower()): each for each in WRITER_REQUIREMENTS}
_PREFIXES = tuple(each for each in WRITER_REQUIREMENTS if each.name.endswith("*"))
_DELTA = "delta."
_FEATURE_PREFIX = "delta.feature."
_RESERVED = re.compile(r"delta\..*|__.*|[A-Z][A-Z_]*", re.DOTALL)
"""Keys of a column's metadata that Delta and Spark reserve for themselves; all other keys are notes of users."""


def find_requirement(kind: Kind, name: str) -> Requirement | None:
    """Return the list's entry for this kind and name; None: the list has no such entry."""
    exact = _BY_NAME.get((kind, name.lower()))
    if exact is not None and exact.is_of(kind, name):
        return exact
    return next((each for each in _PREFIXES if each.is_of(kind, name)), None)


def asked_of_writer(
    features: Iterable[str], configuration: Mapping[str, str], fields: Iterable[Mapping[str, Any]]
) -> Iterator[Asked]:
    """Yield the table's requirements that not every commit of the direct lane meets; `fields` are in Spark's JSON."""
    for each in fields:
        yield from _of_field(each, each["name"])
    for name, value in configuration.items():
        if name.lower().startswith(_DELTA):
            yield from _of_property(name, value)
    for name in sorted(features):
        yield from _unless_honoured(Kind.FEATURE, name)


def asked_by_session(settings: Mapping[str, str]) -> Iterator[Asked]:
    """Yield the session's requirements that not every commit of the direct lane meets; `settings` by name."""
    for name, value in settings.items():
        found = find_requirement(Kind.SESSION, name)
        if found is not None and value.lower() not in found.off and found.handling not in _QUIET:
            yield Asked(found, name)


def _of_property(name: str, value: str) -> Iterator[Asked]:
    if name.lower().startswith(_FEATURE_PREFIX):
        yield from _unless_honoured(Kind.FEATURE, name[len(_FEATURE_PREFIX) :])
        return
    found = find_requirement(Kind.PROPERTY, name)
    if found is None or value.lower() not in found.off:
        yield from _unless_honoured(Kind.PROPERTY, name)


def _of_field(field: Mapping[str, Any], column: str) -> Iterator[Asked]:
    for key in field.get("metadata", {}):
        if _RESERVED.fullmatch(key) or find_requirement(Kind.METADATA, key):
            yield from _unless_honoured(Kind.METADATA, key, column)
    yield from _of_type(field["type"], column)


def _of_type(kind: Any, column: str) -> Iterator[Asked]:
    if isinstance(kind, str):
        yield from _unless_honoured(Kind.TYPE, kind, column)
        return
    for field in inner_fields(kind):
        yield from _of_field(field, f"{column}.{field['name']}")
    if kind.get("type") not in ("struct", "array", "map"):
        yield from _unless_honoured(Kind.TYPE, str(kind.get("type")), column)


_QUIET = (Handling.HONOURED, Handling.NOTHING)


def _unless_honoured(kind: Kind, name: str, column: str = "") -> Iterator[Asked]:
    found = find_requirement(kind, name)
    if found is None:
        said = f"the {_CALLED[kind]} {name}, which is not known here"
        yield Asked(Requirement(kind, name, Handling.SPARK_LANE, said=said), name, column)
    elif found.handling not in _QUIET:
        yield Asked(found, name, column)


_CALLED = {Kind.FEATURE: "feature", Kind.PROPERTY: "property", Kind.METADATA: "metadata", Kind.TYPE: "type"}


def render_writer_requirements() -> str:
    """Return the list as the Markdown table in the docs."""
    lines = ["| What asks | Name | The direct lane | Since |", "|---|---|---|---|"]
    for (kind, handling, note, since), entries in groupby(WRITER_REQUIREMENTS, _shown):
        names = ", ".join(each.name if kind is Kind.SCHEMA else f"`{each.name}`" for each in entries)
        done = f"{handling.value}. {note}" if note else f"{handling.value}."
        lines.append(f"| {kind.value} | {names} | {done[0].upper()}{done[1:]} | {since} |")
    unknown = f"{Handling.SPARK_LANE.value}."
    lines.append(f"| a table | a name that is not in this table | {unknown[0].upper()}{unknown[1:]} | 0.1.0 |")
    said = f"{unknown[0].upper()}{unknown[1:]} Where its name speaks of what is written, as `tag` or `header` do."
    lines.append(f"| session setting | `{S3A_PREFIX}*` that is not in this table | {said} | 0.1.0 |")
    return "\n".join(lines) + "\n"


def _shown(each: Requirement) -> tuple[Kind, Handling, str, str]:
    return each.kind, each.handling, each.note, each.since

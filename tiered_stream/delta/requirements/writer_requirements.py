"""List of all requirements that a table, its columns (also nested ones) and the session can set for a writer.

The direct lane meets each requirement, or leaves the table to the Spark lane. A requirement that is not in the list
leads to the Spark lane. `tests/docs/docs_tables.py` writes the table in the docs from the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from tiered_stream.delta.requirements.abfs import ABFS_REQUIREMENTS
from tiered_stream.delta.requirements.gs import GS_REQUIREMENTS
from tiered_stream.delta.requirements.requirement import Handling, ImposedRequirement, Kind, Requirement, find_entry
from tiered_stream.delta.requirements.s3a import S3A_REQUIREMENTS
from tiered_stream.delta.requirements.session_requirements import SESSION_REQUIREMENTS
from tiered_stream.delta.requirements.table_requirements import TABLE_REQUIREMENTS
from tiered_stream.delta.schema.sql_types import inner_fields

WRITER_REQUIREMENTS: tuple[Requirement, ...] = (
    *TABLE_REQUIREMENTS, *SESSION_REQUIREMENTS, *S3A_REQUIREMENTS, *ABFS_REQUIREMENTS, *GS_REQUIREMENTS,
)  # fmt: skip
_DELTA = "delta."
_FEATURE_PREFIX = "delta.feature."
_RESERVED = re.compile(r"delta\..*|__.*|[A-Z][A-Z_]*", re.DOTALL)
"""Pattern of the keys of column metadata that Delta and Spark reserve; users may add any other keys."""


@lru_cache(1000)
def find_requirement(kind: Kind, name: str) -> Requirement | None:
    """Return the entry for this kind and name in the list of known requirements, or None if there is none."""
    return find_entry(WRITER_REQUIREMENTS, kind, name)


def requirements_of_table(
    features: Iterable[str], configuration: Mapping[str, str], fields: Iterable[Mapping[str, Any]]
) -> Iterator[ImposedRequirement]:
    """Yield the requirements of a table that the direct lane does not meet, or meets only if delta-spark commits.

    A requirement counts as not met if it is not in the list of known requirements. `features` are the table's writer
    features, `configuration` its properties, and `fields` its columns in Spark's JSON.
    """
    for column in fields:
        yield from _of_field(column, column["name"])
    for name, value in configuration.items():
        if name.lower().startswith(_DELTA):
            yield from _of_property(name, value)
    for name in sorted(features):
        yield from _unless_met(Kind.FEATURE, name)


def requirements_of_session(settings: Mapping[str, str]) -> Iterator[ImposedRequirement]:
    """Yield the session's requirements that the direct lane does not meet, or meets only if delta-spark commits.

    `settings` are values of the session's settings, by name. Settings that are not in the list of known requirements
    are ignored.
    """
    for name, value in settings.items():
        entry = find_requirement(Kind.SESSION, name)
        if entry is not None and value.lower() not in entry.off and entry.handling not in _MET:
            yield ImposedRequirement(entry, name)


def _of_property(name: str, value: str) -> Iterator[ImposedRequirement]:
    if name.lower().startswith(_FEATURE_PREFIX):
        yield from _unless_met(Kind.FEATURE, name[len(_FEATURE_PREFIX) :])
        return
    entry = find_requirement(Kind.PROPERTY, name)
    if entry is None or value.lower() not in entry.off:
        yield from _unless_met(Kind.PROPERTY, name)


def _of_field(field: Mapping[str, Any], column: str) -> Iterator[ImposedRequirement]:
    for key in field.get("metadata", {}):
        if _RESERVED.fullmatch(key) or find_requirement(Kind.METADATA, key):
            yield from _unless_met(Kind.METADATA, key, column)
    yield from _of_type(field["type"], column)


def _of_type(kind: Any, column: str) -> Iterator[ImposedRequirement]:
    if isinstance(kind, str):
        yield from _unless_met(Kind.TYPE, kind, column)
        return
    for field in inner_fields(kind):
        yield from _of_field(field, f"{column}.{field['name']}")
    if kind.get("type") not in ("struct", "array", "map"):
        yield from _unless_met(Kind.TYPE, str(kind.get("type")), column)


_MET = (Handling.HONOURED, Handling.NOTHING)


def _unless_met(kind: Kind, name: str, column: str = "") -> Iterator[ImposedRequirement]:
    entry = find_requirement(kind, name)
    if entry is None:
        label = f"the {_KIND_NAMES[kind]} {name}, which is not known here"
        yield ImposedRequirement(Requirement(kind, name, Handling.SPARK_LANE, label=label), name, column)
    elif entry.handling not in _MET:
        yield ImposedRequirement(entry, name, column)


_KIND_NAMES = {Kind.FEATURE: "feature", Kind.PROPERTY: "property", Kind.METADATA: "metadata", Kind.TYPE: "type"}

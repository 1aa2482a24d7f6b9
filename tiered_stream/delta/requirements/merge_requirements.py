"""Check if deltalake can merge rows into a table of the latest state; Spark's MERGE meets whatever a table requires."""

from __future__ import annotations

from collections.abc import Iterator

from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.requirement import OFF, Kind
from tiered_stream.delta.requirements.table_requirements import CONSTRAINT_PREFIX
from tiered_stream.delta.requirements.text_limits import DECLARED_TYPE
from tiered_stream.delta.requirements.writer_requirements import find_requirement, requirements_of_table
from tiered_stream.delta.settings.upsert_settings import MERGE_ON

_FEATURES = frozenset({"deletionVectors"})
"""Features that ask nothing of a writer that appends, but something of one that removes or rewrites rows."""
_PROPERTIES = frozenset({"delta.appendonly", "delta.enablechangedatafeed", "delta.enabledeletionvectors"})
"""Properties of the same kind, in lower case."""


def why_not_merged_by_deltalake(description: TableDescription, merge_on: str | None) -> str | None:
    """Return in one line why only Spark's MERGE can write the table; None: deltalake can, too.

    `merge_on` is the value of `ingest.mergeOn`.
    """
    return next(_reasons(description, merge_on), None)


def _reasons(description: TableDescription, merge_on: str | None) -> Iterator[str]:
    if merge_on is not None:
        yield f"{MERGE_ON.name} is SQL of Spark's"
    unmet = requirements_of_table(description.writer_features, description.configuration, description.fields)
    yield from (requirement.reason for requirement in unmet)
    yield from (f"the table has {feature}" for feature in sorted(_FEATURES & description.writer_features))
    for name, value in description.configuration.items():
        is_set = name.lower() in _PROPERTIES and value.lower() not in OFF
        if is_set or name.lower().startswith(CONSTRAINT_PREFIX):
            yield f"the table has {name}"
    for column in description.fields:
        if DECLARED_TYPE in column.get("metadata", {}):
            entry = find_requirement(Kind.METADATA, DECLARED_TYPE)
            yield f"the column {column['name']} has {entry.name if entry else DECLARED_TYPE}"
    if description.partition_columns:
        yield f"the table is partitioned by {', '.join(description.partition_columns)}"

"""Logs of tables that a catalog manages, written by hand, because only a catalog makes such a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

PRESENT = "catalogManaged"
SPELLINGS = (PRESENT, "catalogOwned-preview", "catalogOwned", "catalogManaged-preview", "coordinatedCommits-preview")
_FIELDS = (
    ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "integer"), ("offset", "long"),
    ("timestamp", "timestamp"), ("timestampType", "integer"),
)  # fmt: skip


def protocol(feature: str) -> dict[str, object]:
    """The protocol of a table with the feature, which asks for in-commit timestamps too."""
    both = [feature, "vacuumProtocolCheck"]
    writers = [*both, "inCommitTimestamp", "appendOnly", "invariants"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": both, "writerFeatures": writers}}


def make_managed(table: Path, feature: str = PRESENT) -> None:
    """Make a table with Kafka's columns and without rows."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _FIELDS]
    metadata = {
        "id": "6d6bd0a0-0000-4000-8000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": orjson.dumps({"type": "struct", "fields": fields}).decode(),
        "partitionColumns": [],
        "configuration": {"delta.enableInCommitTimestamps": "true"},
        "createdTime": 1,
    }
    write_version(table, 0, [protocol(feature), {"metaData": metadata}])


def take_over(table: Path, feature: str = PRESENT) -> None:
    """Let a catalog take over a table that has one version."""
    actions = map(orjson.loads, (table / "_delta_log" / f"{0:020d}.json").read_bytes().splitlines())
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    metadata["configuration"] |= {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "1",
        "delta.inCommitTimestampEnablementTimestamp": "2",
    }
    write_version(table, 1, [protocol(feature), {"metaData": metadata}])


def write_version(table: Path, version: int, actions: Sequence[dict[str, object]]) -> None:
    """Write a version of the table's log, as a catalog publishes it."""
    info = {"inCommitTimestamp": version + 1, "timestamp": 1, "operation": "MANAGED", "operationParameters": {}}
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = b"\n".join(map(orjson.dumps, [{"commitInfo": info}, *actions]))
    (log / f"{version:020d}.json").write_bytes(lines + b"\n")


def versions(table: Path) -> list[int]:
    return sorted(int(file.stem) for file in (table / "_delta_log").glob("[0-9]*.json"))

"""Every record that producers sent, counted in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tests.rigs.soak.produced import KEY_BYTES, NAME_BYTES


@dataclass(frozen=True)
class Count:
    """`foreign` are those whose value is another record's, or that nobody sent."""

    records: int
    lost: int
    doubled: int
    foreign: int


def count(table: Path, sent: Mapping[str, int]) -> Count:
    """The records of a table against how many each producer has sent."""
    foreign = 0
    batches = []
    for batch in DeltaTable(table).to_pyarrow_dataset().to_batches(columns=["key", "value"]):
        own = pc.equal(pc.binary_slice(batch["value"], 0, KEY_BYTES), batch["key"])
        foreign += len(own) - (pc.sum(own).as_py() or 0)
        batches.append(_numbered(batch["key"]))
    numbered = pa.Table.from_batches(batches).group_by("producer")
    found = {
        row["producer"]: row
        for row in numbered.aggregate(
            [("number", "count"), ("number", "count_distinct"), ("number", "max")]
        ).to_pylist()
    }
    each = {name: found.pop(name, {"number_count": 0, "number_count_distinct": 0}) for name in sent}
    foreign += sum(row["number_count"] for row in found.values())
    foreign += sum(row.get("number_max", -1) >= sent[name] for name, row in each.items())
    return Count(
        records=sum(row["number_count"] for row in each.values()),
        lost=sum(sent[name] - row["number_count_distinct"] for name, row in each.items()),
        doubled=sum(row["number_count"] - row["number_count_distinct"] for row in each.values()),
        foreign=foreign,
    )


def _numbered(keys: pa.Array) -> pa.RecordBatch:
    name = pc.utf8_rtrim_whitespace(pc.binary_slice(keys, 0, NAME_BYTES).cast(pa.string()))
    number = pc.binary_slice(keys, NAME_BYTES, KEY_BYTES).cast(pa.string()).cast(pa.int64())
    return pa.RecordBatch.from_arrays([name, number], ["producer", "number"])

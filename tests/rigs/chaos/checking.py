"""Whether a table has what a consumer has: every record once, but for those that are gone and were said to be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from tests.rigs.stack.rows import Row

Place = tuple[int, int]
"""Partition and offset."""
Truth = Mapping[Place, tuple[bytes | None, bytes | None]]
"""Key and value of each record."""

_LOST_BY_TASK = re.compile(r"\S+-(?P<partition>\d+): offsets (?P<start>\d+) to (?P<end>\d+) are lost")
_LOST_BY_PLANNER = re.compile(
    r"offsets (?P<start>\d+) to (?P<end>\d+) of \S+-(?P<partition>\d+) are wanted, but it holds (?P<first>\d+) to "
)
_LOST_OF_FIRST = re.compile(
    r"first micro-batch, up to offset (?P<end>\d+) of \S+-(?P<partition>\d+), is read again\."
    r".* before offset (?P<first>\d+), where the log begins now"
)


def truth(rows: Iterable[Row]) -> Truth:
    return {(row.partition, row.offset): (row.key, row.value) for row in rows}


@dataclass(frozen=True)
class Verdict:
    """What is not as it should be; nothing, if all is well."""

    lost: Collection[Place] = ()
    """Records of the topic that the table lacks."""
    doubled: Collection[Place] = ()
    different: Collection[Place] = ()
    """Records that the topic does not have, or not so."""
    unreported: Collection[Place] = ()
    """Records that are gone, and were not said to be."""
    misreported: Collection[Place] = ()
    """Records that were said to be lost, and are there."""

    @property
    def well(self) -> bool:
        return self == Verdict()


def compare(table: Path, expected: Truth, gone: Collection[Place], log: str, *, complete: bool) -> Verdict:
    """Hold a table against the topic.

    Args:
        gone: records that the topic has no more; they may be in the table all the same.
        log: what the query has said.
        complete: all of the topic is to be there; otherwise, of each partition all up to the last offset that is.
    """
    found = _rows(table)
    times = Counter(place for place, _ in found)
    last: dict[int, int] = {}
    for partition, offset in times:
        last[partition] = max(offset, last.get(partition, -1))
    missing = {place for place in expected if place not in times and (complete or place[1] < last.get(place[0], -1))}
    reported = set(_reported(log))
    return Verdict(
        tuple(sorted(missing - set(gone))),
        tuple(sorted(place for place, count in times.items() if count > 1)),
        tuple(sorted(place for place, record in found if expected.get(place) != record)),
        tuple(sorted(missing & set(gone) - reported)),
        tuple(sorted(reported & times.keys())),
    )


def _rows(table: Path) -> list[tuple[Place, tuple[bytes | None, bytes | None]]]:
    if not DeltaTable.is_deltatable(str(table)):
        return []
    rows = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset", "key", "value"]).to_pylist()
    return [((row["partition"], row["offset"]), (row["key"], row["value"])) for row in rows]


def _reported(log: str) -> Iterable[Place]:
    """The places that were said to be lost."""
    for match in (m for pattern in (_LOST_BY_TASK, _LOST_BY_PLANNER, _LOST_OF_FIRST) for m in pattern.finditer(log)):
        said = {name: int(value) for name, value in match.groupdict().items()}
        end = min(said["end"], said.get("first", said["end"]))
        yield from ((said["partition"], offset) for offset in range(said.get("start", 0), end))

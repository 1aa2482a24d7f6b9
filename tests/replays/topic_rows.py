"""Whether a topic holds what another does."""

from __future__ import annotations

from collections.abc import Sequence

from tests.rigs.stack.consume import READ_COMMITTED, read_topic
from tests.rigs.stack.rows import Record, Row
from tests.rigs.stack.tiered_stack import TieredStack


def records_of(rows: Sequence[Row]) -> dict[int, list[Record]]:
    """By partition, in order."""
    found: dict[int, list[Record]] = {}
    for row in sorted(rows):
        found.setdefault(row.partition, []).append(row.record())
    return found


def check_topic(stack: TieredStack, target: str, expected: Sequence[Row]) -> None:
    """A read_committed consumer finds what the source's consumer found, in each partition, in order."""
    found, wanted = records_of(read_topic(stack.broker, target, READ_COMMITTED)), records_of(expected)
    assert {each: len(records) for each, records in found.items()} == {each: len(wanted[each]) for each in wanted}
    for partition, records in wanted.items():
        # One at a time: pytest would look for the shortest difference of two long lists.
        for number, (there, record) in enumerate(zip(found[partition], records, strict=True)):
            assert (partition, number, there) == (partition, number, record)

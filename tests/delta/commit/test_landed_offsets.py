"""Offsets of a table by the metadata of its commits."""

from __future__ import annotations

import pytest

from tiered_stream.delta.commit.table_log import committed_ranges
from tiered_stream.model import OffsetRange, TopicPartition


def test_a_commit_names_its_offsets() -> None:
    text = '{"startOffsets":{"orders":{"0":3}},"endOffsets":{"orders":{"0":9}},"topicIds":{}}'
    assert committed_ranges(text) == {TopicPartition("orders", 0): OffsetRange(3, 9)}


@pytest.mark.parametrize(
    "metadata", [None, "", "by hand", "[]", '"x"', '{"startOffsets":{"orders":{"0":-3}},"endOffsets":{}}',
                 '{"startOffsets":{"orders":{"0":3}},"endOffsets":{}}', '{"startOffsets":{"orders":{"0":3}}}']
)  # fmt: skip
def test_metadata_of_another_writer_names_none(metadata: str | None) -> None:
    assert committed_ranges(metadata) == {}

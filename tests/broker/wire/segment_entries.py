"""Entries of a response with segment locations, encoded field by field, so that they may contradict themselves."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from tiered_stream.records import flexible_versions as flexible

_NUMBERS, _EPOCH, _TRANSACTION = Struct(">qqiqqiiqq"), Struct(">iqx"), Struct(">qqqx")


class SegmentEntry(NamedTuple):
    """Part of a segment as KIP-1248 names its fields; `end_offset` and `end_position` are exclusive."""

    remote_log_segment_id: UUID | None
    remote_log_segment_custom_metadata: bytes | None
    signed_remote_log_segment_location: str | None
    storage_format_version: str
    base_offset: int
    last_offset: int
    size_in_bytes: int
    start_offset: int
    end_offset: int
    start_position: int
    end_position: int
    following_offset_min: int
    following_offset_max: int
    leader_epochs: Sequence[tuple[int, int]]
    aborted_transactions: Sequence[tuple[int, int, int]]


def encode_entries(entries: Sequence[SegmentEntry]) -> bytes:
    """The value of tagged field 1248 that holds these entries."""
    return flexible.compact_array([_encoded(entry) for entry in entries])


def _encoded(entry: SegmentEntry) -> bytes:
    segment_id, custom_metadata, url, storage_format, *numbers, epochs, aborted = entry
    return b"".join(
        (
            flexible.uuid_bytes(segment_id),
            flexible.compact_bytes(custom_metadata),
            flexible.compact_string(url),
            flexible.compact_string(storage_format),
            _NUMBERS.pack(*numbers),
            flexible.compact_array([_EPOCH.pack(*epoch) for epoch in epochs]),
            flexible.compact_array([_TRANSACTION.pack(*transaction) for transaction in aborted]),
            flexible.NO_TAGS,
        )
    )

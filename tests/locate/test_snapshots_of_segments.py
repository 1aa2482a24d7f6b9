"""Leader epoch checkpoints and producer snapshots."""

from __future__ import annotations

import struct
from contextlib import suppress

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.locate.index_files import open_transactions, parse_leader_epoch_checkpoint

# What a Kafka 4.1.1 broker uploaded with the last segment of a topic that had three leaders.
CHECKPOINT = b"0\n3\n0 0\n2 90\n4 150\n"


def snapshot(
    *producers: tuple[int, int, int, int, int, int, int, int], version: int = 1, count: int | None = None
) -> bytes:
    entries = b"".join(struct.pack(">qhiqiqiq", *producer) for producer in producers)
    body = struct.pack(">i", len(producers) if count is None else count) + entries
    return struct.pack(">hI", version, google_crc32c.value(body)) + body


def test_a_checkpoint_lists_epochs_and_their_first_offsets() -> None:
    assert parse_leader_epoch_checkpoint(CHECKPOINT) == ((0, 0), (2, 90), (4, 150))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"0\n", b"0\n1\n", b"0\n1\n0 0\n1 5\n", b"0\n2\n1 0\n0 5\n", b"0\n2\n0 9\n1 5\n", b"0\n1\n0  0\n",
        b"0\n1\n0 -1\n", b"\xff\n1\n0 0\n", b"0\n1\n\xc2\xb2 0\n", b"0\n1\n0 9223372036854775808\n",
        b"0\n2\n0 0\n2147483648 5\n",
    ],
)  # fmt: skip
def test_a_malformed_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match="leader epoch checkpoint"):
        parse_leader_epoch_checkpoint(data)


def test_other_versions_are_not_guessed_at() -> None:
    with pytest.raises(UnsupportedDataError, match="version 1"):
        parse_leader_epoch_checkpoint(b"1\n1\n0 0\n")
    with pytest.raises(UnsupportedDataError, match="version 2"):
        open_transactions(snapshot(version=2))


def test_a_snapshot_tells_where_open_transactions_began() -> None:
    data = snapshot((9001, 0, 49, 149, 49, 1795224349069, -1, 100), (9005, 3, 199, 249, 47, 1795224349092, -1, -1))
    assert open_transactions(data) == [(9001, 100)] and open_transactions(snapshot()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\1", "shorter"),
        (snapshot()[:-1] + b"\1", "checksum"),
        (snapshot(count=1), "1 entries announced"),
        (snapshot(count=-1), "-1 entries announced"),
        (snapshot(count=1 << 30), "entries announced"),
        (snapshot((1, 0, 0, 0, 0, 0, 0, -2)), "transaction from offset -2"),
    ],
)
def test_a_malformed_snapshot_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        open_transactions(data)


@given(st.one_of(st.binary(max_size=100), st.text("0123456789 \n", max_size=40).map(str.encode)))
def test_any_bytes_give_entries_or_our_own_error(data: bytes) -> None:
    for parse in (parse_leader_epoch_checkpoint, open_transactions):
        with suppress(CorruptDataError, UnsupportedDataError):
            parse(data)

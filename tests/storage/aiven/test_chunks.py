from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.model import ByteRange
from tiered_stream.storage.aiven.manifest import (
    MAX_CHUNKS,
    ChunkIndex,
    _chunk_index,
    chunk_count,
    unpack_sizes,
)


def packed(sizes: list[int], width: int = 4) -> bytes:
    """The form of `ChunkSizesBinaryCodec`; base 0 unless there are several."""
    if len(sizes) < 2:
        return struct.pack(f">i{len(sizes)}i", len(sizes), *sizes)
    base = min(sizes[:-1])
    values = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    return struct.pack(">iib", len(sizes), base, width) + values + struct.pack(">i", sizes[-1])


def test_the_sizes_of_a_golden_manifest() -> None:
    # count 3, base 0xa082 = 41090... less what lies above it, 1 byte a value; last 0x9e71
    assert unpack_sizes(bytes.fromhex("000000030000a08201005000009e71")).tolist() == [41090, 41170, 40561]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=30))
def test_packed_sizes_survive(sizes: list[int]) -> None:
    assert unpack_sizes(packed(sizes)).tolist() == sizes


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sizes_of_every_width_are_read(width: int) -> None:
    sizes = [1000, 1000 + 256**width - 1 if width < 4 else 2**31 - 1, 1007, 5]
    assert unpack_sizes(packed(sizes, width)).tolist() == sizes


@pytest.mark.parametrize("size", range(len(packed([7, 8, 9], 2))))
def test_a_list_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_sizes(packed([7, 8, 9], 2)[:size])


@pytest.mark.parametrize(
    "head", [(MAX_CHUNKS + 1, 0, 1), (2**31 - 1, 0, 1), (-1, 0, 1), (2, -1, 1), (2, 0, 0), (2, 0, 5), (2, 0, -1)]
)
def test_a_list_with_a_senseless_head_is_refused(head: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="chunk sizes"):
        unpack_sizes(struct.pack(">iib", *head) + bytes(20))


@given(st.binary(max_size=40))
def test_any_bytes_give_sizes_or_a_value_error(data: bytes) -> None:
    try:
        unpack_sizes(data)
    except ValueError:
        pass


def index(chunk_size: int, file_size: int, sizes: list[int]) -> ChunkIndex:
    return ChunkIndex(chunk_size, file_size, np.append(0, np.array(sizes, np.int64)).cumsum())


def test_chunks_are_found_in_log_and_object() -> None:
    chunks = index(10, 25, [4, 6, 3])
    assert chunks.covering(ByteRange(9, 20)) == range(2)
    assert chunks.covering(ByteRange(10, 21)) == range(1, 3)
    assert chunks.original(2) == ByteRange(20, 25)
    assert chunks.transformed(range(1, 3)) == ByteRange(4, 13)


@pytest.mark.parametrize(("file_size", "positions"), [(50, [0, 10, 20, 27]), (20, [0, 7]), (0, [0])])
def test_fixed_sizes_differ_in_the_last_only(file_size: int, positions: list[int]) -> None:
    json = {"type": "fixed", "originalChunkSize": 20, "transformedChunkSize": 10, "finalTransformedChunkSize": 7}
    assert _chunk_index(json | {"originalFileSize": file_size}).positions.tolist() == positions


@pytest.mark.parametrize(
    "chunk_size,file_size,sizes,message",
    [
        (10, 25, [4, 6], "2 chunks are listed, but the segment has 3"),
        (10, 25, [4, 0, 6], "a chunk has no bytes"),
        (10, 25, [4, -5, 6], "a chunk has no bytes"),
        (10, 25, [2**30, 2**30, 2**30], "bytes together"),
        (10, 25, [4, 2000, 6], "a chunk of 10 bytes takes too many bytes"),
        (0, 25, [4], "cannot be"),
        (-1, 25, [4], "cannot be"),
        (10, -1, [], "cannot be"),
        (10, 2**31, [], "cannot be"),
        (1, 2**31 - 1, [], "more than the 65536 allowed"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(
    chunk_size: int, file_size: int, sizes: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        index(chunk_size, file_size, sizes)


def test_an_empty_log_has_no_chunk() -> None:
    assert chunk_count(10, 0) == 0
    assert index(10, 0, []).positions.tolist() == [0]

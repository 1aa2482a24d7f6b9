"""What a real broker wrote through the Aiven plugin comes out as the broker had it; damage to it is found."""

from __future__ import annotations

import shutil
import struct
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import cramjam
import google_crc32c
import pytest

from tests.archives import PLAIN, TRANSFORMED
from tests.golden import NAMES, golden
from tests.storage.conftest import s3_options
from tests.storage.golden_aiven import big_segment, copied, fetcher, manifests, options, rewritten, segments
from tiered_stream.data_limits import Limit
from tiered_stream.errors import StorageObjectNotFoundError
from tiered_stream.locate.index_files import (
    open_transactions,
    parse_leader_epoch_checkpoint,
    parse_time_index,
    parse_transaction_index,
)
from tiered_stream.locate.offset_index import parse_offset_index
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.fetcher import IndexType
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.open_fetcher import open_fetcher

if TYPE_CHECKING:
    from tests.rigs.stack.s3proxy import S3Proxy

CHUNK = 1 << 20


def batches(log: bytes) -> Iterator[tuple[int, int]]:
    """(base offset, last offset) of every record batch of magic 2, its CRC-32C checked."""
    at = 0
    while at < len(log):
        base_offset, length, _, magic, crc, _, last_delta = struct.unpack_from(">qiibIhi", log, at)
        assert magic == 2
        assert at + 12 + length <= len(log)
        assert google_crc32c.value(log[at + 21 : at + 12 + length]) == crc
        yield base_offset, base_offset + last_delta
        at += 12 + length


@pytest.mark.parametrize("name", NAMES)
def test_every_segments_log_is_whole_record_batches_from_its_base_to_its_end_offset(name: str) -> None:
    assert len(segments(name)) == golden(name).manifest["objects"][".log"]
    for segment in segments(name):
        log = fetcher(name).fetch_log_segment(segment, 0)
        assert len(log) == segment.size
        offsets = list(batches(log))
        assert offsets[0][0] >= segment.base_offset
        assert offsets[-1][1] == segment.end_offset
        assert all(last < base for (_, last), (base, _) in pairwise(offsets))


@pytest.mark.parametrize("name", NAMES)
def test_every_segments_indexes_parse(name: str) -> None:
    with_transactions = 0
    for segment in segments(name):
        indexes = fetcher(name).fetch_indexes(segment, list(IndexType))
        parse_offset_index(indexes[IndexType.OFFSET], segment.base_offset, segment.size)
        parse_time_index(indexes[IndexType.TIMESTAMP], segment.base_offset)
        epochs = [epoch for epoch, _ in parse_leader_epoch_checkpoint(indexes[IndexType.LEADER_EPOCH])]
        assert epochs[-len(segment.leader_epochs) :] == [entry.epoch for entry in segment.leader_epochs]
        open_transactions(indexes[IndexType.PRODUCER_SNAPSHOT])
        assert (IndexType.TRANSACTION in indexes) is not segment.transaction_index_empty
        if IndexType.TRANSACTION in indexes:
            with_transactions += len(parse_transaction_index(indexes[IndexType.TRANSACTION], segment.base_offset)) > 0
    assert with_transactions > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_objects_keys_are_the_plugins(name: str) -> None:
    for key, manifest in manifests(name).items():
        assert manifest.segment is not None
        assert main_path(manifest.segment) == key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "start,end",
    [(0, 1), (CHUNK - 1, CHUNK + 1), (CHUNK, 2 * CHUNK), (5, 3_000_000), (2 * CHUNK + 7, -1), (3 * CHUNK, 3 * CHUNK)],
)
def test_any_range_is_that_part_of_the_log(name: str, start: int, end: int) -> None:
    segment = big_segment(name)
    if start == end:
        start = end = segment.size
    log = fetcher(name).fetch_log_segment(segment, 0)
    part = fetcher(name).fetch_log_segment(segment, start, end)
    assert part == log[start : segment.size if end == -1 else end]


@pytest.mark.stack
@pytest.mark.parametrize("name", NAMES)
def test_the_same_comes_through_s3(name: str, s3proxy: S3Proxy, tmp_path_factory: pytest.TempPathFactory) -> None:
    segment = big_segment(name)
    copied(name, segment, s3proxy.base_dir / name)
    through_s3 = open_fetcher(s3_options(s3proxy, f"s3://{name}", layout="aiven", rsm_config=options(name).rsm_config))
    assert through_s3.fetch_log_segment(segment, 0) == fetcher(name).fetch_log_segment(segment, 0)
    types = list(IndexType)
    assert through_s3.fetch_indexes(segment, types) == fetcher(name).fetch_indexes(segment, types)


@pytest.mark.parametrize(
    "wanted,request_bytes,ends",
    [
        (ByteRange(0, 3 * CHUNK - 1), CHUNK, [CHUNK, 3 * CHUNK - 1]),
        (ByteRange(0, 2 * CHUNK), CHUNK, [CHUNK, 2 * CHUNK]),
        (ByteRange(5, 2 * CHUNK + 5), CHUNK, [CHUNK, 2 * CHUNK + 5]),
        (ByteRange(CHUNK - 1, 2 * CHUNK + 7), 8, [CHUNK, 2 * CHUNK + 7]),
        (ByteRange(5, 3 * CHUNK - 5), CHUNK + 1, [3 * CHUNK - 5]),
        (ByteRange(CHUNK + 5, CHUNK + 6), CHUNK, [CHUNK + 6]),
        (ByteRange(7, 7), CHUNK, []),
    ],
)
def test_requests_for_transformed_segments_end_at_chunk_ends(
    wanted: ByteRange, request_bytes: int, ends: list[int]
) -> None:
    ranges = fetcher(TRANSFORMED).request_ranges(big_segment(TRANSFORMED), wanted, request_bytes)
    assert [each.end for each in ranges] == ends
    assert [each.start for each in ranges] == [wanted.start, *ends][: len(ends)]


def test_requests_for_untransformed_segments_are_cut_anywhere() -> None:
    ranges = fetcher(PLAIN).request_ranges(big_segment(PLAIN), ByteRange(3, 30), 10)
    assert ranges == [ByteRange(3, 13), ByteRange(13, 30)]


class CountingStore(FileStore):
    """A folder's store that keeps the requests."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gets: list[tuple[str, ByteRange | None]] = []

    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        self.gets.append((key.rpartition(".")[2], None if isinstance(wanted, Limit) else wanted))
        return super().get(key, wanted)


def counted(bucket: Path, name: str = TRANSFORMED) -> tuple[CountingStore, RemoteLogSegment]:
    store = CountingStore(bucket)
    fetcher(name, bucket).store = store  # type: ignore[attr-defined]
    return store, big_segment(name)


def test_several_chunks_are_one_request_and_so_are_all_indexes(bucket: Path) -> None:
    store, segment = counted(bucket)
    fetcher(TRANSFORMED, bucket).fetch_log_segment(segment, CHUNK, 3 * CHUNK - 10_000)
    fetcher(TRANSFORMED, bucket).fetch_indexes(segment, list(IndexType))
    assert store.gets == [
        ("rsm-manifest", None),
        ("log", ByteRange(41_090, 122_821)),
        ("indexes", ByteRange(0, 7_996)),
    ]


def test_a_transaction_index_said_to_be_empty_asks_nothing(bucket: Path) -> None:
    store, segment = counted(bucket)
    assert segment.transaction_index_empty
    assert fetcher(TRANSFORMED, bucket).fetch_indexes(segment, [IndexType.TRANSACTION]) == {}
    assert store.gets == []
    unsure = replace(segment, transaction_index_empty=False)
    assert fetcher(TRANSFORMED, bucket).fetch_indexes(unsure, [IndexType.TRANSACTION]) == {}
    assert store.gets == [("rsm-manifest", None)]


def test_custom_metadata_goes_before_prefix_and_ids(tmp_path: Path) -> None:
    segment = big_segment(PLAIN)
    source = golden(PLAIN).bucket / "plain" / main_path(segment)
    (tmp_path / "moved").mkdir()
    for suffix in (".log", ".rsm-manifest"):
        shutil.copy(source.with_suffix(suffix), tmp_path / f"moved/here{suffix}")
    with pytest.raises(StorageObjectNotFoundError, match="plain/s32-big"):
        fetcher(PLAIN, tmp_path).fetch_log_segment(segment, 0, 10)
    # two fields: 1, the prefix, "moved/"; 2, the key, "here"
    elsewhere = replace(segment, custom_metadata=b"\2\1\7\7moved/\2\5\5here")
    assert len(fetcher(PLAIN, tmp_path).fetch_log_segment(elsewhere, 0, 10)) == 10


def test_chunks_that_are_compressed_but_not_encrypted_come_out_whole(tmp_path: Path) -> None:
    segment = big_segment(PLAIN)
    (path,) = copied(PLAIN, segment, tmp_path).rglob("*.log")
    log = path.read_bytes()
    frames = [bytes(cramjam.zstd.compress(log[at : at + CHUNK])) for at in range(0, len(log), CHUNK)]
    path.write_bytes(b"".join(frames))
    # 3 sizes, base 0, 4 bytes each
    packed = struct.pack(">iib3i", 3, 0, 4, *map(len, frames))
    packed_text = b64encode(bytes(cramjam.zstd.compress(packed))).decode()
    rewritten(tmp_path, {"compression": True, "chunkIndex": {"type": "variable", "transformedChunks": packed_text}})
    assert fetcher(PLAIN, tmp_path).fetch_log_segment(segment, 0) == log

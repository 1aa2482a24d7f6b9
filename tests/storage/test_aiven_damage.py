"""Whatever happens to the objects that the Aiven plugin wrote: the error says which of them, and what is wrong."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest

from tests.archives import PLAIN, TRANSFORMED
from tests.golden import NAMES
from tests.storage.golden_aiven import big_segment, copied, fetcher, rewritten, segments
from tiered_stream.errors import CorruptDataError, DataLimitError, StorageObjectNotFoundError
from tiered_stream.storage.fetcher import IndexType

CHUNK = 1 << 20


def damaged(bucket: Path, suffix: str, position: int) -> None:
    """Flip one bit of the one object with this suffix."""
    (path,) = bucket.rglob(f"*{suffix}")
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("position", [0, 11, 12, 20_000, 41_089])
def test_a_flipped_bit_in_an_encrypted_chunk_names_chunk_and_object(bucket: Path, position: int) -> None:
    damaged(bucket, ".log", position)
    opened, segment = fetcher(TRANSFORMED, bucket), big_segment(TRANSFORMED)
    with pytest.raises(CorruptDataError, match=r"chunk 0 of file:.*\.log .*decrypt"):
        opened.fetch_log_segment(segment, 0)
    assert len(opened.fetch_log_segment(segment, CHUNK)) == segment.size - CHUNK


def test_a_flipped_bit_in_an_encrypted_index_names_index_and_object(bucket: Path) -> None:
    damaged(bucket, ".indexes", 4000)
    opened, segment = fetcher(TRANSFORMED, bucket), big_segment(TRANSFORMED)
    with pytest.raises(CorruptDataError, match=r"TIMESTAMP index in file:.*\.indexes .*decrypt"):
        opened.fetch_indexes(segment, list(IndexType))
    assert len(opened.fetch_indexes(segment, [IndexType.OFFSET])[IndexType.OFFSET]) == 3128


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
@pytest.mark.parametrize("left", [0.0, 0.2, 0.7, 0.99])
def test_a_truncated_object_is_named(tmp_path: Path, name: str, suffix: str, left: float) -> None:
    segment = big_segment(name)
    (path,) = copied(name, segment, tmp_path).rglob(f"*{suffix}")
    path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    with pytest.raises(CorruptDataError, match=re.escape(str(path))):
        if suffix == ".indexes":
            fetcher(name, tmp_path).fetch_indexes(segment, list(IndexType))
        else:
            fetcher(name, tmp_path).fetch_log_segment(segment, 0)


def test_a_missing_manifest_is_named(bucket: Path) -> None:
    next(bucket.rglob("*.rsm-manifest")).unlink()
    with pytest.raises(StorageObjectNotFoundError, match="rsm-manifest "):
        fetcher(TRANSFORMED, bucket).fetch_log_segment(big_segment(TRANSFORMED), 0)


def test_a_manifest_of_another_size_is_refused(bucket: Path) -> None:
    segment = big_segment(TRANSFORMED)
    with pytest.raises(CorruptDataError, match=r"rsm-manifest .*3138913 .*3138914"):
        fetcher(TRANSFORMED, bucket).fetch_log_segment(replace(segment, size=segment.size + 1), 0)


def test_a_manifest_of_another_segment_is_refused(bucket: Path) -> None:
    (path,) = bucket.rglob("*.rsm-manifest")
    shutil.move(path, bucket / "moved.rsm-manifest")
    # two fields: 1, the prefix, empty; 2, the key, "moved"
    other = replace(segments(TRANSFORMED)[0], custom_metadata=b"\2\1\1\1\2\6\6moved")
    with pytest.raises(CorruptDataError, match=r"moved\.rsm-manifest .*segment"):
        fetcher(TRANSFORMED, bucket).fetch_log_segment(other, 0)


def test_a_range_beyond_the_log_is_refused(bucket: Path) -> None:
    segment = big_segment(TRANSFORMED)
    with pytest.raises(CorruptDataError, match=r"\.log .*3138913"):
        fetcher(TRANSFORMED, bucket).fetch_log_segment(segment, 0, segment.size + 1)


@pytest.mark.parametrize(
    "size,message", [(CHUNK - 1, "has 1048575 bytes of log"), (CHUNK + 1, "does not have the 1048576")]
)
def test_a_chunk_that_unpacks_to_another_size_is_refused(tmp_path: Path, size: int, message: str) -> None:
    segment = big_segment(PLAIN)
    (path,) = copied(PLAIN, segment, tmp_path).rglob("*.log")
    frame = bytes(cramjam.zstd.compress(bytes(size)))
    path.write_bytes(frame * 3)
    sizes = {"transformedChunkSize": len(frame), "finalTransformedChunkSize": len(frame)}
    rewritten(tmp_path, {"compression": True, "chunkIndex": sizes})
    with pytest.raises(CorruptDataError, match=rf"chunk 0 of file://.*\.log {message}"):
        fetcher(PLAIN, tmp_path).fetch_log_segment(segment, 0, 10)


def test_a_chunk_that_says_it_is_large_is_refused_before_any_memory_is_taken(tmp_path: Path) -> None:
    segment = replace(big_segment(PLAIN), size=1900 << 20)
    frame = bytes(cramjam.zstd.compress(bytes(10)))
    (path,) = copied(PLAIN, big_segment(PLAIN), tmp_path).rglob("*.log")
    path.write_bytes(frame)
    sizes = {"transformedChunkSize": len(frame), "finalTransformedChunkSize": len(frame)}
    chunk_index = sizes | {"originalChunkSize": segment.size, "originalFileSize": segment.size}
    rewritten(tmp_path, {"compression": True, "chunkIndex": chunk_index})
    with pytest.raises(DataLimitError, match=r"rsm-manifest .*1992294400, .*remote\.max\.chunk\.bytes"):
        fetcher(PLAIN, tmp_path).fetch_log_segment(segment, 0, 10)


def test_a_chunk_that_is_no_zstd_frame_is_refused(tmp_path: Path) -> None:
    segment = big_segment(PLAIN)
    rewritten(copied(PLAIN, segment, tmp_path), {"compression": True})
    with pytest.raises(CorruptDataError, match=r"chunk 1 of file://.*\.log .*1048576"):
        fetcher(PLAIN, tmp_path).fetch_log_segment(segment, CHUNK, CHUNK + 10)

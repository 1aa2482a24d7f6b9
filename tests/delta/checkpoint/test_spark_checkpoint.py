"""A checkpoint's files, read without Spark: both versions of the offset log, damage, and what is too large."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.delta.folder_in_memory import FolderInMemory
from tiered_stream.delta.checkpoint.folder_without_spark import StoredFolder
from tiered_stream.delta.checkpoint.spark_checkpoint import MAX_FILE_BYTES, SparkCheckpoint, batch_ends
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.model import TopicPartition

SETTINGS = b'{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def offsets_file(version: str, *lines: str) -> bytes:
    return b"\n".join((version.encode(), SETTINGS, *map(str.encode, lines)))


@pytest.mark.parametrize(
    "text",
    [
        offsets_file("v1", '{"orders":{"0":7,"1":2}}', '{"logOffset":3}', "-", '{"orders":{"0":5}}', "17"),
        offsets_file(
            "v2", '3:{"orders":{"0":5}}', '1:{"logOffset":3}', "2:-", '0:{"orders":{"0":7,"1":2}}', "rate_1:17"
        ),
        offsets_file("v2", 'a:{"orders":{"0":7}}', '1:{"a\u2028b":3}', 'b:{"orders":{"0":5,"1":2}}'),
    ],
)
def test_both_versions_of_the_offset_log_give_the_offsets_that_are_behind(text: bytes) -> None:
    assert batch_ends(text).positions == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 2}


def test_a_sources_id_is_its_name_in_version_2_and_its_position_in_version_1() -> None:
    text = '{"orders":{"0":7}}'
    named = batch_ends(offsets_file("v2", f"orders_eu:{text}", "1:-"))
    assert (named.by_source, named.has_ids) == ({"orders_eu": text, "1": None}, True)
    placed = batch_ends(offsets_file("v1", "-", text))
    assert (placed.by_source, placed.has_ids) == ({"0": None, "1": text}, False)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (offsets_file("v3", "{}"), UnsupportedDataError, "'v3'"),
        (b"", CorruptDataError, "version"),
        (b"\x00" * 80, CorruptDataError, "version"),
        (b"v1", CorruptDataError, "offsets"),
        (offsets_file("v1", '{"orders":{"0":'), CorruptDataError, "offset of a source"),
        (offsets_file("v1", "[" * 100_000), CorruptDataError, "offset of a source"),
        (offsets_file("v2", '{"orders"'), CorruptDataError, "line"),
        (offsets_file("v2", '{"orders":{"0":7}}'), CorruptDataError, "offset of a source"),
        (offsets_file("v2") + b'\n\xff:{"orders":{"0":7}}', CorruptDataError, "cannot be read"),
    ],
)
def test_a_file_that_is_damaged_or_of_another_version_is_an_error_that_names_it(
    text: bytes, kind: type[Exception], said: str
) -> None:
    folder = FolderInMemory()
    folder.files["offsets/4"] = text
    with pytest.raises(kind, match=re.escape("the checkpoint memory, offsets/4: ") + ".*" + re.escape(said)):
        SparkCheckpoint(folder).ends(4)


def test_only_names_that_spark_takes_for_micro_batches_count() -> None:
    folder = FolderInMemory()
    checkpoint = SparkCheckpoint(folder)
    assert (checkpoint.last_committed(), checkpoint.last_planned(), checkpoint.ends(0)) == (None, None, None)
    for name in ("2", "11", ".12.crc", "13.tmp", "٩٩", "9" * 40):
        folder.files[f"commits/{name}"] = folder.files[f"offsets/{name}"] = b"v1\n{}"
    folder.files["offsets/12"] = b"v1\n{}"
    assert (checkpoint.last_committed(), checkpoint.last_planned()) == (11, 12)


def test_the_querys_id_is_read_and_damage_is_an_error() -> None:
    folder = FolderInMemory()
    assert SparkCheckpoint(folder).query_id() is None
    folder.files["metadata"] = b'{"id":"749de35d"}'
    assert SparkCheckpoint(folder).query_id() == "749de35d"
    for text in (b"", b"[1]", b"{}", b'{"id":7}', b'{"id":"7'):
        folder.files["metadata"] = text
        with pytest.raises(CorruptDataError, match="checkpoint memory, metadata: "):
            SparkCheckpoint(folder).query_id()


def test_a_file_beyond_the_bound_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with (tmp_path / "offsets" / "7").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    (tmp_path / "offsets" / "8").mkdir()
    folder = StoredFolder("c", tmp_path.as_uri(), TableStorage())
    with pytest.raises(CorruptDataError, match="checkpoint c, offsets/7: .*64 MiB"):
        SparkCheckpoint(folder).ends(7)
    with pytest.raises(CorruptDataError, match="checkpoint c, offsets/8: .*file"):
        SparkCheckpoint(folder).ends(8)
    assert folder.read("offsets/9") is None and folder.entries("commits") == []

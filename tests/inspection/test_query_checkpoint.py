"""Checkpoints as Spark writes them, and folders that are none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.rigs.stack.hdfs import Hdfs
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.inspection.lag_report import committed_batch
from tiered_stream.model import TopicPartition
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def write_checkpoint(folder: Path, committed: int, source: str) -> Path:
    """With one batch more that is planned, and not committed."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number in range(committed + 2):
        line = source if number == committed else "-"
        (folder / "offsets" / str(number)).write_text("\n".join(("v1", METADATA, line)))
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(committed + 1):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def test_the_last_committed_batch_counts_and_not_one_that_is_only_planned(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c p", 11, '{"orders":{"0":7,"1":0}}')
    for name in (str(folder), f"file://{folder}"):
        found = committed_batch(name, TableStorage())
        assert found.batch_id == 11
        assert found.offsets == {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 0}


def test_a_path_without_a_scheme_is_in_the_default_file_system(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf_dir))
    folder = write_checkpoint(tmp_path / "c", 0, '{"orders":{"0":7}}')
    store = open_store(StorageOptions(uri=f"{hdfs.uri}/checkpoints"))
    for file in folder.glob("*/*"):
        store.put(f"{file.relative_to(tmp_path)}", file.read_bytes())
    shutil.rmtree(folder)
    assert committed_batch("/checkpoints/c", TableStorage()).offsets == {TopicPartition("orders", 0): 7}


@pytest.mark.parametrize("source", ['{"logOffset":3}', '{"orders":{"0":-5}}'])
def test_what_is_not_a_topics_query_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(ConfigurationError, match="reads no Kafka topic"):
        committed_batch(str(write_checkpoint(tmp_path / "c", 0, source)), TableStorage())


def test_a_commit_without_its_offsets_is_corrupt(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", 2, '{"orders":{"0":7}}')
    (folder / "offsets" / "2").unlink()
    with pytest.raises(CorruptDataError, match="offsets/2 is missing"):
        committed_batch(str(folder), TableStorage())


@pytest.mark.parametrize("name", ["nowhere", "ftp://nn/c"])
def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    where = name if "://" in name else str(tmp_path / name)
    with pytest.raises(ConfigurationError, match=where):
        committed_batch(where, TableStorage())

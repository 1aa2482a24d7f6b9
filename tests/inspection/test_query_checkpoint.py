"""Checkpoints as Spark writes them, and folders that are none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.rigs.stack.hdfs import Hdfs
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    StorageError,
    TieredStreamError,
    UnsupportedDataError,
)
from tiered_stream.inspection.lag_report import committed_batch
from tiered_stream.model import TopicPartition
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def write_checkpoint(folder: Path, committed: int, *sources: str, version: str = "v1") -> Path:
    """With one batch more that is planned, and not committed."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number in range(committed + 2):
        lines = sources if number == committed else ["-" for _ in sources]
        (folder / "offsets" / str(number)).write_text("\n".join((version, METADATA, *lines)))
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


def test_sources_that_read_no_topics_are_passed_over_and_of_two_that_do_the_one_behind_counts(tmp_path: Path) -> None:
    sources = '{"logOffset":3}', '{"orders":{"0":7}}', "-", '{"orders":{"0":5,"1":2}}', "17"
    found = committed_batch(str(write_checkpoint(tmp_path / "c", 0, *sources)), TableStorage())
    assert found.offsets == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 2}


@pytest.mark.parametrize(
    ("sources", "version", "kind", "said"),
    [
        (('{"logOffset":3}',), "v1", ConfigurationError, "reads no Kafka topic"),
        (('{"orders":{"0":-5}}',), "v1", ConfigurationError, "reads no Kafka topic"),
        ((), "v9", UnsupportedDataError, "offsets/0: its version is 'v9'"),
    ],
)
def test_what_is_not_a_topics_query_or_not_of_this_spark_is_refused(
    tmp_path: Path, sources: tuple[str, ...], version: str, kind: type[TieredStreamError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        committed_batch(str(write_checkpoint(tmp_path / "c", 0, *sources, version=version)), TableStorage())


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


def test_a_checkpoint_in_s3_is_read_as_well_and_a_refusal_is_said(lake: VersityGateway) -> None:
    lake.client().create_bucket(Bucket="lake")
    write_checkpoint(lake.base_dir / "lake" / "checkpoints" / "orders", 3, '{"orders":{"0":7}}')
    storage = TableStorage(lake.endpoint, REGION, True, lake.access_key, lake.secret_key)
    found = committed_batch("s3a://lake/checkpoints/orders", storage)
    assert (found.batch_id, found.offsets) == (3, {TopicPartition("orders", 0): 7})
    with pytest.raises(ConfigurationError, match="no micro-batch is committed"):
        committed_batch("s3a://lake/checkpoints/other", storage)
    with pytest.raises(StorageError, match="s3a://lake/checkpoints/orders cannot be read"):
        committed_batch("s3a://lake/checkpoints/orders", TableStorage(lake.endpoint, REGION, True, "nobody", "wrong"))

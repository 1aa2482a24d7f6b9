"""Folders in Azure's and Google's storage, as file systems of pyarrow."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delta.clouds import Cloud
from tests.delta.committing import put
from tiered_stream.delta.checkpoint.folder_without_spark import StoredFolder
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_folder import UploadThreads
from tiered_stream.delta.write.file_systems import open_folder
from tiered_stream.delta.write.table_writer import open_data_folder
from tiered_stream.errors import CorruptDataError


@pytest.fixture
def files(cloud: Cloud, tmp_path: Path) -> TableSpec:
    return cloud.files("contract", f"folders/{tmp_path.name}")


def fill(files: TableSpec, objects: dict[str, bytes]) -> None:
    folder = open_data_folder(files, UploadThreads())
    put(folder, objects)
    folder.wait()
    folder.close()


def test_a_checkpoint_is_read_as_in_a_local_folder(files: TableSpec) -> None:
    fill(files, {"metadata": b"{}", "offsets/0": b"zero", "offsets/1": b"one", "commits/0": b""})
    folder = StoredFolder("the checkpoint", files.uri, files.storage)
    assert sorted(folder.entries()) == ["commits", "metadata", "offsets"]
    assert sorted(folder.entries("offsets")) == ["0", "1"]
    assert folder.entries("sources") == []
    assert folder.read("offsets/1") == b"one" and folder.read("commits/0") == b""
    assert folder.read("offsets/2") is None
    with pytest.raises(CorruptDataError, match="offsets: .*file"):
        folder.read("offsets")


def test_the_footer_of_a_parquet_file_is_read_by_ranges(files: TableSpec) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": range(1000)}), file)
    fill(files, {"part-0": file.getvalue()})
    folder = open_folder(files.uri, files.storage)
    assert pq.read_metadata("part-0", filesystem=folder).num_rows == 1000
    with pytest.raises(FileNotFoundError, match="part-1 "):
        pq.read_metadata("part-1", filesystem=folder)
    with pytest.raises(NotImplementedError, match="read-only"):
        folder.delete_file("part-0")


def test_a_missing_place_is_an_os_error(cloud: Cloud) -> None:
    files = cloud.files("no-such-place", "t")
    with pytest.raises(OSError, match="no-such-place"):
        StoredFolder("the checkpoint", files.uri, files.storage).entries()

"""A table's folder: where its path leads, and how tasks write to it on the local disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.address import path_uri
from tiered_stream.delta.settings.ingest_settings import TableFiles
from tiered_stream.delta.write import data_folders
from tiered_stream.delta.write.data_folders import open_data_folder
from tiered_stream.delta.write.file_systems import local_uri, normal_path, uri_of
from tiered_stream.delta.write.upload_threads import UploadThreads
from tiered_stream.errors import ConfigurationError


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the page cache was told to drop."""
    asked: list[tuple[int, int]] = []

    def fadvise(file: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        asked.append((offset, length))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    monkeypatch.setattr(data_folders, "_CACHED_BYTES", 100)
    return asked


def grow(folder: Path, times: int) -> None:
    """A file that grows by 60 bytes each time."""
    files = open_data_folder(TableFiles(folder.as_uri()), UploadThreads())
    file = files.open("a.parquet")
    for _ in range(times):
        file.write(bytes(60))
        files.grown(file)
    files.finish("a.parquet", file)
    assert (folder / "a.parquet").read_bytes() == bytes(60 * times)


def test_the_page_cache_keeps_the_end_of_a_large_file_alone(tmp_path: Path, dropped: list[tuple[int, int]]) -> None:
    grow(tmp_path, 3)
    assert dropped == [(0, 20), (0, 80)]


def test_a_small_file_is_left_to_the_kernel(tmp_path: Path, dropped: list[tuple[int, int]]) -> None:
    grow(tmp_path, 1)
    assert dropped == []


def test_a_disk_that_cannot_keep_up_is_left_to_the_kernel(
    tmp_path: Path, dropped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([0, 1, 1, 2, 3, 10, 11])  # the task begins; too small; takes a second; a third of all; a tenth
    monkeypatch.setattr(data_folders, "perf_counter", lambda: next(seconds))
    grow(tmp_path, 4)
    assert dropped == [(0, 20), (0, 140)]


def test_a_file_system_that_takes_no_advice_is_written_to_as_any_other(
    tmp_path: Path, dropped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: int) -> None:
        raise OSError("Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    grow(tmp_path, 3)


def test_a_file_whose_pages_are_dropped_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folders, "_CACHED_BYTES", 100)
    grow(tmp_path, 3)


HADOOPS = {
    "s3a://lake/a/./t": "s3a://lake/a/t",
    "s3a://lake/x/../t": "s3a://lake/t",
    "s3a://lake/a/x/y/../../t/": "s3a://lake/a/t",
    "s3a://lake/.": "s3a://lake/",
    "s3a://lake/./a//t": "s3a://lake/a/t",
    "hdfs://name:8020/a/./t": "hdfs://name:8020/a/t",
    "file:/x/../a b/t": "file:/a b/t",
    "/x/../a/./t": "/a/t",
    "/a/.../.t/t.": "/a/.../.t/t.",
    "/a/%2e%2e/t": "/a/%2e%2e/t",
}


@pytest.mark.parametrize(("path", "normal"), HADOOPS.items())
def test_a_path_has_no_dots_left_and_no_other_name_than_it_had(path: str, normal: str) -> None:
    assert normal_path(path) == normal
    assert normal_path(normal) == normal


def test_hadoop_takes_each_path_and_its_normal_form_for_one(spark: SparkSession) -> None:
    java: Any = spark._jvm
    for path, normal in HADOOPS.items():
        one, other = (java.org.apache.hadoop.fs.Path(each).toString() for each in (path, normal))
        assert one == other, path


@pytest.mark.parametrize("path", ["s3a://lake/a//t/", "s3://lake/a", "/a//t/", "a/../t", "../t", "lake.orders"])
def test_a_path_without_dots_or_a_relative_one_is_left_as_it_is(path: str) -> None:
    assert normal_path(path) == path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("s3a://lake/../t", "it leads above its root"),
        ("/x/../../t", "it leads above its root"),
        ("s3a://lake/a/%2E./t", "libraries read %2E. in it in different ways"),
    ],
)
def test_a_path_that_readers_would_take_differently_is_refused(path: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"the path {path}: {why}")):
        normal_path(path)


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(ConfigurationError, match="the path s3a://lake/../t:") as caught:
        uri_of("s3a://me:hunter2@lake/../t")
    assert "hunter2" not in str(caught.value)


def test_uris_are_of_the_normal_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert uri_of("s3a://lake/x/../t") == uri_of("s3://lake/./t/") == "s3://lake/t"
    assert uri_of(f"file://{tmp_path}/x/../t") == local_uri("x/.././t") == f"{tmp_path.as_uri()}/t"
    assert path_uri("x/../t", lambda: "hdfs://name:8020/") == "hdfs://name:8020/t"


def test_parent_of_a_symbolic_link_is_by_its_name(tmp_path: Path) -> None:
    """As Spark has it, which does not ask the file system."""
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "folder")
    assert local_uri(f"{tmp_path}/link/../t") == f"{tmp_path.as_uri()}/t"

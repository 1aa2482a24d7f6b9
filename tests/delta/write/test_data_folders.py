"""How tasks write to a table's folder on the local disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write import data_folder
from tiered_stream.delta.write.data_folder import UploadThreads
from tiered_stream.delta.write.table_writer import open_data_folder


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the page cache was told to drop."""
    asked: list[tuple[int, int]] = []

    def fadvise(file: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        asked.append((offset, length))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    monkeypatch.setattr(data_folder, "_CACHED_BYTES", 100)
    return asked


def grow(folder: Path, times: int) -> None:
    """A file that grows by 60 bytes each time."""
    files = open_data_folder(TableSpec(folder.as_uri()), UploadThreads())
    file = files.open("a.parquet")
    for _ in range(times):
        file.write(bytes(60))
        files.grown(file)
    files.finish("a.parquet", file)
    assert (folder / "a.parquet").read_bytes() == bytes(60 * times)


def test_the_page_cache_keeps_the_end_of_a_large_file_alone(
    tmp_path: Path, dropped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder, "perf_counter", lambda: 0.0)  # a disk that keeps up, however busy it is
    grow(tmp_path, 3)
    assert dropped == [(0, 20), (0, 80)]


def test_a_small_file_is_left_to_the_kernel(tmp_path: Path, dropped: list[tuple[int, int]]) -> None:
    grow(tmp_path, 1)
    assert dropped == []


def test_a_disk_that_cannot_keep_up_is_left_to_the_kernel(
    tmp_path: Path, dropped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([0, 1, 1, 2, 3, 10, 11])  # the task begins; too small; takes a second; a third of all; a tenth
    monkeypatch.setattr(data_folder, "perf_counter", lambda: next(seconds))
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
    monkeypatch.setattr(data_folder, "_CACHED_BYTES", 100)
    grow(tmp_path, 3)

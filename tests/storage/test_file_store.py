from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiered_stream.errors import StorageAccessError, StorageError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.storage.file_store import FileStore


@pytest.mark.parametrize("key", ["../secret", "a/../../secret", "/etc/passwd", "link/secret"])
def test_a_key_that_leads_out_of_the_folder_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    for call in (FileStore(root).get, FileStore(root).size, lambda key: list(FileStore(root).list(key + "/"))):
        with pytest.raises(StorageAccessError, match="leads out of the folder"):
            call(key)


def test_a_missing_folder_names_the_option(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "nowhere")
    for call in (lambda: store.get("a"), lambda: list(store.list(""))):
        with pytest.raises(StorageObjectNotFoundError, match=r"nowhere \(option remote.storage.uri\)"):
            call()


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageObjectNotFoundError, match="/a does not exist"):
        FileStore(tmp_path).get("a")


def test_a_key_no_path_can_have_is_our_error(tmp_path: Path) -> None:
    for key in ("a\0b", "x" * 5000):
        with pytest.raises(StorageError):
            FileStore(tmp_path).get(key)


def test_a_fifo_does_not_hold_the_reader_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Exception, match="fifo"):
        FileStore(tmp_path).get("fifo", ByteRange(0, 1))

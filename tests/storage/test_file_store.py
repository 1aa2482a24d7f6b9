from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiered_stream.data_limits import DEFAULT_LIMITS, Limit
from tiered_stream.errors import StorageAccessError, StorageError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.storage.file_store import FileStore

LIMIT = DEFAULT_LIMITS.index


@pytest.mark.parametrize("key", ["../secret", "a/../../secret", "/etc/passwd", "link/secret"])
def test_a_key_that_leads_out_of_the_folder_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    for call in (
        lambda key: FileStore(root).get(key, LIMIT),
        FileStore(root).size,
        lambda key: list(FileStore(root).list(key + "/")),
    ):
        with pytest.raises(StorageAccessError, match="out of the folder"):
            call(key)


def test_a_missing_folder_names_the_option(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "nowhere")
    for call in (lambda: store.get("a", LIMIT), lambda: list(store.list(""))):
        with pytest.raises(StorageObjectNotFoundError, match=r"nowhere \(option remote.storage.uri\)"):
            call()


def test_only_folders_with_the_prefix_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("in/a-0/x", "in/a-0/deep/x", "in/a-1", "in/b-0/a-0", "out/a-0/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    seen: list[str] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: seen.append(Path(path).name) or scan(path))
    assert list(FileStore(tmp_path).list("in/a-")) == ["in/a-0/deep/x", "in/a-0/x", "in/a-1"]
    assert seen == ["in", "a-0", "deep"]


def test_keys_are_in_ascending_order_and_continue_after_a_key(tmp_path: Path) -> None:
    keys = ["a-b/1", "a.log", "a/1", "a/b-c/1", "a/b/1", "a0"]
    for key in keys:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_text("")
    (tmp_path / "a" / "to a folder").symlink_to(tmp_path / "a-b")
    assert keys == sorted(keys)
    for number in range(len(keys) + 1):
        assert list(FileStore(tmp_path).list("a", after=(["", *keys])[number])) == keys[number:]


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageObjectNotFoundError, match="/a "):
        FileStore(tmp_path).get("a", LIMIT)


def test_a_key_no_path_can_have_is_our_error(tmp_path: Path) -> None:
    for key in ("a\0b", "x" * 5000):
        with pytest.raises(StorageError):
            FileStore(tmp_path).get(key, LIMIT)


def test_a_fifo_does_not_hold_the_reader_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Exception, match="fifo"):
        FileStore(tmp_path).get("fifo", ByteRange(0, 1))


def test_before_each_request_a_function_is_called_that_may_wait(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"content")
    store, waited = FileStore(tmp_path), list[None]()
    store.before_request = lambda: waited.append(None)
    assert store.get("key", ByteRange(0, 3)) == b"con" and store.size("key") == 7
    assert store.get("key", Limit("x", 100)) == b"content" and list(store.list("k")) == ["key"]
    assert len(waited) == 4
    assert store.describe("key") and store.signed_url("key", 1) is None and not store.slow_down_responses()
    assert len(waited) == 4

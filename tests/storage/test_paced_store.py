from __future__ import annotations

from pathlib import Path
from threading import Thread

from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.paced_store import PacedStore


def test_each_request_to_the_store_waits_for_its_turn(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"content")
    waited: list[None] = []
    store = PacedStore(FileStore(tmp_path), lambda: waited.append(None))
    assert store.get("key", ByteRange(0, 3)) == b"con" and store.size("key") == 7
    assert store.get("key", Limit("x", 100)) == b"content" and list(store.list("k")) == ["key"]
    assert len(waited) == store.requests_made() == 4
    assert store.describe("key") and store.signed_url("key", 1) is None and not store.busy_answers()
    store.close()
    assert len(waited) == 4


def test_each_thread_counts_its_own_requests(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"content")
    store = PacedStore(FileStore(tmp_path), lambda: None)
    counts: list[int] = []

    def ask(times: int) -> None:
        for _ in range(times):
            store.size("key")
        counts.append(store.requests_made())

    for times in (2, 3):
        thread = Thread(target=ask, args=(times,))
        thread.start()
        thread.join()
    assert (counts, store.requests_made()) == ([2, 3], 0)

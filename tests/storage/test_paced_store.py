from __future__ import annotations

from pathlib import Path

from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.paced_store import PacedStore, RequestPace


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 50.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_no_second_has_more_requests_than_the_rate_however_long_none_came() -> None:
    clock = Clock()
    pace = RequestPace(100, lambda: clock.now, clock.sleep)
    made = []
    for _ in range(3):
        for _ in range(150):
            pace.wait()
            made.append(clock.now)
        clock.sleep(30)
    assert all(after - before > 0.99 for before, after in zip(made, made[100:], strict=False))
    assert made[149] < 50 + 1.5, "and not many fewer"
    assert pace.made() == 450


def test_each_request_to_the_store_waits_for_its_turn(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"content")
    waited: list[None] = []
    store = PacedStore(FileStore(tmp_path), lambda: waited.append(None))
    assert store.get("key", ByteRange(0, 3)) == b"con" and store.size("key") == 7
    assert store.get("key", Limit("x", 100)) == b"content" and list(store.list("k")) == ["key"]
    assert len(waited) == 4
    assert store.describe("key") and store.signed_url("key", 1) is None and not store.busy_answers()
    store.close()
    assert len(waited) == 4

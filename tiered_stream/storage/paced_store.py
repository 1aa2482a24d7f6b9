"""Object store that waits before each request, so that all threads together do not exceed a rate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.storage.object_store import ObjectStore


class PacedStore(ObjectStore):
    """Object store that calls `wait` before each `get`, `size` and `list` of the store `store`.

    Raises: the errors of `store`.
    """

    def __init__(self, store: ObjectStore, wait: Callable[[], object]) -> None:
        self._store = store
        self._wait = wait
        self._thread = threading.local()

    def requests_made(self) -> int:
        """Return how many calls of `get`, `size` and `list` the calling thread has made so far."""
        return getattr(self._thread, "requests", 0)

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        self._wait_and_count()
        return self._store.get(key, extent)

    def size(self, key: str) -> int:
        self._wait_and_count()
        return self._store.size(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        self._wait_and_count()
        return self._store.list(prefix, after)

    def describe(self, key: str) -> str:
        return self._store.describe(key)

    def signed_url(self, key: str, seconds: int) -> str | None:
        return self._store.signed_url(key, seconds)

    def busy_answers(self) -> int:
        return self._store.busy_answers()

    def close(self) -> None:
        self._store.close()

    def _wait_and_count(self) -> None:
        self._thread.requests = self.requests_made() + 1
        self._wait()

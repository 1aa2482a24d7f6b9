"""Object store that limits the number of requests a second, over all threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.storage.object_store import ObjectStore


class RequestPace:
    """Rate limiter: `rate` requests a second, one after another, for many threads in order of arrival.

    Time in which no request is made is not saved up for later requests.
    """

    def __init__(
        self, rate: int, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._seconds = 1 / rate
        self._now = now
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next = now()
        self._of_thread = threading.local()

    def made(self) -> int:
        """Return how many requests the calling thread has waited for so far."""
        return getattr(self._of_thread, "made", 0)

    def wait(self) -> None:
        """Wait until the next request may be made."""
        self._of_thread.made = self.made() + 1
        with self._lock:
            now = self._now()
            at = max(now, self._next)
            self._next = at + self._seconds
        if at > now:
            self._sleep(at - now)


class PacedStore(ObjectStore):
    """Wrapper of `store` that calls `wait` before each `get`, `size` and `list`. Raises: the errors of `store`."""

    def __init__(self, store: ObjectStore, wait: Callable[[], None]) -> None:
        self._store = store
        self._wait = wait

    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        self._wait()
        return self._store.get(key, wanted)

    def size(self, key: str) -> int:
        self._wait()
        return self._store.size(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        self._wait()
        return self._store.list(prefix, after)

    def describe(self, key: str) -> str:
        return self._store.describe(key)

    def signed_url(self, key: str, seconds: int) -> str | None:
        return self._store.signed_url(key, seconds)

    def busy_answers(self) -> int:
        return self._store.busy_answers()

    def close(self) -> None:
        self._store.close()

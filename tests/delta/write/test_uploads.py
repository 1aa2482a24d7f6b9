"""How many files of one task are on their way at once."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event, Lock, Thread

import pytest

from tests.rigs.stack.processes import wait_until
from tiered_stream.delta.write.data_folder import LARGE_IN_FLIGHT, SMALL_BYTES, SMALL_IN_FLIGHT, UploadThreads


@pytest.mark.parametrize(("size", "most"), [(SMALL_BYTES + 1, LARGE_IN_FLIGHT), (SMALL_BYTES, SMALL_IN_FLIGHT)])
def test_so_many_are_on_their_way_and_the_next_waits(size: int, most: int) -> None:
    threads, may_end, lock, begun = UploadThreads(), Event(), Lock(), 0
    futures: list[Future[None]] = []

    def upload() -> None:
        nonlocal begun
        with lock:
            begun += 1
        may_end.wait()

    def hand_over() -> None:
        for _ in range(most + 3):
            futures.append(threads.begin(size, upload))

    handing = Thread(target=hand_over)
    handing.start()
    wait_until(lambda: begun == most, "the first uploads", pause=0.01)
    assert len(futures) <= most
    may_end.set()
    handing.join()
    for each in futures:
        each.result()
    assert begun == most + 3
    threads.close()


def test_an_upload_that_fails_makes_room() -> None:
    threads = UploadThreads()

    def fail() -> None:
        raise OSError("refused")

    futures = [threads.begin(SMALL_BYTES + 1, fail) for _ in range(5)]
    assert [str(each.exception()) for each in futures] == ["refused"] * 5
    threads.close()

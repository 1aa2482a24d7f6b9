"""Heap and garbage collection of processes."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tests.malloc_heaps import only_glibc
from tiered_stream.process.heap_and_gc import collect_old_rarely, collection_paused


class Thing:
    """Compared by identity, as connections are."""


def test_what_is_made_in_a_pause_of_collection_stays_until_it_ends_and_is_looked_through_then() -> None:
    with collection_paused():
        cycle = Thing()
        garbage = weakref.ref(cycle)
        cycle.itself = cycle  # type: ignore[attr-defined]
        del cycle
        made: list[list[int]] = [[] for _ in range(50_000)]
        assert not gc.isenabled() and garbage() is not None
    assert gc.isenabled() and garbage() is None
    assert any(each is made[0] for each in gc.get_objects(generation=2))


def test_where_much_is_kept_a_full_collection_is_rare_and_garbage_is_found_young() -> None:
    before = gc.get_threshold()
    try:
        collect_old_rarely()
        assert gc.get_threshold()[:2] == before[:2]
        full = gc.get_stats()[2]["collections"]
        cycle = Thing()
        cycle.itself = cycle  # type: ignore[attr-defined]
        garbage = weakref.ref(cycle)
        del cycle
        kept: list[list[int]] = [[] for _ in range(100_000)]
        assert garbage() is None
        assert gc.get_stats()[2]["collections"] == full
        assert len(kept) == 100_000
    finally:
        gc.set_threshold(*before)


def test_a_pause_within_another_ends_with_the_outer_one() -> None:
    with collection_paused():
        with collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


_COUNT_HEAPS = """
import sys
from tests.malloc_heaps import heaps_of_threads
from tiered_stream.process.heap_and_gc import share_heap

if sys.argv[1] == "shared":
    share_heap()
print(heaps_of_threads())
"""


@only_glibc
@pytest.mark.parametrize("how,one", [("shared", True), ("apart", False)])
def test_threads_of_a_worker_share_a_heap(how: str, one: bool) -> None:
    assert (_told(_COUNT_HEAPS, how) == 1) is one


_COUNT_FAULTS = """
import sys
from resource import RUSAGE_SELF, getpagesize, getrusage
from tiered_stream.process.heap_and_gc import share_heap_with_arrow

if sys.argv[1] == "shared":
    share_heap_with_arrow()
from tiered_stream.records.memory import allocate


def of_python():
    return [b"x" * (16 << 20) for _ in range(3)]


def of_arrow():
    for array in (found := [allocate(size, "u1") for size in (7 << 20, 8 << 20, 9 << 20)]):
        array[:] = 1
    return found


def rounds(count):
    for _ in range(count):
        for take in of_python, of_arrow:
            taken = take()
            del taken
    return getrusage(RUSAGE_SELF).ru_minflt


before = rounds(2)
print((rounds(4) - before) * getpagesize() >> 20)
"""


@only_glibc
@pytest.mark.parametrize("how,kept", [("shared", True), ("apart", False)])
def test_a_worker_s_heap_keeps_the_memory_of_responses_and_record_batches_for_the_next(how: str, kept: bool) -> None:
    fresh = _told(_COUNT_FAULTS, how)
    assert (fresh < 3 * 16) is kept, f"{fresh} MiB of fresh pages"


_NAME_POOL = """
from tiered_stream.process.heap_and_gc import share_heap_with_arrow

share_heap_with_arrow()
import pyarrow as pa
print(int(pa.default_memory_pool().backend_name == "system"))
"""


@only_glibc
@pytest.mark.parametrize("chosen,shared", [(None, True), ("mimalloc", False)])
def test_arrow_shares_the_heap_unless_the_user_has_chosen_a_pool(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, shared: bool
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if chosen:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", chosen)
    assert bool(_told(_NAME_POOL, "")) is shared


def _told(program: str, how: str) -> int:
    """The number that the program prints, in a process of its own."""
    command = [sys.executable, "-c", program, how]
    return int(subprocess.run(command, capture_output=True, check=True, cwd=Path(__file__).parents[2]).stdout)

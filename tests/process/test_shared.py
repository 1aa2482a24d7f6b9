"""What a process has once, by things and options of the test's own."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.malloc_heaps import only_glibc
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.process.heap_and_gc import collect_old_rarely, collection_paused
from tiered_stream.process.logs import muted
from tiered_stream.process.shared import MOST_KEPT, PerProcess

SECRET = "a-password-of-the-test"


class Thing:
    """Compared by identity, as connections are."""


@dataclass(frozen=True)
class Hidden:
    """Options of which one is not shown."""

    name: str
    password: str = field(repr=False)


def test_equal_options_share_one_thing_and_all_threads_have_it() -> None:
    things: PerProcess[Thing] = PerProcess()
    given = [
        StorageOptions(uri="file:///tier", rsm_config={"a": "1", "b": "2"}),
        StorageOptions(uri="file:///tier", rsm_config=MappingProxyType({"b": "2", "a": "1"})),
    ]
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda n: things.get(given[n % 2], Thing), range(32)))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Hidden("name", SECRET), Hidden("name", "another")),
        ({"sasl.jaas.config": SECRET}, {"sasl.jaas.config": "another"}),
        (StorageOptions(secret_access_key=SECRET), StorageOptions(secret_access_key="another")),
        (StorageOptions(session_token=SECRET), StorageOptions()),
        (StorageOptions(rsm_config={"a": SECRET}), StorageOptions(rsm_config={"a": "another"})),
        ({"a": "1"}, {"a": 1}),
        ({"a": "1', 'b': '2"}, {"a": "1", "b": "2"}),
    ],
)
def test_other_credentials_have_a_thing_of_their_own(one: object, other: object) -> None:
    things: PerProcess[Thing] = PerProcess()
    assert things.get(one, Thing) is not things.get(other, Thing)


@pytest.mark.parametrize(
    "options",
    [
        lambda path: {"ssl.keystore.location": path},
        lambda path: StorageOptions(rsm_config={"encryption.key.pairs.key1.private.key.file": path}),
    ],
)
def test_credentials_that_were_replaced_in_their_file_have_a_thing_of_their_own(
    tmp_path: Path, options: Callable[[str], object]
) -> None:
    things: PerProcess[Thing] = PerProcess()
    path = tmp_path / "key.pem"
    given = options(str(path))
    before = things.get(given, Thing)
    path.write_text("old")
    first = things.get(given, Thing)
    assert first is things.get(given, Thing) is not before
    (tmp_path / "new.pem").write_text("new")
    (tmp_path / "new.pem").replace(path)
    assert things.get(given, Thing) is not first


def test_no_key_holds_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    things: PerProcess[Thing] = PerProcess()
    things.get({"sasl.jaas.config": SECRET}, Thing)
    things.get(StorageOptions(access_key_id=SECRET, rsm_config={"aws.secret.access.key": SECRET}), Thing)
    (kept,) = things._kept.values()
    assert len(kept._values) == 2
    assert SECRET not in repr((vars(things), vars(kept))) + caplog.text
    assert not any(SECRET.encode() in key for key in kept._values)


def test_only_the_things_that_were_used_last_are_kept() -> None:
    things: PerProcess[Thing] = PerProcess()
    first, second = things.get(0, Thing), things.get(1, Thing)
    for number in range(2, MOST_KEPT + 1):
        things.get(number, Thing)
        assert things.get(0, Thing) is first
    assert things.get(1, Thing) is not second


def test_what_cannot_be_made_is_tried_again() -> None:
    things: PerProcess[float] = PerProcess()
    with pytest.raises(ZeroDivisionError):
        things.get("key", lambda: 1 / 0)
    assert things.get("key", lambda: 2.0) == 2.0


def test_a_forked_process_makes_its_own() -> None:
    of_parent = _shared.get("key", os.getpid)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_of_this_process) != of_parent == os.getpid() == _of_this_process()


_shared: PerProcess[int] = PerProcess()


def _of_this_process() -> int:
    return _shared.get("key", os.getpid)


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


def test_a_library_is_muted_in_one_thread_and_heard_in_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log, other = logging.getLogger("a_library.a_module"), logging.getLogger("a_library_of_the_user")
    with muted("a_library"), ThreadPoolExecutor(1) as pool:
        log.error("muted")
        other.error("of the user's library")
        pool.submit(log.error, "of the user's thread").result()
        with muted("another"):
            log.error("muted")
        log.error("muted")
    log.error("afterwards")
    # py4j, where another test of this process had a session, says at any time which of its objects are gone.
    said = [record.getMessage() for record in caplog.records if record.name in (log.name, other.name)]
    assert said == ["of the user's library", "of the user's thread", "afterwards"]


_COUNT_HEAPS = """
import sys
from tests.malloc_heaps import heaps_of_threads
from tiered_stream.process.shared import share_heap

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
from tiered_stream.process.shared import share_heap_with_arrow

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
from tiered_stream.process.shared import share_heap_with_arrow

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

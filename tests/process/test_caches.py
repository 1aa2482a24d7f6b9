from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.process.caches import PerProcess, SingleFlightCache

PATIENCE = 10.0


def test_what_was_loaded_is_not_loaded_again_until_others_push_it_out() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)
    loads: list[str] = []

    def get(key: str) -> None:
        def load() -> int:
            loads.append(key)
            return len(loads)

        cache.get(key, load)

    for key in ("a", "b", "a", "c", "a", "b"):
        get(key)
    assert loads == ["a", "b", "c", "b"]


def test_threads_that_ask_at_once_wait_for_one_load() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)
    begun, go_on = threading.Event(), threading.Event()
    loads = []

    def load() -> int:
        loads.append(1)
        begun.set()
        assert go_on.wait(PATIENCE)
        return 7

    with ThreadPoolExecutor(4) as threads:
        got = [threads.submit(cache.get, "a", load) for _ in range(4)]
        assert begun.wait(PATIENCE)
        go_on.set()
    assert ([each.result() for each in got], loads) == ([7] * 4, [1])


def test_what_fails_is_tried_again() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)

    def fail() -> int:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            cache.get("a", fail)
    assert cache.get("a", lambda: 3) == 3


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
    (kept,) = things._caches.values()
    assert len(kept._values) == 2
    assert SECRET not in repr((vars(things), vars(kept))) + caplog.text
    assert not any(SECRET.encode() in key for key in kept._values)

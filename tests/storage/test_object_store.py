"""The contract of every store."""

from __future__ import annotations

import os
import re

import pytest

from tests.storage.conftest import StoreOf
from tiered_stream.data_limits import Limit
from tiered_stream.errors import CorruptDataError, DataLimitError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange

DATA = os.urandom(100_000)
LIMIT = Limit("some.max", 100_000)


@pytest.mark.parametrize("start,end", [(0, 1), (0, 100_000), (99_999, 100_000), (12_345, 54_321), (7, 7)])
def test_a_range_gives_exactly_its_bytes(store_of: StoreOf, start: int, end: int) -> None:
    assert store_of({"topic-0/a.log": DATA}).get("topic-0/a.log", ByteRange(start, end)) == DATA[start:end]


def test_without_a_range_the_whole_object_comes(store_of: StoreOf) -> None:
    store = store_of({"a": DATA, "empty": b""})
    assert store.get("a", LIMIT) == DATA
    assert store.get("empty", LIMIT) == b""


@pytest.mark.parametrize("start,end", [(0, 100_001), (99_999, 100_003), (100_000, 100_001), (200_000, 1 << 40)])
def test_an_object_shorter_than_the_range_names_object_wanted_and_got(store_of: StoreOf, start: int, end: int) -> None:
    store = store_of({"topic-0/a.log": DATA})
    wanted = f"topic-0/a.log has 100000 bytes, but bytes {start} to {end}"
    with pytest.raises(CorruptDataError, match=re.escape(wanted)):
        store.get("topic-0/a.log", ByteRange(start, end))


def test_an_object_too_large_to_be_read_whole_is_refused(store_of: StoreOf) -> None:
    store = store_of({"a": DATA})
    with pytest.raises(DataLimitError, match=r"a: 100000, .*99999 .*some\.max"):
        store.get("a", Limit("some.max", 99_999))
    assert store.get("a", ByteRange(0, 99_999)) == DATA[:99_999]


def test_the_size_is_the_objects(store_of: StoreOf) -> None:
    assert store_of({"a": DATA}).size("a") == 100_000


def test_a_missing_object_is_named(store_of: StoreOf) -> None:
    store = store_of({"a": DATA})
    for call in (lambda: store.get("b/c", LIMIT), lambda: store.get("b/c", ByteRange(0, 9)), lambda: store.size("b/c")):
        with pytest.raises(StorageObjectNotFoundError, match=re.escape(store.describe("b/c"))):
            call()


def test_a_list_gives_all_keys_with_the_prefix(store_of: StoreOf) -> None:
    store = store_of(dict.fromkeys(("t-0/1.log", "t-0/1.index", "t-00/1.log", "u/t-0/x", "t"), b"x"))
    assert list(store.list("t-0/")) == ["t-0/1.index", "t-0/1.log"]
    assert sorted(store.list("t-0")) == ["t-0/1.index", "t-0/1.log", "t-00/1.log"]
    assert len(list(store.list(""))) == 5
    assert list(store.list("nothing/here")) == []


def test_a_list_may_begin_behind_a_key(store_of: StoreOf) -> None:
    store = store_of({"a/1": b"", "a/2": b"", "b/1": b"", "c": b""})
    assert sorted(store.list("", "a/1")) == ["a/2", "b/1", "c"]
    assert sorted(store.list("", "a0")) == ["b/1", "c"]
    assert sorted(store.list("a/", "a/1")) == ["a/2"]


def test_keys_may_hold_any_character_of_a_path(store_of: StoreOf) -> None:
    key = "t-0/a b+c%20d&e=ä.log"
    store = store_of({key: DATA})
    assert store.get(key, ByteRange(3, 9)) == DATA[3:9]
    assert list(store.list("t-0/")) == [key]

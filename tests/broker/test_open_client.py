from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiered_stream.broker.client import open_client

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "client.id": "of test_open"}


def test_one_client_serves_all_threads_that_give_the_same_properties() -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(lambda _: open_client(dict(reversed(NOBODY.items()))), range(32)))
    assert clients == {open_client(NOBODY)}


def test_other_properties_have_a_client_of_their_own() -> None:
    assert open_client({**NOBODY, "client.rack": "r"}) is not open_client(NOBODY)


def test_a_forked_process_does_not_go_on_with_its_parents_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    of_parent = open_client(NOBODY)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert open_client(NOBODY) is not of_parent

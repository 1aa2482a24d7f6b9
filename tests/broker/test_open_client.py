from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiered_stream.broker import client as client_module
from tiered_stream.broker.client import BrokerClient, open_client
from tiered_stream.process.caches import MAX_OBJECTS

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "client.id": "of test_open"}


@pytest.mark.contract("2.99")
def test_one_client_serves_all_threads_that_give_the_same_properties() -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(lambda _: open_client(dict(reversed(NOBODY.items()))), range(32)))
    assert clients == {open_client(NOBODY)}


@pytest.mark.contract("2.99")
def test_a_forked_process_does_not_go_on_with_its_parents_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    of_parent = open_client(NOBODY)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert open_client(NOBODY) is not of_parent


def test_a_client_is_closed_when_it_was_pushed_out_and_nobody_has_it_any_more() -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "kafka-io-evicted"]

    client = open_client({**NOBODY, "client.id": "evicted"})
    for number in range(MAX_OBJECTS):
        open_client({**NOBODY, "client.id": f"other {number}"})
    assert client.run(answered) == "an answer"  # the task at work with it goes on
    (network,) = threads()
    del client
    network.join(60)
    assert not threads()


def test_a_client_that_is_dropped_on_its_network_thread_is_closed_too() -> None:
    holder = [BrokerClient({**NOBODY, "client.id": "dropped"})]
    (network,) = [thread for thread in threading.enumerate() if thread.name == "kafka-io-dropped"]

    async def drop() -> None:
        holder.clear()

    holder[0].start(drop)
    network.join(60)
    assert not network.is_alive()


def test_a_fork_does_not_close_its_parents_connections() -> None:
    client = BrokerClient(NOBODY)
    made_here = client.connections
    client_module._close(made_here, os.getpid() + 1)
    assert client.run(answered) == "an answer"


async def answered() -> str:
    return "an answer"

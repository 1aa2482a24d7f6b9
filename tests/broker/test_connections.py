"""What kafka-python logs: of our connections nothing, of the user's everything. And their end."""

from __future__ import annotations

import logging
from contextlib import closing
from threading import Thread
from typing import Any

import pytest
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import ApiVersionsRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.connections import Connections, Deadline
from tiered_stream.broker.kafka_errors import AbsentBrokerError
from tiered_stream.errors import BrokerUnavailableError

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "client.id": "one name", "default.api.timeout.ms": "200"}


def fails_to_connect() -> None:
    """As the user's own kafka-python does, under the same client id."""
    net = NetworkSelector(client_id=NOBODY["client.id"])
    manager = KafkaConnectionManager(net, bootstrap_servers=NOBODY["bootstrap.servers"], client_id=NOBODY["client.id"])
    net.start()
    try:
        connection = manager.get_connection(manager.cluster.bootstrap_brokers()[0].node_id)
        with pytest.raises(Exception, match="Connection"):
            net.run(manager.wait_for, connection.init_future, 10_000)
        net.run(manager.close)
    finally:
        net.close()


def test_of_our_connections_nothing_is_logged_at_any_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1, "kafka")
    with BrokerClient(NOBODY) as client, pytest.raises(BrokerUnavailableError):
        client.metadata()
    assert [record for record in caplog.records if record.name.startswith("kafka")] == []


def test_the_users_own_connections_in_the_same_process_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka")
    with BrokerClient(NOBODY) as client:
        with pytest.raises(BrokerUnavailableError):
            client.metadata()
        fails_to_connect()
    assert {"kafka.net.selector", "kafka.net.manager"} <= {record.name for record in caplog.records}


def test_the_levels_of_kafka_pythons_loggers_stay_as_they_are() -> None:
    with BrokerClient(NOBODY):
        names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "kafka"]
        assert {logging.getLogger(name).level for name in names} == {logging.NOTSET}


def test_work_that_comes_as_they_are_closed_is_done_or_refused_and_never_waited_for_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Connections(BrokerConfig.parse(NOBODY))
    closer = Thread(target=connections.close)
    hand_over = NetworkSelector.call_soon_threadsafe

    def meanwhile(net: NetworkSelector, *work: Any) -> Any:
        monkeypatch.undo()
        closer.start()
        closer.join(0.2)  # as far as it gets
        return hand_over(net, *work)

    async def answer() -> str:
        return "done"

    monkeypatch.setattr(NetworkSelector, "call_soon_threadsafe", meanwhile)
    assert connections.start(answer).result(60) == "done"
    closer.join()
    with pytest.raises(BrokerUnavailableError, match="closed"):
        connections.start(answer)


def test_a_request_that_its_deadline_cuts_off_gives_the_reason_of_the_request_before() -> None:
    connections = Connections(
        BrokerConfig.parse({**NOBODY, "reconnect.backoff.ms": "0", "reconnect.backoff.max.ms": "0"})
    )
    (node,) = connections.nodes()

    async def ask(deadline: Deadline) -> None:
        await connections.request(node, ApiVersionsRequest(), deadline)

    with closing(connections):
        for deadline in (Deadline(60_000), Deadline(0)):
            with pytest.raises(AbsentBrokerError, match="refused") as raised:
                connections.start(lambda deadline=deadline: ask(deadline)).result()
        assert raised.value.__cause__ is None and raised.value.__suppress_context__, "the attempt cut off"
        assert "refused" in connections.unanswered(0)

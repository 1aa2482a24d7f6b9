"""Ports that stand for brokers, over real listeners."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.rigs.stack.processes import free_ports
from tiered_stream.gateway.protocol.broker_addresses import Address, Endpoints
from tiered_stream.gateway.sockets.listening_ports import BrokerPorts, Listener

HOST = "127.0.0.1"


def brokers(*node_ids: int) -> dict[int, Address]:
    return {node_id: Address("broker", 9000 + node_id) for node_id in node_ids}


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@asynccontextmanager
async def two_ports(first: int) -> AsyncIterator[tuple[BrokerPorts, Endpoints]]:
    async def serve(node_id: int, port: int) -> Listener:
        return await Listener.open(HOST, port, lambda connection, client: connection.close())

    endpoints = Endpoints("gateway", first, 2)
    ports = BrokerPorts(endpoints, serve)
    try:
        yield ports, endpoints
    finally:
        await ports.close()


@pytest.fixture
def first() -> int:
    """Of two ports side by side that are free."""
    while True:
        (port,) = free_ports(1)
        if port < 65_000 and not listens(port + 1):
            return port


async def test_a_broker_that_has_gone_frees_its_port_for_the_one_that_replaces_it(first: int) -> None:
    async with two_ports(first) as (ports, endpoints):
        await ports.follow(brokers(0, 1))
        assert listens(first) and listens(first + 1)
        await ports.follow(brokers(1, 100))
        assert listens(first) and not ports.faults()
        assert endpoints.broker(100) == Address("broker", 9100)
        with pytest.raises(OSError, match="broker 0 "):
            endpoints.broker(0)
        await ports.follow(brokers(1))
        assert not listens(first), "nobody stands behind it"


async def test_a_taken_port_costs_its_own_broker_only_and_is_tried_again(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_ports(first) as (ports, _):
        with socket.create_server((HOST, first)):
            for _ in range(2):
                await ports.follow(brokers(0, 1))
                await ports.open()
            assert listens(first + 1)
            (fault,) = ports.faults()
            assert fault.startswith("broker 0 ") and f": port {first} " in fault
            assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1
        await ports.open()
        assert not listens(first), "each answer that names brokers would try it"
        await ports.follow(brokers(0, 1))
        assert listens(first) and not ports.faults()


async def test_two_brokers_of_one_port_cost_the_second_alone(first: int) -> None:
    async with two_ports(first) as (ports, _):
        await ports.follow(brokers(0, 1, 2))
        assert listens(first) and listens(first + 1)
        (fault,) = ports.faults()
        assert "brokers 0 and 2 " in fault


async def test_a_broker_that_an_answer_names_is_listened_for_at_once(first: int) -> None:
    async with two_ports(first) as (ports, endpoints):
        await ports.follow(brokers(0))
        endpoints.learn(1, Address("broker", 9001))
        await ports.open()
        assert listens(first + 1)


async def test_no_port_stays_or_gets_open_when_the_ports_are_closed(first: int) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def serve(node_id: int, port: int) -> Listener:
        begun.set()
        await go_on.wait()
        return await Listener.open(HOST, port, lambda connection, client: connection.close())

    endpoints = Endpoints("gateway", first, 2)
    ports = BrokerPorts(endpoints, serve)
    endpoints.learn(0, Address("broker", 9000))
    opening = asyncio.create_task(ports.open())
    await begun.wait()
    closing = asyncio.create_task(ports.close())
    go_on.set()
    await asyncio.gather(opening, closing)
    assert not listens(first)
    endpoints.learn(1, Address("broker", 9001))  # by a client that is still connected
    await ports.open()
    assert not listens(first + 1)

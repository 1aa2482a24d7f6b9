from __future__ import annotations

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.protocol.broker_addresses import Address, Endpoints

BROKER = Address("broker", 9092)


def test_a_broker_has_the_same_port_whoever_came_before() -> None:
    one, other = Endpoints("gateway", 100, 50), Endpoints("gateway", 100, 50)
    one.learn(3, BROKER)
    assert one.learn(1001, BROKER) == other.learn(1001, BROKER) == Address("gateway", 101)
    assert one.nodes() == {3: 103, 1001: 101}


def test_a_broker_that_moved_is_reached_where_it_is_now() -> None:
    endpoints = Endpoints("gateway", 100, 50)
    before = endpoints.learn(1, BROKER)
    assert endpoints.learn(1, Address("elsewhere", 9093)) == before
    assert endpoints.broker(1) == Address("elsewhere", 9093)


def test_two_brokers_never_share_a_port() -> None:
    endpoints = Endpoints("gateway", 100, 50)
    endpoints.learn(1, BROKER)
    with pytest.raises(ConfigurationError, match=r"gateway\.broker\.ports: brokers 1 and 51 .*port 101"):
        endpoints.learn(51, BROKER)

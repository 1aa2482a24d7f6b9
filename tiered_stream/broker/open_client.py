"""One client a process for each cluster, so that Spark's reused Python workers keep their connections."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tiered_stream.broker.client import BrokerClient

_clients: dict[tuple[int, frozenset[tuple[str, str]]], BrokerClient] = {}


def open_client(properties: Mapping[str, str]) -> BrokerClient:
    """The process's client for these properties: made once, shared by all threads, never by a forked process.

    Raises:
        ConfigurationError: as `BrokerClient`.
    """
    # The process id: a fork must not go on with its parent's connections.
    key = (os.getpid(), frozenset(properties.items()))
    client = _clients.get(key)
    # Two threads may both make one; setdefault lets all use the same, without a lock that a fork could inherit locked.
    return client or _clients.setdefault(key, BrokerClient(properties))

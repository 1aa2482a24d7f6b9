"""Receiver on the driver that adds up the counters that tasks send, in total and by micro-batch."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from typing import Any

import orjson
from cachetools import LRUCache

from tiered_stream.observe.metrics import MicroBatchId, ReadMetrics, socket_addresses

log = logging.getLogger(__name__)

_LARGEST_DATAGRAM = 4096
_MICRO_BATCHES = 1024
"""Maximum number of micro-batches whose counters wait for `take_micro_batch`.

The number is limited, because anybody can send datagrams with invented ids of micro-batches.
"""
_KEYS = asdict(ReadMetrics()).keys() | {"micro_batch"}

OnReport = Callable[[MicroBatchId | None, ReadMetrics], None]


class MetricsReceiver(AbstractContextManager["MetricsReceiver"]):
    """Receiver that adds up the counters that tasks send to `address` (`host:port`), until `close` is called.

    A query never fails because of metrics. If no address can be bound, a warning is logged, `address` is empty, and all
    sums stay zero.

    Args:
        host: the name or address by which tasks reach this machine (Spark: `spark.driver.host`).
        bind: the address of this machine to listen at (Spark: `spark.driver.bindAddress`); None: `host`. If it is not
            an address of this machine, as behind NAT, the receiver listens at all addresses.
        on_report: called in the receiver's thread with the micro-batch and the counters of each report, after they are
            added to the sums; None: nothing is called.
    """

    def __init__(self, host: str = "127.0.0.1", bind: str | None = None, on_report: OnReport | None = None) -> None:
        self.address = ""
        self._on_report = on_report
        self._lock = threading.Lock()
        self._total = ReadMetrics()
        self._micro_batches: LRUCache[MicroBatchId, ReadMetrics] = LRUCache(_MICRO_BATCHES)
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, name="metrics-receiver", daemon=True)
        try:
            self._sockets += socket.socketpair()  # a byte in it wakes the thread, but closing a socket does not
            self._sockets.append(listening := _bound(bind or host))
            self._thread.start()
        except (OSError, RuntimeError) as error:
            self.close()
            log.warning("the costs of reading are not counted: no port can be opened on %s: %s", bind or host, error)
            return
        name = host.strip("[]")
        self.address = f"{f'[{name}]' if ':' in name else name}:{listening.getsockname()[1]}"

    def total(self) -> ReadMetrics:
        """Return the sum of the counters received since the receiver was created."""
        with self._lock:
            return replace(self._total)

    def take_micro_batch(self, micro_batch: MicroBatchId) -> ReadMetrics:
        """Return the sum of the counters of one micro-batch's tasks, and forget it; zeros if none were received."""
        with self._lock:
            return self._micro_batches.pop(micro_batch, ReadMetrics())

    def later_than(self, micro_batch: MicroBatchId) -> ReadMetrics:
        """Return the sum of the counters of all micro-batches of the same query that come after `micro_batch`.

        Micro-batches that `take_micro_batch` has returned are left out.
        """
        query_id, batch_id = micro_batch
        later = ReadMetrics()
        with self._lock:
            for (query, batch), metrics in self._micro_batches.items():
                if query == query_id and batch > batch_id:
                    later.add(metrics)
        return later

    def close(self) -> None:
        """Stop listening and close the socket. The sums stay available."""
        if self._thread.is_alive():
            self._sockets[0].send(b"x")
            self._thread.join()
        for opened in self._sockets:
            opened.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        _, wake_up, listening = self._sockets
        with selectors.DefaultSelector() as selector:
            for readable in (listening, wake_up):
                selector.register(readable, selectors.EVENT_READ)
            while all(key.fileobj is not wake_up for key, _ in selector.select()):
                report = parse_datagram(listening.recv(_LARGEST_DATAGRAM))
                if report is not None:
                    self._add(*report)
                    if self._on_report is not None:
                        self._on_report(*report)

    def _add(self, micro_batch: MicroBatchId | None, metrics: ReadMetrics) -> None:
        with self._lock:
            self._total.add(metrics)
            if micro_batch:
                self._micro_batches.setdefault(micro_batch, ReadMetrics()).add(metrics)


def _bound(host: str) -> socket.socket:
    """Return a UDP socket bound to the address of `host`, or to all addresses if that is not possible.

    Raises:
        OSError: no address can be bound.
    """
    candidates: list[tuple[int, Any]] = [(socket.AF_INET6, ("::", 0))]
    with suppress(OSError, ValueError):
        candidates = socket_addresses(host, 0) + candidates
    for family, address in candidates:
        with suppress(OSError):
            return _listening(family, address)
    return _listening(socket.AF_INET, ("0.0.0.0", 0))


def _listening(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:  # so that `::` also listens at all IPv4 addresses
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


def parse_datagram(datagram: bytes) -> tuple[MicroBatchId | None, ReadMetrics] | None:
    """Parse a task's datagram into its micro-batch (None: a batch query) and its counters.

    The result is None if the datagram does not have the form that `metrics.send` gives it.
    """
    try:
        values = orjson.loads(datagram)
    except ValueError:
        return None
    if not isinstance(values, dict) or values.keys() != _KEYS:
        return None
    micro_batch = values.pop("micro_batch")
    if not all(type(value) in (int, float) and value >= 0 for value in values.values()):
        return None
    match micro_batch:
        case None:
            return None, ReadMetrics(**values)
        case [str(query_id), int(batch_id)]:
            return (query_id, batch_id), ReadMetrics(**values)
    return None

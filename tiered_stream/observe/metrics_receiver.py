"""The driver's side of the counters: adds up the datagrams of tasks, in all and by micro-batch."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from typing import Any

import orjson
from cachetools import LRUCache

from tiered_stream.observe.metrics import MicroBatchId, ReadMetrics, addresses_of

log = logging.getLogger(__name__)

_LARGEST_DATAGRAM = 4096
_MICRO_BATCHES = 1024
"""Kept until somebody asks for them: whoever can send a datagram can make some up."""
_KEYS = asdict(ReadMetrics()).keys() | {"micro_batch"}


class MetricsReceiver(AbstractContextManager["MetricsReceiver"]):
    """Adds up the counters that tasks send to `address` (`host:port`), until `close`.

    Metrics never cost a query: where nothing can be listened at, a warning says so, `address` is empty, and the sum
    stays zero.

    Args:
        host: the name or address by which tasks find this machine (Spark: `spark.driver.host`).
        bind: which of this machine's addresses to listen at (Spark: `spark.driver.bindAddress`), None: `host`. Where
            it is none of this machine's, as behind NAT, all of them.
    """

    def __init__(self, host: str = "127.0.0.1", bind: str | None = None) -> None:
        self.address = ""
        self._lock = threading.Lock()
        self._total = ReadMetrics()
        self._micro_batches: LRUCache[MicroBatchId, ReadMetrics] = LRUCache(_MICRO_BATCHES)
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, name="metrics-receiver", daemon=True)
        try:
            self._sockets += socket.socketpair()  # a byte wakes the thread: closing a socket does not
            self._sockets.append(listening := _bound(bind or host))
            self._thread.start()
        except (OSError, RuntimeError) as error:
            self.close()
            log.warning("what reading costs is not counted: nothing can be listened at for %s: %s", bind or host, error)
            return
        name = host.strip("[]")
        self.address = f"{f'[{name}]' if ':' in name else name}:{listening.getsockname()[1]}"

    def total(self) -> ReadMetrics:
        """The sum so far."""
        with self._lock:
            return replace(self._total)

    def take(self) -> ReadMetrics:
        """The sum so far; from now on it is summed up anew."""
        with self._lock:
            taken, self._total = self._total, ReadMetrics()
            return taken

    def take_micro_batch(self, micro_batch: MicroBatchId) -> ReadMetrics:
        """The sum of what its tasks have sent since this was last asked for."""
        with self._lock:
            return self._micro_batches.pop(micro_batch, ReadMetrics())

    def later_than(self, micro_batch: MicroBatchId) -> ReadMetrics:
        """The sum of what tasks of the query's later micro-batches have sent, as far as nobody took it."""
        query_id, batch_id = micro_batch
        later = ReadMetrics()
        with self._lock:
            for (query, batch), metrics in self._micro_batches.items():
                if query == query_id and batch > batch_id:
                    later.add(metrics)
        return later

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._sockets[0].send(b"x")
            self._thread.join()
        for each in self._sockets:
            each.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        _, woken, listening = self._sockets
        with selectors.DefaultSelector() as selector:
            for each in (listening, woken):
                selector.register(each, selectors.EVENT_READ)
            while all(key.fileobj is not woken for key, _ in selector.select()):
                report = parse_datagram(listening.recv(_LARGEST_DATAGRAM))
                if report is not None:
                    self._add(*report)

    def _add(self, micro_batch: MicroBatchId | None, metrics: ReadMetrics) -> None:
        with self._lock:
            self._total.add(metrics)
            if micro_batch:
                self._micro_batches.setdefault(micro_batch, ReadMetrics()).add(metrics)


def _bound(host: str) -> socket.socket:
    """A socket at the host's address; where that is none of this machine's, at all of this machine's.

    Raises:
        OSError: there is no address at all.
    """
    candidates: list[tuple[int, Any]] = [(socket.AF_INET6, ("::", 0))]
    with suppress(OSError, ValueError):
        candidates = addresses_of(host, 0) + candidates
    for family, address in candidates:
        with suppress(OSError):
            return _listening(family, address)
    return _listening(socket.AF_INET, ("0.0.0.0", 0))


def _listening(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:  # where that is all addresses, those of IPv4 too
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


def parse_datagram(datagram: bytes) -> tuple[MicroBatchId | None, ReadMetrics] | None:
    """Which micro-batch's they are, if any's, and the counters; None when it is not one of ours."""
    try:
        values = orjson.loads(datagram)
    except ValueError:
        return None
    if not isinstance(values, dict) or values.keys() != _KEYS:
        return None
    micro_batch = values.pop("micro_batch")
    if not all(type(each) in (int, float) and each >= 0 for each in values.values()):
        return None
    match micro_batch:
        case None:
            return None, ReadMetrics(**values)
        case [str(query_id), int(batch_id)]:
            return (query_id, batch_id), ReadMetrics(**values)
    return None

"""What reading cost, counted where it happens and sent to who wants to know.

The counters are those of KIP-1254. Spark gives a Python source no way to report metrics, so a task sends its counters
as one UDP datagram of JSON to the driver's `BatchLog`, and to `remote.metrics.address` when that is set: nothing waits
for it, and a lost datagram makes a figure too small, never a row wrong.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import orjson

OBSERVATION = "tiered_stream"
"""Under this name a query of the direct lane has its counters in `StreamingQueryProgress.observedMetrics`."""

_LARGEST_DATAGRAM = 4096


@dataclass(slots=True)
class ReadMetrics:
    """Counters of one task, or the sum of many; latencies in seconds, sizes in bytes."""

    records: int = 0
    record_bytes: int = 0
    remote_fetch_requests: int = 0
    remote_fetch_bytes: int = 0
    remote_fetch_latency_total: float = 0.0
    remote_fetch_latency_max: float = 0.0
    remote_fetch_errors: int = 0
    remote_fetch_fallbacks: int = 0
    fallbacks_connect_timeout: int = 0
    fallbacks_read_timeout: int = 0
    fallbacks_refused: int = 0
    fallbacks_not_found: int = 0
    fallbacks_unknown_format: int = 0
    fallbacks_other: int = 0
    broker_fetch_requests: int = 0
    broker_fetch_bytes: int = 0

    def on_remote_fetch(self, size: int, seconds: float) -> None:
        self.remote_fetch_requests += 1
        self.remote_fetch_bytes += size
        self.remote_fetch_latency_total += seconds
        self.remote_fetch_latency_max = max(self.remote_fetch_latency_max, seconds)

    def on_fallback(self, reason: str) -> None:
        """`reason` is the rest of the name of one of the counters `fallbacks_*`, which add up to all."""
        self.remote_fetch_fallbacks += 1
        name = f"fallbacks_{reason}"
        setattr(self, name, getattr(self, name) + 1)

    def on_broker_fetch(self, size: int) -> None:
        self.broker_fetch_requests += 1
        self.broker_fetch_bytes += size

    def add(self, other: ReadMetrics) -> None:
        for each in fields(self):
            ours, theirs = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, max(ours, theirs) if each.name.endswith("_max") else ours + theirs)

    def since(self, before: ReadMetrics) -> ReadMetrics:
        """What has come on top of `before`; the largest latency is that of all."""
        difference = {
            each.name: getattr(self, each.name) - (0 if each.name.endswith("_max") else getattr(before, each.name))
            for each in fields(self)
        }
        return ReadMetrics(**difference)


def describe(metrics: ReadMetrics) -> str:
    """The bytes and where they came from, how quick the storage was, errors and fallbacks when there were any."""
    text = f"{_mib(metrics.remote_fetch_bytes)} from storage, {_mib(metrics.broker_fetch_bytes)} from brokers"
    if metrics.remote_fetch_requests:
        average = metrics.remote_fetch_latency_total / metrics.remote_fetch_requests
        text += (
            f", {metrics.remote_fetch_requests:,} requests to storage of {1000 * average:,.0f} ms "
            f"(at most {1000 * metrics.remote_fetch_latency_max:,.0f})"
        )
    if metrics.remote_fetch_errors:
        text += f", {metrics.remote_fetch_errors} storage errors"
    if metrics.remote_fetch_fallbacks:
        text += f", {metrics.remote_fetch_fallbacks} splits fell back to brokers ({_reasons(metrics)})"
    return text


def _reasons(metrics: ReadMetrics) -> str:
    counts = {name: count for name, count in asdict(metrics).items() if name.startswith("fallbacks_") and count}
    return ", ".join(f"{name.removeprefix('fallbacks_').replace('_', ' ')}: {n}" for name, n in counts.items())


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def send(metrics: ReadMetrics, addresses: Iterable[str]) -> None:
    """Send the counters to each address (`host:port`); failures are nobody's business."""
    datagram = orjson.dumps(asdict(metrics))
    for address in addresses:
        _send(datagram, address)


def _send(datagram: bytes, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sender:
            sender.sendto(datagram, target)
    except (OSError, ValueError):
        return


class MetricsReceiver:
    """Adds up the counters that tasks send to `address`, until `close`."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self.address = "{}:{}".format(*self._socket.getsockname())
        self._lock = threading.Lock()
        self._total = ReadMetrics()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="metrics-receiver", daemon=True)
        self._thread.start()

    def total(self) -> ReadMetrics:
        """The sum so far."""
        with self._lock:
            total = ReadMetrics()
            total.add(self._total)
            return total

    def take(self) -> ReadMetrics:
        """The sum so far; from now on it is summed up anew."""
        with self._lock:
            taken, self._total = self._total, ReadMetrics()
            return taken

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        # An empty datagram wakes the thread: closing a socket does not.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> MetricsReceiver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closed:
            metrics = _parse(self._socket.recv(_LARGEST_DATAGRAM))
            if metrics is not None:
                with self._lock:
                    self._total.add(metrics)


def _parse(datagram: bytes) -> ReadMetrics | None:
    """The counters of a datagram, or None when it is not one of ours."""
    try:
        values = orjson.loads(datagram)
        known = {each.name for each in fields(ReadMetrics)}
        if not isinstance(values, dict) or set(values) != known:
            return None
        if any(isinstance(each, bool) or not each >= 0 for each in values.values()):
            return None
        return ReadMetrics(**values)
    except (TypeError, ValueError):
        return None

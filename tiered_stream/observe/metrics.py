"""What reading cost, counted where it happens and sent to who wants to know.

The counters are those of KIP-1254. Spark gives a Python source no way to report metrics, so a task sends its counters
as one UDP datagram of JSON to the driver's `BatchLog`, and to `remote.metrics.address` when that is set: nothing waits
for it, and a lost datagram makes a figure too small, never a row wrong.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import orjson

log = logging.getLogger(__name__)

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
        ours, theirs = asdict(self), asdict(before)
        return ReadMetrics(**{name: n - (0 if name.endswith("_max") else theirs[name]) for name, n in ours.items()})


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
        host, _, port = address.rpartition(":")
        with suppress(OSError, OverflowError, ValueError):
            family, target = _addresses(host, int(port))[0]
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.sendto(datagram, target)


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Family and address of each that the host has; an IPv6 address may be in brackets, as Spark writes it."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)
    return [(family, address) for family, _, _, _, address in found]


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
                metrics = _parse(listening.recv(_LARGEST_DATAGRAM))
                if metrics is not None:
                    with self._lock:
                        self._total.add(metrics)


def _bound(host: str) -> socket.socket:
    """A socket at the host's address; where that is none of this machine's, at all of this machine's.

    Raises:
        OSError: there is no address at all.
    """
    candidates: list[tuple[int, Any]] = [(socket.AF_INET6, ("::", 0))]
    with suppress(OSError, ValueError):
        candidates = _addresses(host, 0) + candidates
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


def _parse(datagram: bytes) -> ReadMetrics | None:
    """The counters of a datagram, or None when it is not one of ours."""
    try:
        values = orjson.loads(datagram)
    except ValueError:
        return None
    known = isinstance(values, dict) and values.keys() == asdict(ReadMetrics()).keys()
    sane = known and all(type(each) in (int, float) and each >= 0 for each in values.values())
    return ReadMetrics(**values) if sane else None

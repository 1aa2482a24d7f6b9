"""Receiver on the driver that adds up the counters that tasks send, in total and by micro-batch.

The kernel drops datagrams that do not begin with a secret token. Without this filter, a flood of forged reports would
fill the socket's buffer, so that reports of tasks would be lost, and would take a core of the driver. The filter is a
program for the kernel's packet filter (Linux: `socket(7)`, `SO_ATTACH_FILTER`; `linux/filter.h`). It needs no rights.
"""

from __future__ import annotations

import ctypes
import hmac
import logging
import os
import re
import selectors
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import orjson
from cachetools import LRUCache

from tiered_stream.model import REPORT_TOKEN_BYTES, ReportAddress
from tiered_stream.observe.read_metrics import LATENCY_BOUNDS_MS, MicroBatchId, ReadMetrics, socket_addresses, within

log = logging.getLogger(__name__)

_LARGEST_DATAGRAM = 4096
_MICRO_BATCHES = 1024
"""Maximum number of micro-batches whose counters wait for `take_micro_batch`."""
_PARTS = 1 << 16
"""Maximum number of input partitions whose names are remembered, to detect a second report of the same one."""
_AT_ONCE = 10_000
"""Maximum number of datagrams that one call of `drain` receives, so that the call ends although more keep arriving."""
_WAITING_BYTES = 4 << 20
"""Size of the socket's receive buffer in bytes. Linux grants an ordinary user at most `net.core.rmem_max`."""
_COUNTERS = asdict(ReadMetrics())
_KEYS = _COUNTERS.keys() | {"micro_batch", "part"}
_LARGEST = 1 << 48
"""Upper limit of a counter: 256 TiB, or 2.8e14 records. Sums of 32,768 such counters fit in 64 bits."""
_LATENCIES = (*map(within, LATENCY_BOUNDS_MS), "remote_fetch_requests")
"""Counters in ascending order: in a valid report, no counter is larger than the next one."""
_NAME = re.compile(r"[\w-]{0,36}", re.ASCII)
"""Form of a query's id and of an input partition's name, so that neither adds lines to a log."""
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Report:
    """Counters that a task has sent (`metrics`). `micro_batch` is None in a batch query.

    `part` is the name of the input partition that the task has read. It is empty if the task has not read a whole input
    partition. `is_repeated` is true if another task has reported this input partition before. Then `metrics` counts no
    records, only the cost of reading.
    """

    micro_batch: MicroBatchId | None
    metrics: ReadMetrics
    part: str = ""
    is_repeated: bool = False


OnReport = Callable[[Report], None]


class MetricsReceiver(AbstractContextManager["MetricsReceiver"]):
    """Receiver that adds up the counters that tasks send to `address` (`host:port`), until `close` is called.

    Spark may read an input partition several times: it repeats a failed or slow task, and `foreachBatch` may use its
    micro-batch more than once. The sums count the rows once, and the cost of every read. Sums include all datagrams
    that have arrived at this machine.

    Anybody may send datagrams. Only datagrams that begin with the receiver's random token are counted. On Linux, the
    kernel drops all others (`accept_only`).

    A query never fails because of metrics. If no address can be bound, a warning is logged, `address` is empty, and all
    sums stay zero.

    Args:
        host: the name or address by which tasks reach this machine (Spark: `spark.driver.host`).
        bind: the address of this machine to listen at (Spark: `spark.driver.bindAddress`), by default `host`. If it is
            not an address of this machine, as behind NAT, the receiver listens at all addresses.
        on_report: called with each report, after it is added to the sums, in the receiver's thread or in the thread
            that calls `drain`.
    """

    def __init__(self, host: str = "127.0.0.1", bind: str | None = None, on_report: OnReport | None = None) -> None:
        self.address = ""
        self.report_to: tuple[ReportAddress, ...] = ()
        """Address and token for `read_metrics.send`; empty if no port could be opened."""
        self._token = os.urandom(REPORT_TOKEN_BYTES)
        self._on_report = on_report
        self._lock = threading.RLock()
        self._total = ReadMetrics()
        self._micro_batches: LRUCache[MicroBatchId, ReadMetrics] = LRUCache(_MICRO_BATCHES)
        self._parts: LRUCache[str, bool] = LRUCache(_PARTS)
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, name="metrics-receiver", daemon=True)
        try:
            self._sockets += socket.socketpair()  # a byte in it wakes the thread, but closing a socket does not
            self._sockets.append(listening := _bound(bind or host, self._token))
            self._thread.start()
        except (OSError, RuntimeError) as error:
            self.close()
            log.warning("the costs of reading are not counted: no port can be opened on %s: %s", bind or host, error)
            return
        name = host.strip("[]")
        self.address = f"{f'[{name}]' if ':' in name else name}:{listening.getsockname()[1]}"
        self.report_to = (ReportAddress(self.address, self._token),)

    def total(self) -> ReadMetrics:
        """Return the sum of the counters received since the receiver was created."""
        with self._lock:
            self.drain()
            return replace(self._total)

    def take_micro_batch(self, micro_batch: MicroBatchId) -> ReadMetrics:
        """Return the sum of the counters of one micro-batch's tasks, and forget these counters.

        All counters are 0 if no task of the micro-batch has reported.
        """
        with self._lock:
            self.drain()
            return self._micro_batches.pop(micro_batch, ReadMetrics())

    def take_before(self, micro_batch: MicroBatchId) -> ReadMetrics:
        """Return the sum of the counters of all earlier micro-batches of the same query, and forget these counters.

        Micro-batches that were returned before are left out.
        """
        earlier = ReadMetrics()
        with self._lock:
            self.drain()
            for known in [known for known in self._micro_batches if known[0] == micro_batch[0] and known < micro_batch]:
                earlier.add(self._micro_batches.pop(known))
        return earlier

    def forget(self, query_id: str) -> None:
        """Forget the counters of a query's micro-batches, because the query's next run may repeat a micro-batch."""
        self.take_before((query_id, sys.maxsize))

    def close(self) -> None:
        """Stop listening and close the socket. The sums stay available."""
        if self._thread.is_alive():
            self._sockets[0].send(b"x")
            self._thread.join()
            self.drain()
        for opened in self._sockets:
            opened.close()

    def drain(self) -> None:
        """Count the datagrams (at most 10,000) that have arrived at this machine, in the calling thread."""
        with self._lock:
            received: deque[bytes] = deque()
            left = _AT_ONCE if self.address else 0
            while True:
                # Before each report that is counted, all others are received: counting one takes as long as receiving
                # ten, and the kernel drops reports when its buffer is full. 4,000 cores may send as many within 0.1 s.
                while left and (datagram := self._receive()) is not None:
                    received.append(datagram)
                    left -= 1
                if not received:
                    return
                self._take(received.popleft())

    def _receive(self) -> bytes | None:
        """Return a datagram that has arrived; None: none is left, or the receiver is closed."""
        try:
            return self._sockets[-1].recv(_LARGEST_DATAGRAM, socket.MSG_DONTWAIT)
        except OSError:
            return None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        _, wake_up, listening = self._sockets
        with selectors.DefaultSelector() as selector:
            for readable in (listening, wake_up):
                selector.register(readable, selectors.EVENT_READ)
            while all(key.fileobj is not wake_up for key, _ in selector.select()):
                self.drain()

    def _take(self, datagram: bytes) -> None:
        report = parse_datagram(datagram, self._token)
        if report is None:
            return
        if report.part in self._parts:
            report = replace(report, metrics=report.metrics.without_rows(), is_repeated=True)
        elif report.part:
            self._parts[report.part] = True
        self._total.add(report.metrics)
        if report.micro_batch:
            self._micro_batches.setdefault(report.micro_batch, ReadMetrics()).add(report.metrics)
        if self._on_report is not None:
            self._on_report(report)


def _bound(host: str, token: bytes) -> socket.socket:
    """Return a UDP socket for datagrams with `token`, bound to the address of `host`.

    If this address cannot be bound, the socket is bound to all addresses.
    """
    candidates: list[tuple[int, Any]] = [(socket.AF_INET6, ("::", 0))]
    with suppress(OSError, ValueError):
        candidates = socket_addresses(host, 0) + candidates
    for family, address in candidates:
        with suppress(OSError):
            return _listening(family, address, token)
    return _listening(socket.AF_INET, ("0.0.0.0", 0), token)


def _listening(family: int, address: Any, token: bytes) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_DGRAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WAITING_BYTES)
        if family == socket.AF_INET6:  # so that `::` also listens at all IPv4 addresses
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        accept_only(listening, token)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


def parse_datagram(datagram: bytes, token: bytes) -> Report | None:
    """Parse the datagram of a task.

    The result is None if the datagram does not have the form that `read_metrics.send` gives it, or does not begin with
    `token`.
    """
    if not hmac.compare_digest(datagram[: len(token)], token):
        return None
    try:
        values = orjson.loads(datagram[len(token) :])
    except ValueError:
        return None
    if not isinstance(values, dict) or values.keys() != _KEYS:
        return None
    micro_batch, part = values.pop("micro_batch"), values.pop("part")
    if not (isinstance(part, str) and _NAME.fullmatch(part) and _are_possible(values)):
        return None
    match micro_batch:
        case None:
            return Report(None, ReadMetrics(**values), part)
        case [str(query_id), int(batch_id)] if _NAME.fullmatch(query_id) and 0 <= batch_id <= _LONG_MAX:
            return Report((query_id, batch_id), ReadMetrics(**values), part)
    return None


def _are_possible(counters: Mapping[str, Any]) -> bool:
    """Return whether each counter has its type and is within its bounds, and no latency bucket exceeds the next one."""
    for name, value in counters.items():
        largest = _LONG_MAX if name == "record_timestamp_max" else _LARGEST
        if type(value) is not type(_COUNTERS[name]) or not 0 <= value <= largest:
            return False
    return all(counters[name] <= counters[larger] for name, larger in pairwise(_LATENCIES))


_SO_ATTACH_FILTER = 26
_UDP_HEADER = 8
"""Bytes in front of a datagram's content that the filter of a UDP socket sees."""
_LOAD, _XOR, _SAVE, _TO_X, _LOAD_SAVED, _OR_X = 0x20, 0xA4, 0x02, 0x07, 0x60, 0x4C
_JUMP_IF_EQUAL, _RETURN = 0x15, 0x06
_WHOLE, _NOTHING = 0xFFFFFFFF, 0


def accept_only(listening: socket.socket, secret: bytes) -> None:
    """Let the kernel drop each datagram that does not begin with `secret`, in a time that does not depend on its bytes.

    Call the function before the socket is bound. It does nothing on systems without Linux's `SO_ATTACH_FILTER`, where
    `parse_datagram` alone compares the secret.

    Args:
        listening: UDP socket.
        secret: bytes whose number is a multiple of 4.
    """
    with suppress(OSError):
        program = b"".join(struct.pack("HBBI", *instruction) for instruction in _instructions(secret))
        code = ctypes.create_string_buffer(program)
        size = len(program) // struct.calcsize("HBBI")
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", size, ctypes.addressof(code)))


def _instructions(secret: bytes) -> list[tuple[int, int, int, int]]:
    """Return the instructions (Linux: `struct sock_filter`) of a filter that accepts only datagrams with `secret`.

    An instruction is a tuple: code, steps to skip if true, steps to skip if false, value. The differences of all words
    are combined by OR before they are compared with 0. The kernel drops a datagram that is too short for a load.
    """
    instructions: list[tuple[int, int, int, int]] = []
    for number, (word,) in enumerate(struct.iter_unpack(">I", secret)):
        instructions += [(_LOAD, 0, 0, _UDP_HEADER + 4 * number), (_XOR, 0, 0, word)]
        if number:
            instructions += [(_TO_X, 0, 0, 0), (_LOAD_SAVED, 0, 0, 0), (_OR_X, 0, 0, 0)]
        instructions.append((_SAVE, 0, 0, 0))
    return [*instructions, (_JUMP_IF_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _WHOLE), (_RETURN, 0, 0, _NOTHING)]

"""Sender of forged reports to ports of this machine: `python -m tests.rigs.flood.sender RATE PORT...`.

It sends until its standard input ends, and then prints how many it has sent, and in how many seconds.

A call for each datagram would take 0.6 of a core of this machine, although an attacker has another machine. So each
call hands the kernel many copies of a report, which it sends as one datagram each (Linux: `udp(7)`, `UDP_SEGMENT`).
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from dataclasses import asdict
from itertools import cycle

import orjson

from tiered_stream.model import REPORT_TOKEN_BYTES
from tiered_stream.observe.metrics import ReadMetrics

LINE = "a\nmicro-batch 7 of query forged: 1,000,000 rows read"
"""What would forge a line of the log as a query's id."""
_UDP_SEGMENT = 103
_AT_ONCE = 60
"""Datagrams of one call; Linux takes at most 64."""
_CALL_BYTES = 60_000
_EARLY_SECONDS = 0.01
"""Each wake-up would interrupt what runs on this core, so the sender sleeps when it is so much ahead of its rate."""


def forged() -> list[bytes]:
    """Reports that would count, forge lines, and fill memory if the token were not compared."""
    counted = asdict(ReadMetrics(records=1_000_000, remote_fetch_requests=10**18, broker_fetch_bytes=2**64 - 1))
    contents = [
        orjson.dumps({**counted, "micro_batch": [query, 3], "part": part})
        for query in ("forged", LINE)
        for part in (os.urandom(8).hex(), "p" * 3_000)
    ]
    return [os.urandom(REPORT_TOKEN_BYTES) + each for each in contents] + contents


def main() -> None:
    rate, ports = int(sys.argv[1]), [int(port) for port in sys.argv[2:]]
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    targets = cycle([(each, ("127.0.0.1", port)) for each in forged() for port in ports])
    begin, sent = time.monotonic(), 0
    while not (sent and select.select([sys.stdin], [], [], 0)[0]):
        report, address = next(targets)
        copies = min(_AT_ONCE, _CALL_BYTES // len(report))
        sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, len(report))
        sender.sendto(report * copies, address)
        sent += copies
        if (early := begin + sent / rate - time.monotonic()) > _EARLY_SECONDS:
            time.sleep(early)
    sys.stdout.write(json.dumps({"sent": sent, "seconds_sent": time.monotonic() - begin}))


if __name__ == "__main__":
    main()

"""The direct lane from an S3 endpoint that behaves like S3, beside the same without delay."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import DIRECT, landing, lane_into
from tests.rigs.bench.rig import WARM_UP, Rig
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.rigs.stack.build import ROOT
from tests.rigs.stack.processes import ServiceProcess, free_ports, listens

UNDELAYED = "the same, undelayed"
SPEEDS: Mapping[str, tuple[float, int]] = {
    "50 ms, 60 MB/s": (0.05, 60_000_000),
    "100 ms, 30 MB/s": (0.1, 30_000_000),
    UNDELAYED: (0, 0),
}
"""Seconds to the first byte, and bytes a second of a connection."""
CLAIMS = (
    Claim("O direct lane", "50 ms, 60 MB/s", UNDELAYED, 0.8, 0.95),
    Claim("O direct lane", "100 ms, 30 MB/s", UNDELAYED, 0.6, 0.8),
)
MOST_FETCHED = 1.02
"""Times the topic's bytes in the tier."""


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """All go through a proxy, so that what it costs counts on both sides."""
    shape = rig.topic("A")
    most = MOST_FETCHED * sum(file.stat().st_size for file in rig.tier_files(shape))
    with ExitStack() as proxies:
        contenders: dict[str, Contender] = {}
        for name, speed in SPEEDS.items():
            endpoint = proxies.enter_context(slowed(rig, *speed))
            through = {"remote.storage.s3.endpoint.url": endpoint}
            warm_up, contenders[name] = (
                landing(rig, each, lane_into(rig, each, DIRECT, through)) for each in (rig.topic(WARM_UP), shape)
            )
            warm_up.run()
        yield from rows_of(CLAIMS, contenders, runs)
    for name, contender in contenders.items():
        fetched = contender.more["fetched bytes"]
        assert fetched <= most, f"{name}: {fetched} bytes were asked for, more than {most}"


@contextmanager
def slowed(rig: Rig, seconds: float, rate: int) -> Iterator[str]:
    """The endpoint of a proxy before the stack's S3 server."""
    (port,) = free_ports(1)
    words = [port, rig.stack.s3proxy.port, seconds, rate]
    command = [sys.executable, "-m", "tests.rigs.bench.slow_proxy", *map(str, words)]
    command = ["env", "-C", str(ROOT), *command]
    proxy = ServiceProcess("slow proxy", command, rig.folder / f"slow-proxy-{port}.log")
    proxy.start(lambda: listens(port))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        proxy.stop(grace=1.0)

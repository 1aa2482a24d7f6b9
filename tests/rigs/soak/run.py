"""One run: the load, the queries, a look at what everything holds again and again, and whether a figure is flat.

The median of a figure in the last quarter of a run is held against the median in the second one.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from kafka.protocol.consumer.offsets import OffsetSpec

from tests.gateway.running import RunningGateway
from tests.rigs.soak.clients import Clients
from tests.rigs.soak.driver import TRIGGERS, Queries
from tests.rigs.soak.held import DESCRIPTORS, FILES, MEMORY, MIB, SIZE, THREADS, cpu_seconds, family, files_in, held_by
from tests.rigs.soak.produced import PARTITIONS, TOPIC, TRANSACTIONAL, Count, Producers, count
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, offsets

DRIVER, JVM, WORKERS, GATEWAY = "driver's Python", "driver's JVM", "Python workers", "gateway"
HEAP, OTHER = "JVM heap after a full collection, MiB", "JVM metaspace and compiled code, MiB"
CHECKPOINTS, TEMPORARY, TABLE_LOGS = "checkpoints", "temporary folder", "logs of the tables"


@dataclass(frozen=True)
class Bound:
    """How much a figure may grow from the second quarter to the last, and why at all."""

    figure: str
    growth: float
    why: str


_WORKERS = "Spark ends workers that are idle, and starts them when tasks coincide"
_CLIENTS = "clients that are connected at that moment"
BOUNDS = (
    Bound(f"{GATEWAY}: {MEMORY}", 8, "indexes of segments that are gone, until the cache is full"),
    Bound(f"{GATEWAY}: {DESCRIPTORS}", 4, _CLIENTS),
    Bound(f"{GATEWAY}: {THREADS}", 1, "its pools start threads when they are needed"),
    Bound(f"{DRIVER}: {MEMORY}", 24, "deltalake opens the table for a commit: its state, some 9 KB more after each"),
    Bound(f"{DRIVER}: {DESCRIPTORS}", 2, "connections to the JVM"),
    Bound(f"{DRIVER}: {THREADS}", 2, "one for each connection to the JVM"),
    Bound(f"{WORKERS}: {MEMORY}", 32, _WORKERS),
    Bound(f"{WORKERS}: {DESCRIPTORS}", 12, _WORKERS),
    Bound(f"{WORKERS}: {THREADS}", 6, _WORKERS),
    Bound(HEAP, 16, "Delta's state of the tables, which get files all the time"),
    Bound(OTHER, 16, "Java compiles what has run often, hours after the start too"),
    Bound(
        f"{JVM}: {MEMORY}", 48, "all of the heap is there from the start; compiled code, and the C allocator's arenas"
    ),
    Bound(f"{JVM}: {DESCRIPTORS}", 8, "a file or socket more at that moment"),
    Bound(f"{JVM}: {THREADS}", 4, "pools that shrink and grow"),
    Bound(f"{CHECKPOINTS}: {FILES}", 6, "Spark clears away behind the queries"),
    Bound(f"{CHECKPOINTS}: {SIZE}", 0.1, "offsets get more digits"),
    Bound(f"{TEMPORARY}: {FILES}", 10, "a shuffle or broadcast at that moment"),
    Bound(f"{TEMPORARY}: {SIZE}", 1, "the same"),
)


@dataclass(frozen=True)
class Verdict:
    """`second` and `last` are medians."""

    bound: Bound
    second: float
    last: float

    @property
    def flat(self) -> bool:
        return self.last <= self.second + self.bound.growth


def judge(samples: Sequence[Mapping[str, float]], bounds: Sequence[Bound] = BOUNDS) -> list[Verdict]:
    """One verdict a bound. Samples are a like time apart; the first quarter of them is warm-up."""
    quarter = len(samples) // 4
    parts = samples[quarter : 2 * quarter], samples[-quarter:]
    return [
        Verdict(bound, *(statistics.median(sample[bound.figure] for sample in part) for part in parts))
        for bound in bounds
    ]


SAMPLES = 240
SHORTEST_PAUSE = 2.0
"""Seconds."""
RETENTION = {"segment.bytes": str(1 << 20), "retention.bytes": str(16 << 20)}
"""Of a partition: what producers send it in six minutes. By then the queries have to have read it."""
SEED = 1
MINUTES = "minutes"


@dataclass(frozen=True)
class Outcome:
    """Of a run that came to its end; `counts` by lane, `removed` by partition: offsets that retention has taken."""

    samples: list[dict[str, float]]
    counts: Mapping[str, Count]
    micro_batches: Mapping[str, int]
    removed: Mapping[int, int]
    clients: Mapping[str, int]
    aborted_records: int


class Run:
    """What runs, and what it holds."""

    def __init__(
        self, folder: Path, stack: TieredStack, gateway: RunningGateway, seconds: float, fork_faults: bool
    ) -> None:
        pause = max(SHORTEST_PAUSE, seconds / SAMPLES)
        self.queries = Queries(str(folder), gateway.bootstrap_servers, pause, seconds, fork_faults)
        self._driver = self.queries.process()
        self._stack, self._gateway, self._pause = stack, gateway, pause
        self._producers = Producers()
        with stack.broker.admin() as admin:
            (topic,) = admin.describe_topics([TOPIC])
        self._clients = Clients(gateway.bootstrap_servers, gateway.broker_port, UUID(topic["topic_id"]), SEED)

    def go_on(self, seconds: float) -> Outcome:
        """For so long; then read what is there to its end, and count.

        Raises:
            AssertionError: the driver has failed, or a client was not served.
            KafkaException: a record was refused.
        """
        self._driver.start(self.queries.heap_file.exists)
        with self._load() as under_way:
            samples = list(self._samples(seconds, under_way))
        ends = offsets(self._stack.broker, TOPIC, OffsetSpec.LATEST)
        for lane in TRIGGERS:
            wait_until(partial(self._has_landed, lane, ends), f"all to be landed by the {lane} lane")
        removed = offsets(self._stack.broker, TOPIC, OffsetSpec.EARLIEST)
        self._driver.stop()
        return Outcome(
            samples=samples,
            counts={lane: count(self.queries.table(lane), self._producers.records) for lane in TRIGGERS},
            micro_batches={lane: self._last_batch(lane) + 1 for lane in TRIGGERS},
            removed=removed,
            clients=dict(self._clients.came),
            aborted_records=self._producers.aborted,
        )

    @contextmanager
    def _load(self) -> Iterator[list[Future[None]]]:
        """Producers and clients; what one of them raises comes out in the end, or when it is looked for."""
        servers, producers = self._stack.bootstrap_servers, self._producers
        with ThreadPoolExecutor() as pool:
            under_way = [
                pool.submit(producers.produce, servers),
                *(pool.submit(producers.transact, servers, name) for name in TRANSACTIONAL),
                pool.submit(self._clients.come_and_go, producers.ended),
            ]
            try:
                yield under_way
            finally:
                producers.ended.set()
        for each in under_way:
            each.result()

    def _samples(self, seconds: float, under_way: list[Future[None]]) -> Iterator[dict[str, float]]:
        begin = time.monotonic()
        spent = self._cpu_seconds()
        while (now := time.monotonic() - begin) < seconds:
            time.sleep(self._pause)
            self._check(under_way)
            before, spent = spent, self._cpu_seconds()
            cores = (spent - before) / (time.monotonic() - begin - now)
            sample = {MINUTES: now / 60, "processors that all of it takes": cores, **self._figures()}
            with open(Path(self.queries.folder, "samples.jsonl"), "a") as file:  # to be looked at on the way
                print(json.dumps(sample), file=file)
            yield sample

    def _check(self, under_way: list[Future[None]]) -> None:
        for each in under_way:
            if each.done():
                each.result()
        assert self._driver.running, f"the driver has ended, see {self._driver.log_file}"

    def _figures(self) -> dict[str, float]:
        driver, gateway = self._driver.pid, self._gateway.process.pid
        processes = family(driver)
        jvm = [pid for pid, each in processes.items() if each.name == "java"]
        workers = [pid for pid, each in processes.items() if each.name.startswith("python")]
        groups = {GATEWAY: [gateway], DRIVER: [driver], WORKERS: workers, JVM: jvm}
        used = json.loads(self.queries.heap_file.read_text())
        folder = Path(self.queries.folder)
        logs = [files_in(self.queries.table(lane) / "_delta_log") for lane in TRIGGERS]
        return {
            **{f"{who}: {what}": value for who, pids in groups.items() for what, value in held_by(pids).items()},
            HEAP: used["heap"] / MIB,
            OTHER: used["other"] / MIB,
            **{f"{CHECKPOINTS}: {what}": value for what, value in files_in(folder / "checkpoints").items()},
            **{f"{TEMPORARY}: {what}": value for what, value in files_in(self.queries.temporary).items()},
            f"{TABLE_LOGS}: {SIZE}": sum(log[SIZE] for log in logs),
            **{f"micro-batches, {lane} lane": self._last_batch(lane) + 1.0 for lane in TRIGGERS},
        }

    def _cpu_seconds(self) -> float:
        ours = [self._driver.pid, *family(self._driver.pid)]
        return cpu_seconds(
            [*ours, self._gateway.process.pid, self._stack.broker.process.pid, self._stack.s3proxy.process.pid]
        )

    def _last_batch(self, lane: str) -> int:
        """The newest that the checkpoint counts as done; -1 before the first."""
        return max((int(file.name) for file in self.queries.checkpoint(lane).glob("commits/[0-9]*")), default=-1)

    def _has_landed(self, lane: str, ends: Mapping[int, int]) -> bool:
        assert self._driver.running, f"the driver has ended, see {self._driver.log_file}"
        planned = self.queries.checkpoint(lane) / "offsets" / str(self._last_batch(lane))
        reached = json.loads(planned.read_text().splitlines()[-1])[TOPIC]
        return all(reached[str(partition)] >= end for partition, end in ends.items())


def run(folder: Path, minutes: float, fork_faults: bool = False) -> Outcome:
    """Everything in `folder`."""
    with TieredStack(folder / "stack") as stack, RunningGateway(folder / "gateway", stack.options()) as gateway:
        create_tiered_topic(stack.broker, TOPIC, PARTITIONS, RETENTION)
        return Run(folder, stack, gateway, minutes * 60, fork_faults).go_on(minutes * 60)

"""What the measurements share: a broker and an S3 endpoint with topics that are kept, places for tables, Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from tests.rigs.bench.shapes import Shape, Topics, scaled
from tests.rigs.soak.held import family
from tests.rigs.stack.broker import MEASURED_JVM_OPTIONS
from tests.rigs.stack.broker_counters import Counters, jmx_options, read_counters
from tests.rigs.stack.build import ROOT, build_folder
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.s3_client import REGION, s3a_settings
from tests.rigs.stack.spark import UNCHECKED_ARROW, spark_session
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.delta.write.file_systems import delta_storage_options

BUCKET = "lake"


@dataclass(frozen=True)
class Lake:
    """`folder` on this machine is what Spark knows as `uri`, with the settings `session`."""

    where: str
    folder: Path
    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    session: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Lake, Lake]]:
    """Both, while the server runs."""
    tables = folder / "tables"
    tables.mkdir()
    with VersityGateway(folder / "versitygw", folder / "buckets") as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield Lake("in a folder", tables, str(tables)), _in_s3(server)


def _in_s3(server: VersityGateway) -> Lake:
    keys = server.access_key, server.secret_key
    storage = TableStorage(server.endpoint, REGION, True, *keys)
    session = {f"spark.hadoop.{name}": value for name, value in s3a_settings(server.endpoint, *keys, BUCKET).items()}
    return Lake("in S3", server.base_dir / BUCKET, f"s3a://{BUCKET}", delta_storage_options(storage, BUCKET), session)


KEPT = ROOT / "build" / "bench-topics"
"""Made once: a broker's and an object store's data. Safe to delete while no bench runs."""
WARM_UP = "warm-up"
WORKERS = "tiered_stream.worker_daemon"
TUNED = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.isolation.level": "read_committed",  # the default of our source
}
"""Spark's own source with fetches of 16 MiB."""


@dataclass
class Rig:
    """`shapes` are all there are, as large as `scale` says; `topic` makes one where it is not there yet.

    `unchecked`: Spark's session leaves out the checks of Arrow's Java library, as docs/tuning.md advises for some jobs.
    """

    folder: Path
    stack: TieredStack
    lakes: tuple[Lake, Lake]
    shapes: Mapping[str, Shape]
    scale: float
    unchecked: bool
    _topics: Topics
    _jmx_port: int
    _lighter: VersityGateway
    """It serves the tier as the stack's S3Proxy does, for fewer of the core seconds that a run of ours has."""

    def topic(self, name: str) -> Shape:
        return self.made(self.shapes[name])

    def made(self, shape: Shape) -> Shape:
        return self._topics.ensure(shape)

    def broker_counters(self, topic: str) -> Counters:
        """What the broker has sent of the topic since it started."""
        return read_counters(self.stack.broker, self._jmx_port, topic)

    @cached_property
    def spark(self) -> SparkSession:
        """As docs/tuning.md has it; many a peer's run is longer than the minute after which Spark's own workers end."""
        settings = {
            **(UNCHECKED_ARROW if self.unchecked else {}),
            "spark.python.daemon.module": WORKERS,
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.driver.memory": "3g",  # `kafka` runs out of 2 in records of 900 KB, after other workloads
        }
        return spark_session(
            "bench", ("delta", "spark-kafka", "spark-avro", "s3a"), {**self.lakes[1].session, **settings}
        )

    def options(self, shape: Shape) -> dict[str, str]:
        """With which ours reads all of a topic."""
        return {**self.stack.options(), "subscribe": shape.topic, "startingOffsets": "earliest"}

    def lighter_options(self, shape: Shape) -> dict[str, str]:
        """The same, from versitygw."""
        return {**self.options(shape), **self._lighter.options()}

    def kafka_options(self, shape: Shape) -> dict[str, str]:
        """With which Spark's own source does, as it comes."""
        servers = {"kafka.bootstrap.servers": self.stack.bootstrap_servers}
        return {**servers, "subscribe": shape.topic, "startingOffsets": "earliest"}

    def tier_files(self, shape: Shape) -> list[Path]:
        """The topic's segments in the object store's folder."""
        return sorted(self.stack.tier_dir.glob(f"{shape.topic}-*/*.log"))

    def key(self, file: Path) -> str:
        """Of an object, by its file."""
        return str(file.relative_to(self.stack.tier_dir))

    def copy_tier(self, shape: Shape, upload: Callable[[str, bytes], object]) -> None:
        """Upload the objects of the topic's segments, indexes included."""
        for folder in {file.parent for file in self.tier_files(shape)}:
            for file in folder.iterdir():
                upload(self.key(file), file.read_bytes())

    def settle(self, shape: Shape) -> None:
        """Bring the topic into the page cache, and the last run's writes to the disk.

        What a kernel drops meanwhile, or still has to write, is no side's business: it would be that of whoever comes
        after the longest run. The peak memory of Spark's workers, which live on between runs, begins again.
        """
        os.sync()
        for process in family(os.getpid()).values():
            if WORKERS in process.arguments:
                with suppress(OSError):  # it has ended
                    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        block = bytearray(1 << 20)
        for path in (*self.tier_files(shape), *self.stack.broker.logs_dir.glob(f"{shape.topic}-*/*.log")):
            with suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:  # retention takes local ones
                while file.readinto(block):
                    pass


@contextmanager
def running(scale: float, unchecked: bool) -> Iterator[Rig]:
    """A rig, while its services run."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (jmx_port,) = free_ports(1)
    with (
        _held_alone(KEPT / "lock"),
        build_folder("bench") as folder,
        TieredStack(
            KEPT / "stack",
            jvm_options=(*MEASURED_JVM_OPTIONS, *jmx_options(jmx_port), "-Xmx1g"),
            s3_jvm_options=(),
        ) as stack,
        serving(folder) as lakes,
        VersityGateway(folder / "versitygw-tier", stack.tier_dir.parent) as lighter,
    ):
        rig = Rig(folder, stack, lakes, scaled(scale), scale, unchecked, Topics(stack, KEPT), jmx_port, lighter)
        try:
            yield rig
        finally:
            if "spark" in vars(rig):
                rig.spark.stop()


@contextmanager
def _held_alone(path: Path) -> Iterator[None]:
    """A second broker on the same folder would spoil its log."""
    with path.open("w") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another bench runs with the topics of {path.parent}: wait for its end") from None
        yield


def machine() -> dict[str, object]:
    """When and where the bench runs: how many cores there are, and how busy they are."""
    return {"date": date.today().isoformat(), "cores": os.cpu_count(), "load": os.getloadavg()}

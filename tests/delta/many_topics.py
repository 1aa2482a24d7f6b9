"""500 topics into 500 tables by one query, its driver killed on the way: `python -m tests.delta.many_topics`.

A third of them has JSON, a third Avro by a real schema registry, a third bytes. Every record has to be in its table
once, with every value. Prints how long it takes to the first commit, what a batch takes, and the driver's memory.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from rich.console import Console

from tests.delta.driver import kill_group
from tests.delta.topics_of_formats import FORMATS, RECORDS, check_table, format_settings, topic_names, write_topics
from tests.rigs.stack.apicurio import Apicurio
from tests.rigs.stack.processes import LONG, wait_until
from tests.rigs.stack.spark import ROOT, spark_environment

console = Console(highlight=False, soft_wrap=True)

_PAUSE = 0.5
"""Seconds between looks at all logs, which takes a tenth of that."""


@dataclass(frozen=True)
class Drive:
    """What one driver process does: everything there is, in micro-batches of so many offsets."""

    bucket: str
    folder: str
    limit: int
    given: Mapping[str, str]

    @property
    def lake(self) -> Path:
        return Path(self.folder, "lake")

    def start(self) -> subprocess.Popen[bytes]:
        """In a process group of its own."""
        command = [sys.executable, "-m", "tests.delta.many_topics", "drive", json.dumps(asdict(self))]
        with Path(self.folder, "log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=spark_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def commits(self) -> int:
        """Of all tables, but for those that made them."""
        logs = self.lake.glob("*/_delta_log/*.json")
        return sum(not file.name.endswith("0" * 20 + ".json") and not file.name.startswith(".") for file in logs)

    def progress(self) -> list[dict[str, float]]:
        """Of each batch that a run has ended."""
        return [json.loads(line) for line in Path(self.folder, "progress").read_text().splitlines()]


def drive(run: Drive) -> None:
    from tests.rigs.stack.spark import spark_session
    from tiered_stream import land

    spark = spark_session("many topics", groups=("delta",))
    options = {
        "remote.log.locator": "archive",
        "remote.storage.layout": "aiven",
        "remote.storage.uri": Path(run.bucket).as_uri(),
        "subscribePattern": f"({'|'.join(FORMATS)})-.*",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(run.limit),
        **run.given,
    }
    query = land(spark, options=options, table=f"{run.lake}/{{topic}}", checkpoint=f"{run.folder}/checkpoint")
    query.awaitTermination()
    with Path(run.folder, "progress").open("a") as file:
        for each in query.recentProgress:
            if each.numInputRows:
                file.write(json.dumps({"batch": each.batchId, **each.durationMs, **memory()}) + "\n")
    spark.stop()


def memory() -> dict[str, int]:
    """The most that the processes of this group have had, in MiB: Python's, and Java's."""
    found = {"python_mib": 0, "java_mib": 0}
    for process in _processes(os.getpgrp()):
        with suppress(OSError, ValueError):
            lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            kind = "java_mib" if lines["Name"].strip() == "java" else "python_mib"
            found[kind] += int(lines.get("VmHWM", "0").split()[0]) >> 10
    return found


def cpu_seconds(group: int) -> float:
    """What the processes of the group have used so far, those that have ended included."""
    ticks = 0
    for process in _processes(group):
        with suppress(OSError):
            # proc(5): utime, stime, cutime and cstime are the fields 14 to 17; the name, the second, may have blanks.
            ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes(group: int) -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                yield process


def run_all(run: Drive, topics: int, kills: int, random: Random) -> None:
    """To the end; the driver dies when the tables have so many commits, a number within each part of the way."""
    batches = -(-topics * RECORDS // run.limit)
    part = topics * batches / (kills + 1)
    for number in range(kills):
        at = int(part * (number + random.uniform(0.3, 0.9)))
        _until(run, at)
        console.print(f"killed after {run.commits():,} commits of {topics * batches:,}")
    begun, before = time.monotonic(), run.commits()
    process = run.start()
    wait_until(lambda: run.commits() > before or process.poll() is not None, "a commit", pause=_PAUSE)
    console.print(f"start to first commit: {time.monotonic() - begun:.1f} s, {cpu_seconds(process.pid):.1f} s of CPU")
    status = process.wait(LONG)
    kill_group(process.pid)
    assert status == 0, Path(run.folder, "log").read_text()[-4000:]


def _until(run: Drive, commits: int) -> None:
    process = run.start()
    try:
        wait_until(
            lambda: run.commits() >= commits or process.poll() is not None,
            f"{commits} commits",
            timeout=LONG,
            pause=_PAUSE,
        )
        assert process.poll() is None, Path(run.folder, "log").read_text()[-4000:]
    finally:
        kill_group(process.pid)
        assert process.wait() in (-signal.SIGKILL, 1)


def check(run: Drive, topics: Sequence[str]) -> None:
    """Each record is in its topic's table, once."""
    assert sorted(each.name for each in run.lake.iterdir()) == sorted(topics)
    for topic in topics:
        check_table(run.lake / topic)


def land_all(folder: Path, topics: int, kills: int, batches: int, seed: int, **given: str) -> Drive:
    """Make the topics, land them, check the tables."""
    names = topic_names(topics)
    with Apicurio(folder) as registry:
        write_topics(folder / "tier", names, registry)
        given |= format_settings(names, registry)
        run = Drive(str(folder / "tier"), str(folder), topics * RECORDS // batches, given)
        run_all(run, topics, kills, Random(seed))
    check(run, names)
    return run


def main() -> None:
    topics, kills = int(sys.argv[1]) if len(sys.argv) > 1 else 500, 5
    with tempfile.TemporaryDirectory(prefix="many-topics-") as name:
        run = land_all(Path(name), topics, kills, 4, time.time_ns() % 1000)
        ended = run.progress()
        for each in ended:
            console.print(
                f"batch {each['batch']}: {each['triggerExecution'] / 1000:.2f} s, {each['addBatch'] / 1000:.2f} to land"
            )
        if ended:
            console.print(
                f"seconds a batch: {statistics.median(each['triggerExecution'] for each in ended) / 1000:.2f}"
            )
            console.print(f"driver memory: Python {ended[-1]['python_mib']:,} MiB, Java {ended[-1]['java_mib']:,} MiB")
        console.print(f"{topics} topics, {topics * RECORDS:,} records: each in its table, once, after {kills} kills")


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        drive(Drive(**json.loads(sys.argv[2])))
    else:
        main()

"""What commands, a plain query and the job say about a setup, after how many seconds, with which exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.setups.forked import Ran
from tests.setups.place import TOPIC, Place
from tests.stack.jars import jar_paths
from tests.stack.spark import DELTA, LOCAL, SHORT_LIVED, spark_environment

SETTINGS = "orders.properties"
DOCTOR, REPLAY, QUERY, JOB = "doctor", "replay", "batch query", "ingest"
COMMANDS = (DOCTOR, "cat", "plan", "segments", "lag", "export", REPLAY, JOB)
_PROGRESS = re.compile(r"export: \d|ingest \S+: (direct lane|started|so far|batch|in all)|Start the job again")
_ERROR = re.compile(r"tiered_stream\.\S+\.(\w+Error: .*)")
_WARNING = re.compile(r"\d\d/\d\d/\d\d [\d:]+ WARNING \w+: (.*)")
"""A warning of this package in Spark's log."""
_HTTP, _ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+"), re.compile(r"127\.0\.0\.1:\d+")
_TOPIC_ID = re.compile(rf"({TOPIC}-(?:\d+-)?)[A-Za-z0-9_-]{{22}}(?=/)")
_SEGMENT = re.compile(r"\d{20}-[A-Za-z0-9_-]{22}")


@dataclass(frozen=True)
class Outcome:
    """What one command, query or job has said, its exit status (of a query: 1 if it raised), and its seconds."""

    says: str
    status: int
    seconds: float


Run = Callable[[Sequence[str], Path], Ran]
"""Runs `tiered-stream` with arguments; the folder gets what it prints."""


class BatchQueries:
    """A Spark program of its own that runs batch queries; it ends with the block."""

    def __init__(self, folder: Path) -> None:
        self._log_file = folder / "queries.log"

    def __enter__(self) -> Self:
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.setups.query_program"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=spark_environment(),
            )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, settings: Path) -> Outcome:
        """Run a query with these settings to its end."""
        assert self._process.stdin and self._process.stdout
        before, begin = self._log_file.stat().st_size, time.monotonic()
        self._process.stdin.write(f"{settings}\n")
        self._process.stdin.flush()
        raised: str = json.loads(self._process.stdout.readline())
        seconds = time.monotonic() - begin
        if raised:
            found = _ERROR.findall(raised)
            return Outcome(found[-1] if found else raised, 1, seconds)
        warned = self._log_file.read_bytes()[before:].decode()
        return Outcome("\n".join(_WARNING.findall(warned)), 0, seconds)


def commands(folder: Path) -> dict[str, list[str]]:
    """The arguments of each of the `COMMANDS`, but for the settings."""
    jars = ",".join(map(str, jar_paths("delta")))
    conf = {**LOCAL, **SHORT_LIVED, **DELTA, "spark.jars": jars, "spark.driver.memory": "1g"}
    return {
        DOCTOR: [],
        "cat": [],
        "plan": [],
        "segments": [],
        "lag": ["--checkpoint", str(folder / "checkpoint")],
        "export": ["--into", str(folder / "orders.parquet")],
        REPLAY: ["--from", "0", "--into", str(folder / "replayed"), "--dry-run"],
        JOB: [
            *(word for name, value in conf.items() for word in ("--spark-conf", f"{name}={value}")),
            *("--table", str(folder / "table"), "--checkpoint", str(folder / "job-checkpoint")),
        ],
    }


def write_checkpoint(folder: Path) -> None:
    """A streaming query's checkpoint, as Spark writes it, whose only micro-batch ended at offset 10."""
    for log, lines in {"offsets": ["v1", "{}", json.dumps({TOPIC: {"0": 10}})], "commits": ["v1", "{}"]}.items():
        (folder / "checkpoint" / log).mkdir(parents=True)
        (folder / "checkpoint" / log / "0").write_text("\n".join(lines))


def outcomes(
    place: Place, folder: Path, settings: Mapping[str, str], run: Run, queries: BatchQueries,
    names: Collection[str] = COMMANDS, *, at_once: int = 3,
) -> dict[str, Outcome]:  # fmt: skip
    """Run these commands with the settings, and the batch query; return what was said, by who said it."""
    folder.mkdir(parents=True)
    write_checkpoint(folder)
    file = folder / SETTINGS
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    wanted = {name: words for name, words in commands(folder).items() if name in names}

    def one(name: str) -> Outcome:
        ran = run([name, "--settings", str(file), *wanted[name]], folder)
        return Outcome(_said(name, ran), ran.status, ran.seconds)

    with ThreadPoolExecutor(at_once) as pool:
        found = dict(zip(wanted, pool.map(one, wanted), strict=True))
    found[QUERY] = queries.run(file)
    return {name: Outcome(shown(each.says, place, folder), each.status, each.seconds) for name, each in found.items()}


def _said(command: str, ran: Ran) -> str:
    """Return what a command says about its setup: errors, warnings, and of the doctor's report what is not right."""
    if command == DOCTOR:
        lines = ran.output.splitlines()
        findings = [at for at, line in enumerate(lines) if line.startswith(("✗", "!"))]
        return "\n".join(f"{lines[at]}\n{lines[at + 1].strip()}" for at in findings)
    if command == JOB:
        text = "\n".join((*_WARNING.findall(ran.errors), ran.output))
    else:
        text = ran.output if ran.status and command == REPLAY else ran.errors
    return "\n".join(line for line in text.splitlines() if line.strip() and not _PROGRESS.match(line))


def shown(text: str, place: Place, folder: Path) -> str:
    """Return the text with names in place of what differs from run to run: ports, ids and folders."""
    text = text.replace(f"{folder}/", "")
    text = _HTTP.sub("http://s3.example:9000", text)
    text = text.replace(f"127.0.0.1:{place.site.tier_by_lake.port}", "s3.example:9000")
    text = _ADDRESS.sub("broker1:9092", text)
    return _SEGMENT.sub("SEGMENT", _TOPIC_ID.sub(r"\1TOPIC_ID", text))

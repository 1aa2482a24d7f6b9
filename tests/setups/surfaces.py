"""What commands, a plain query and the job say about a setup, after how many seconds, with which exit status."""

from __future__ import annotations

import atexit
import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from tests.forking_python import COMMAND, IMPORTS, ForkingPython
from tests.rigs.stack.children import Child
from tests.setups.place import TOPIC, Place
from tests.setups.spark_program import serve

SETTINGS = "orders.properties"
DOCTOR, REPLAY, QUERY, JOB = "doctor", "replay", "batch query", "ingest"
COMMANDS = (DOCTOR, "cat", "plan", "segments", "lag", "export", REPLAY)
_PROGRESS = re.compile(r"export: \d|ingest \S+: (direct lane|started|so far|batch|in all)|Start the job again")
_ERROR = re.compile(r"tiered_stream\.\S+\.(\w+Error: .*)")
_WARNING = re.compile(r"\d\d/\d\d/\d\d [\d:]+ WARNING \w+: (.*)")
"""A warning of this package in Spark's log."""
_WAIT = re.compile(r"^still trying: .*\n?|^still trying to reach .*\n?", re.MULTILINE)
_HTTP, _ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+"), re.compile(r"127\.0\.0\.1:\d+")
_TOPIC_ID = re.compile(rf"({TOPIC}-(?:\d+-)?)[A-Za-z0-9_-]{{22}}(?=/)")
_TIMED_OUT = re.compile(r"Timed out after \d+ ms")
_METADATA_OFFSET = re.compile(r"(__remote_log_metadata-\d+, offset )\d+")
_SEGMENT = re.compile(r"\d{20}-[A-Za-z0-9_-]{22}")


@dataclass(frozen=True)
class Outcome:
    """What one command, query or job has said, its exit status (of a query: 1 if it raised), and its seconds."""

    says: str
    status: int
    seconds: float


_FREE: SimpleQueue[ForkingPython] = SimpleQueue()
"""Pythons for commands, because several commands run at once."""


class SparkProgram:
    """A process with a Spark session (`spark_program`), which ends with the block."""

    def __init__(self, folder: Path) -> None:
        self._log_file = folder / "spark.log"

    def __enter__(self) -> Self:
        self._child = Child(self._log_file, serve)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.__exit__()

    def query(self, settings: Path) -> Outcome:
        """Run a batch query with these settings to its end."""
        raised, warnings, seconds = self._ask({"settings": str(settings)})
        if not raised:
            return Outcome(warnings, 0, seconds)
        found = _ERROR.findall(str(raised))
        return Outcome(found[-1] if found else str(raised), 1, seconds)

    def job(self, settings: Path, folder: Path) -> Outcome:
        """Run the ingest job with these settings to its end; the folder gets its table."""
        places = ("--table", str(folder / "table"), "--checkpoint", str(folder / "job-checkpoint"))
        return self.command(JOB, settings, folder, *places)

    def command(self, name: str, settings: Path, folder: Path, *more: str) -> Outcome:
        """Run a command with these settings and arguments to its end; the folder gets its output."""
        output = folder / f"{name}.out"
        arguments = [name, "--settings", str(settings), *more]
        status, warnings, seconds = self._ask({"arguments": arguments, "output": str(output)})
        return Outcome(_without_progress(f"{warnings}\n{output.read_text()}"), int(status), seconds)

    def _ask(self, request: Mapping[str, Any]) -> tuple[str | int, str, float]:
        """Return the response, the warnings of this package that were logged until then, and the seconds."""
        before = self._log_file.stat().st_size if self._log_file.exists() else 0
        begin = time.monotonic()
        response: str | int = self._child.ask(request)
        logged = self._log_file.read_bytes()[before:].decode()
        return response, "\n".join(_WARNING.findall(logged)), time.monotonic() - begin


def commands(folder: Path) -> dict[str, list[str]]:
    """The arguments of each of the `COMMANDS`, but for the settings."""
    return {
        DOCTOR: [],
        "cat": [],
        "plan": [],
        "segments": [],
        "lag": ["--checkpoint", str(folder / "checkpoint")],
        "export": ["--into", str(folder / "orders.parquet")],
        REPLAY: ["--from", "0", "--into", str(folder / "replayed"), "--dry-run"],
    }


def write_checkpoint(folder: Path) -> None:
    """A streaming query's checkpoint, as Spark writes it, whose only micro-batch ended at offset 10."""
    for log, lines in {"offsets": ["v1", "{}", json.dumps({TOPIC: {"0": 10}})], "commits": ["v1", "{}"]}.items():
        (folder / "checkpoint" / log).mkdir(parents=True)
        (folder / "checkpoint" / log / "0").write_text("\n".join(lines))


def outcomes(
    place: Place, folder: Path, settings: Mapping[str, str], spark: SparkProgram, *, at_once: int = 3,
    waits: bool = False,
) -> dict[str, Outcome]:  # fmt: skip
    """Run the commands with the settings, the job and a batch query; return what was said, by who said it.

    Without `waits`, warnings are left out that brokers take long to respond, because a busy machine gives them, too.
    """
    folder.mkdir(parents=True)
    write_checkpoint(folder)
    file = folder / SETTINGS
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    wanted = {name: ["--settings", str(file), *words] for name, words in commands(folder).items()}
    with ThreadPoolExecutor(at_once) as pool:
        found = dict(zip(wanted, pool.map(_run, wanted, wanted.values()), strict=True))
    found[JOB], found[QUERY] = spark.job(file, folder), spark.query(file)
    said = {name: each.says if waits else _WAIT.sub("", each.says) for name, each in found.items()}
    return {
        name: Outcome(shown(said[name], place, folder).strip(), each.status, each.seconds)
        for name, each in found.items()
    }


def _run(command: str, arguments: Sequence[str]) -> Outcome:
    """Run `tiered-stream` to its end, in a process whose imports are done."""
    try:
        python = _FREE.get_nowait()
    except Empty:
        python = ForkingPython(f"{IMPORTS}import tiered_stream.cli.spark_commands, tiered_stream.export.run_export\n")
        atexit.register(python.close)
        python.run("")
    begin = time.monotonic()
    ran = python.run(COMMAND, command, *arguments)
    seconds = time.monotonic() - begin
    _FREE.put(python)
    return Outcome(_said(command, ran), ran.returncode, seconds)


def _said(command: str, ran: subprocess.CompletedProcess[str]) -> str:
    """Return what a command says about its setup: errors, warnings, and of the doctor's report what is not right."""
    if command == DOCTOR:
        lines = ran.stdout.splitlines()
        findings = [at for at, line in enumerate(lines) if line.startswith(("✗", "!"))]
        return "\n".join(f"{lines[at]}\n{lines[at + 1].strip()}" for at in findings)
    # An error of a command that uses Spark is on standard output, where Spark's log is not.
    return _without_progress(ran.stderr + ran.stdout if ran.returncode and command == REPLAY else ran.stderr)


def _without_progress(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() and not _PROGRESS.match(line))


def shown(text: str, place: Place, folder: Path) -> str:
    """Return the text with names in place of what differs from run to run: ports, ids and folders."""
    text = text.replace(f"{folder}/", "")
    text = _HTTP.sub("http://s3.example:9000", text)
    text = text.replace(f"127.0.0.1:{place.tier.port}", "s3.example:9000")
    brokers = list(dict.fromkeys(_ADDRESS.findall(text)))
    text = _ADDRESS.sub(lambda address: f"broker{brokers.index(address[0]) + 1}:9092", text)
    text = _TIMED_OUT.sub("Timed out after N ms", text)
    text = _METADATA_OFFSET.sub(r"\g<1>0", text)
    return without_ids(text)


def without_ids(text: str) -> str:
    """Return the text with words in place of the ids in keys."""
    return _SEGMENT.sub("SEGMENT", _TOPIC_ID.sub(r"\1TOPIC_ID", text))

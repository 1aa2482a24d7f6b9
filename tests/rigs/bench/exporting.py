"""How fast `tiered-stream export` writes a tiered topic into files: with `scan` and Kafka's console consumer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of, timed
from tests.rigs.stack.build import ROOT
from tests.rigs.stack.tools import CONSOLE_CONSUMER, run_tool
from tiered_stream import scan

PARQUET, FOLDER, LINES = "export, Parquet", "a folder", "JSON lines"
SCAN, CONSOLE = "scan, in order", "console consumer"
SOME_RECORDS = 1_000_000
"""The console consumer reads only this many records of a topic."""
_MEASURED = """
import atexit, re, runpy
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]))
runpy.run_module("tiered_stream", run_name="__main__")
"""
"""Program that runs the command in its arguments, and prints the KiB of memory that it took at the most.

`ru_maxrss` would have the memory of the bench, from which the process is forked.
"""
CLAIMS = (
    Claim("export A", PARQUET, SCAN),
    Claim("export A", PARQUET, FOLDER),
    Claim("export A", PARQUET, LINES),
    Claim("export A", PARQUET, CONSOLE),
)


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """Per record, with the start of the process, except for `scan`."""
    shape = rig.topic("A")
    some = min(SOME_RECORDS, shape.records)
    with TemporaryDirectory(dir=ROOT / "build") as folder:
        contenders = {SCAN: Contender(timed(partial(_scan, rig, shape)), shape.rows)}
        for name, target in ((PARQUET, "all.parquet"), (FOLDER, "all/"), (LINES, "all.jsonl")):
            contender = Contender(lambda: 0.0, shape.rows)
            contender.run = partial(_export, rig.options(shape), f"{folder}/{target}", contender)
            contenders[name] = contender
        contenders[CONSOLE] = Contender(timed(partial(_console, rig.stack.bootstrap_servers, shape, some)), some)
        yield from rows_of(CLAIMS, contenders, runs)


def _scan(rig: Rig, shape: Shape) -> None:
    found = sum(batch.num_rows for batch in scan(rig.options(shape)))
    assert found == shape.rows, f"{found} records, not {shape.rows}"


def _export(options: Mapping[str, str], into: str, contender: Contender) -> float:
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    command = [sys.executable, "-c", _MEASURED, "export", *words, "--into", into, "--overwrite"]
    begin = time.perf_counter()
    printed = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)
    seconds = time.perf_counter() - begin
    contender.tell(**{"process MiB": int(printed.split()[-1]) / 1024})
    return seconds


def _console(bootstrap_servers: str, shape: Shape, records: int) -> None:
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", shape.topic, "--from-beginning"]
    arguments += ["--max-messages", str(records)]
    run_tool(CONSOLE_CONSUMER, arguments, output=Path(os.devnull), jvm_options=())

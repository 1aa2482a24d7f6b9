"""A user's clone of the repository, in which the commands of README and docs run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import javaproperties

from tests.rigs.documented.blocks import Block, Printed, Program, Run, commands, patterns
from tests.rigs.documented.site import Site
from tests.rigs.stack.build import ROOT
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.processes import LONG, wait_until
from tests.rigs.stack.spark import SHORT_LIVED

LOG = ROOT / "build/documented.log"
"""Each command of the last run, with its time, status and output."""
_PARTS = ("conf", "docs", "examples", "jobs", "README.md")
_PACKAGES = re.compile(r"^spark\.jars\.packages .*", re.MULTILINE)
_QUICK = {
    **SHORT_LIVED,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Settings of Spark for small tables, and for a session that soon ends."""
_PRELUDE = """
from pyspark.sql import SparkSession
import tiered_stream
spark = SparkSession.builder.getOrCreate()
options = tiered_stream.read_options("orders.properties")
"""


def _take_interrupts() -> None:
    """Let Ctrl-C end a command also if this process runs in the background, where it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class DocumentationError(AssertionError):
    """Error for a block that does not do what the page says."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended; `output` has both of its streams."""

    command: str
    status: int
    output: str

    def expect(self, status: int, where: str) -> None:
        """Raises DocumentationError: the status is another one."""
        if self.status != status:
            raise DocumentationError(
                f"{where}: status {self.status}, not {status}: {self.command}\n{self.output[-6000:]}"
            )


class Workspace:
    """The clone; files in conf name jars of this machine in place of packages that Spark would fetch."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.folder, self.site = folder, site
        folder.mkdir()
        LOG.unlink(missing_ok=True)
        for part in _PARTS:
            (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, folder / part)
        for file in (folder / "conf").glob("spark-*.conf"):
            groups = ("delta", "s3a") if "s3" in file.name else ("delta",)
            own = {"spark.jars": ",".join(map(str, jar_paths(*groups))), **_QUICK}
            lines = "\n".join(f"{name} {value}" for name, value in own.items())
            file.write_text(_PACKAGES.sub(lines, file.read_text()))
        self.printed = ""
        """Output of the commands of a page."""

    def put(self, name: str, text: str, over: str = "") -> None:
        """Write a file: the settings of the file `over` (default: of the file itself), with those of the text."""
        base = self.folder / (over or name)
        given = javaproperties.loads(text)
        kept = ""
        for element in javaproperties.parse(StringIO(base.read_text() if base.exists() else "")):
            if not (isinstance(element, javaproperties.KeyValue) and element.key in given):
                kept += element.source
        (self.folder / name).write_text(f"{kept.rstrip()}\n{text.rstrip()}\n")

    def run(self, command: str, until: str = "") -> Ended:
        """Run a command; stop it by Ctrl-C as soon as its output has the pattern `until`."""
        log, begin = self.folder / "command.log", time.monotonic()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": "200"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}" if until else command], cwd=self.folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                preexec_fn=_take_interrupts,
            )  # fmt: skip
        try:
            if until:
                wait_until(
                    lambda: process.poll() is not None or bool(re.search(until, log.read_text(errors="replace"))), until
                )
                process.send_signal(signal.SIGINT)
            status = process.wait(LONG)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        text = log.read_text(errors="replace")
        self.printed += text
        with LOG.open("a") as all_commands:
            all_commands.write(f"{time.monotonic() - begin:.1f} s, status {status}: {command}\n{text}\n")
        return Ended(command, status, text)

    def run_block(self, block: Block, use: Run) -> None:
        """Run the commands of a block one after the other."""
        given = commands(block.text)
        for number, command in enumerate(given):
            status = use.statuses[number] if use.statuses else 0
            ended = self.run(command.replace("…", use.more), use.until if number == len(given) - 1 else "")
            ended.expect(status, f"{block.page}:{block.line}")

    def run_program(self, block: Block, use: Program) -> None:
        (self.folder / "program.py").write_text("\n".join((_PRELUDE, use.before, block.text, use.after)))
        self.run("spark-submit --properties-file spark.conf program.py").expect(0, f"{block.page}:{block.line}")

    def check_printed(self, block: Block, use: Printed) -> None:
        """Find the lines of a block, in their order.

        Raises:
            DocumentationError: a line was not printed.
        """
        text, at = self.printed + "".join((self.folder / name).read_text() for name in use.files), 0
        for pattern in patterns(use, block.text):
            if (found := pattern.search(text, at)) is None:
                raise DocumentationError(f"{block.page}:{block.line}: no {pattern.pattern!r} in\n{text[-12000:]}")
            at = found.end()

"""The ingest job, in this process, or as a user starts it: by spark-submit, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer
from typer.testing import CliRunner

from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.processes import LONG, Started
from tests.rigs.stack.spark import DELTA, LOCAL, ROOT, SHORT_LIVED, SPARK_SUBMIT, spark_environment, write_conf
from tiered_stream.cli.ingest_command import ingest


def jars(*groups: str) -> dict[str, str]:
    """The property with the jars of the groups (`jar_paths`), in place of `spark.jars.packages`."""
    return {"spark.jars": ",".join(map(str, jar_paths(*groups)))}


def run_here(*arguments: str | Path) -> tuple[int, str]:
    """The exit status of the ingest job, and what it printed."""
    app = typer.Typer()
    app.command()(ingest)
    ended = CliRunner().invoke(app, list(map(str, arguments)))
    return ended.exit_code, ended.stdout


class SubmittedJob(Started):
    """One run of a job; its output goes to `log_file`.

    Args:
        folder: for its settings file, its Spark properties and its log.
        settings: the lines of the settings file.
        arguments: more words for its command line.
        spark: Spark's properties on top of those of a local master; by default Delta's, with its jars.
    """

    def __init__(
        self,
        job: str,
        folder: Path,
        settings: Mapping[str, str],
        arguments: Sequence[str] = (),
        spark: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log_file = folder / "job.log"
        own = {**DELTA, **jars("delta")} if spark is None else spark
        given = {**LOCAL, **SHORT_LIVED, "spark.driver.memory": "1g", **own}
        write_conf(folder / "spark.conf", given)
        (folder / "job.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._command = [
            *(str(SPARK_SUBMIT), "--properties-file", str(folder / "spark.conf"), str(ROOT / "jobs" / job)),
            *("--settings", str(folder / "job.properties"), *arguments),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=spark_environment(),
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float = LONG) -> int:
        """The exit status."""
        assert self._process is not None
        return self._process.wait(timeout)

    def kill(self) -> None:
        """SIGKILL to every process of it: the driver's Python, the JVM, and Spark's Python workers."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()

    stop = kill

    def send(self, number: signal.Signals, *, to_all: bool = False) -> None:
        """Send a signal to the JVM of spark-submit, or to all processes, as a terminal does at Ctrl-C."""
        assert self._process is not None
        (os.killpg if to_all else os.kill)(self._process.pid, number)

    def output(self) -> str:
        return self.log_file.read_text(errors="replace")

"""A user's program that reads, lands, explains and fails in every way it can, with everything logged.

    python -m tests.secrets.program GIVEN.json OUTPUT_FOLDER

It writes plans, errors and what Spark's UI shows into the folder, in which the event log and the checkpoints are too.
"""

from __future__ import annotations

import json
import sys
import traceback
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.rigs.stack.spark import spark_session
from tiered_stream import land, report_queries, verify

Options = Mapping[str, str]


class Program:
    """Each step writes what it has to say into a file of its own."""

    def __init__(self, given: Mapping[str, Any], folder: Path) -> None:
        self._given, self._folder = given, folder
        config = {
            "spark.ui.enabled": "true", "spark.log.level": "INFO", "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (folder / "events").as_uri(), "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false", "spark.port.maxRetries": "100", **given["spark"],
        }  # fmt: skip
        self._spark: SparkSession = spark_session("canaries", ("delta", "s3a"), config)

    def run(self) -> None:
        with report_queries(self._spark, lines="json"):
            self._run()
        self._spark.stop()

    def _run(self) -> None:
        for name, options in self._given["sources"].items():
            self._step(f"batch of {name}", partial(self._batch, options))
            for lane in ("direct", "spark"):
                table = f"{self._given['tables']}/{name}-{lane}"
                self._step(f"stream of {name}, {lane} lane", partial(self._land, options, table, lane))
        options = self._given["sources"]["storage"]
        self._step(
            "verify",
            lambda: self._verify(options, f"{self._given['tables']}/storage-direct"),
        )
        for name, changed in self._given["wrong"].items():
            wrong = {**options, **changed, "remote.fallback": "fail"}
            self._step(f"wrong {name}", partial(self._batch, wrong))
            self._step(
                f"wrong {name}, stream",
                partial(self._land, wrong, f"{self._folder}/tables/{name}", "direct"),
            )
        self._step(
            "wrong table key",
            lambda: self._land({**options, **self._given["wrong.table"]}, f"{self._given['tables']}/x", "direct"),
        )
        self._see_ui()

    def _batch(self, options: Options) -> None:
        frame = self._spark.read.format("tiered_stream").options(**options).load()
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            frame.explain(mode=mode)
        sys.stdout.write(f"{frame.schema} {frame} {frame.count()}")

    def _land(self, options: Options, table: str, lane: str) -> None:
        checkpoint = self._folder / "checkpoints" / table.rpartition("/")[2]
        query = land(self._spark, options=options, table=table, checkpoint=str(checkpoint), lane=lane)
        try:
            query.awaitTermination(600)
            query.explain(True)
            sys.stdout.write(f"{query.lastProgress} {query.status}")
        finally:
            query.stop()

    def _verify(self, options: Options, table: str) -> None:
        report = verify(self._spark, options=options, table=table)
        sys.stdout.write(f"{report} {report.summary()}")

    def _step(self, name: str, step: Callable[[], None]) -> None:
        with open(self._folder / f"{name}.txt", "w") as file, redirect_stdout(file):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is searched
                file.write(f"FAILED {error!r} {getattr(error, 'desc', '')} {traceback.format_exc()}")

    def _see_ui(self) -> None:
        ui = self._spark.sparkContext.uiWebUrl
        application = f"api/v1/applications/{self._spark.sparkContext.applicationId}"
        executions = self._get(f"{ui}/{application}/sql?details=true&length=1000")
        pages = ["environment/", "SQL/", "StreamingQuery/", "jobs/", "stages/", "executors/"]
        pages += [f"{application}/{each}" for each in ("environment", "jobs", "stages", "sql?details=true&length=1000")]
        pages += [f"SQL/execution/?id={each['id']}" for each in json.loads(executions)]
        for number, page in enumerate(pages):
            (self._folder / f"ui-{number}.html").write_bytes(page.encode() + b"\n" + self._get(f"{ui}/{page}"))

    def _get(self, url: str) -> bytes:
        with urllib.request.urlopen(url, timeout=60) as response:
            data: bytes = response.read()
            return data


if __name__ == "__main__":
    Program(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])).run()

"""A program with one Spark session that runs batch queries and the ingest job, as its parent asks.

With `settings`, a batch query is run with the options of that settings file, and the response says what it has raised.
With `arguments`, the command `tiered-stream` is run with them; its standard output goes to the file `output`, and the
response is its exit status.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from pyspark.sql import SparkSession

from tests.rigs.stack.children import requests
from tests.rigs.stack.spark import SHORT_LIVED, spark_session
from tiered_stream import read_options
from tiered_stream.cli import app


def respond(session: SparkSession, request: Mapping[str, Any]) -> str | int:
    """Do what the request says, and return the response."""
    if "arguments" in request:
        return run_command(request["arguments"], request["output"])
    try:
        frame = session.read.format("tiered_stream").options(**read_options(request["settings"])).load()
        frame.write.format("noop").mode("overwrite").save()
    except Exception as error:  # noqa: BLE001 - whatever a query raises is what is asked for
        return f"{type(error).__name__}: {error}"
    return ""


def run_command(arguments: Sequence[str], output: str) -> int:
    """Run the command in this process, and return its exit status."""
    own = os.dup(1)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    try:
        status = app(list(arguments), standalone_mode=False)
        sys.stdout.flush()
    finally:
        os.dup2(own, 1)
        os.close(own)
        os.close(file)
    return status or 0


def serve(connection: Connection) -> None:
    session = spark_session("wrong setups", ("delta",), {**SHORT_LIVED, "spark.log.level": "WARN"})
    for request in requests(connection):
        connection.send(respond(session, request))

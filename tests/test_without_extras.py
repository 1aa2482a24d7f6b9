"""Topics are read by what `pip install tiered-stream` installs, without the packages of its extras."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.delta.archive import ODD, everything, options

EXTRAS = ("google.protobuf", "grpc_tools", "deltalake", "delta", "confluent_kafka", "opentelemetry", "fastavro")
PROGRAM = """
import json, sys
sys.modules |= dict.fromkeys(json.loads(sys.argv[1]))  # an import of them fails
from tiered_stream import scan
print(sum(batch.num_rows for batch in scan(json.loads(sys.argv[2]))))
"""


def scanned(missing: tuple[str, ...]) -> int:
    """How many rows a process reads in which these packages are missing."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(missing), json.dumps(options(ODD))]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_topics_are_read_without_the_packages_of_extras() -> None:
    assert scanned(EXTRAS) == everything(ODD).num_rows


def test_topics_are_read_without_spark_and_pandas() -> None:
    assert scanned((*EXTRAS, "pyspark", "py4j", "pandas")) == everything(ODD).num_rows

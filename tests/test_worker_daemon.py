"""Spark's Python workers, forked from a daemon that has imported everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything
from tests.malloc_heaps import only_glibc
from tests.stack.spark import spark_environment
from tiered_stream.worker_daemon import SPARKS_OWN

_READ = """
import sys
from pathlib import Path
from tests.delta.archive import ODD, options
from tests.stack.spark import spark_session

spark = spark_session("daemon", (), {"spark.python.daemon.module": sys.argv[1]})
workers = spark.sparkContext.parallelize([0, 1], 2)
imported = workers.map(lambda _: "numba" in sys.modules and "boto3" in sys.modules).collect()
rows = spark.read.format("tiered_stream").options(**options(ODD)).load().count()
spark.stop()
print("found", imported, rows)
"""


_COUNT_HEAPS = """
import sys
from tests.malloc_heaps import heaps_of_threads
from tests.stack.spark import spark_session

spark = spark_session("daemon", (), {"spark.python.daemon.module": sys.argv[1]})
workers = spark.sparkContext.parallelize([0, 1], 2)
heaps = workers.map(lambda _: heaps_of_threads()).collect()
spark.stop()
print("found", [number == 1 for number in heaps])
"""

_NAME_POOLS = """
import sys
import pyarrow as pa
from tests.stack.spark import spark_session

spark = spark_session("daemon", (), {"spark.python.daemon.module": sys.argv[1]})
workers = spark.sparkContext.parallelize([0, 1], 2)
pools = workers.map(lambda _: pa.default_memory_pool().backend_name).collect()
spark.stop()
print("found", [pool == "system" for pool in pools])
"""


def read_with(daemon: str, more: dict[str, str] | None = None, program: str = _READ) -> str:
    """What the program finds with workers of that daemon, `_READ` whether they have the imports at their start."""
    done = subprocess.run(
        [sys.executable, "-c", program, daemon], capture_output=True, text=True, check=False,
        env={**spark_environment(), **(more or {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return next(line for line in done.stdout.splitlines() if line.startswith("found"))


@pytest.mark.stack
@pytest.mark.parametrize(
    ("daemon", "imported"), [("tiered_stream.worker_daemon", [True, True]), (SPARKS_OWN, [False, False])]
)
def test_workers_have_the_imports_at_their_start_and_read_every_row(daemon: str, imported: list[bool]) -> None:
    assert read_with(daemon) == f"found {imported} {everything(ODD).num_rows}"


@only_glibc
@pytest.mark.stack
@pytest.mark.parametrize(("daemon", "shared"), [("tiered_stream.worker_daemon", True), (SPARKS_OWN, False)])
def test_a_workers_threads_share_the_one_heap_that_our_daemon_had(daemon: str, shared: bool) -> None:
    assert read_with(daemon, program=_COUNT_HEAPS) == f"found {[shared, shared]}"


@only_glibc
@pytest.mark.stack
@pytest.mark.parametrize(("daemon", "shared"), [("tiered_stream.worker_daemon", True), (SPARKS_OWN, False)])
def test_arrow_takes_from_that_heap_in_workers_of_our_daemon(daemon: str, shared: bool) -> None:
    assert read_with(daemon, program=_NAME_POOLS) == f"found {[shared, shared]}"


@pytest.mark.stack
def test_where_an_import_fails_sparks_own_daemon_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "boto3.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join((str(tmp_path), spark_environment()["PYTHONPATH"]))
    found = read_with("tiered_stream.worker_daemon", {"PYTHONPATH": path})
    assert found == f"found {[False, False]} {everything(ODD).num_rows}"

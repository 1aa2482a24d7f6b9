"""Spark's Python workers, forked from a daemon that has imported everything."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.delta.archive import ODD, everything
from tests.malloc_heaps import only_glibc
from tests.rigs.stack.spark import run_program, spark_environment
from tiered_stream import worker_daemon
from tiered_stream.worker_daemon import SPARK_DAEMON

_READ = """
import json, sys
from tests.delta.archive import ODD, options
from tests.malloc_heaps import heaps_of_threads
from tests.rigs.stack.spark import spark_session

spark = spark_session("daemon", (), {"spark.python.daemon.module": sys.argv[1]})
workers = spark.sparkContext.parallelize([0, 1], 2)

def pool(_):
    import pyarrow
    return pyarrow.default_memory_pool().backend_name

needed = {"numba", "boto3", "obstore", "tiered_stream.delta.landing.data_files_readers"}
found = {
    "imported": workers.map(lambda _: needed <= sys.modules.keys()).collect(),
    "heaps": workers.map(lambda _: heaps_of_threads()).collect(),
    "pools": workers.map(pool).collect(),
    "rows": spark.read.format("tiered_stream").options(**options(ODD)).load().count(),
}
spark.stop()
print("found", json.dumps(found))
"""


@cache
def read_with(daemon: str, **variables: str) -> dict[str, Any]:
    """What workers of that daemon have before they read anything, and the number of rows that they then read.

    Spark starts once for the same arguments.
    """
    done = run_program(_READ, daemon, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("found"))
    found: dict[str, Any] = json.loads(line.removeprefix("found"))
    return found


@pytest.mark.starts_spark
@pytest.mark.parametrize(
    ("daemon", "imported"), [("tiered_stream.worker_daemon", [True, True]), (SPARK_DAEMON, [False, False])]
)
def test_workers_have_the_imports_at_their_start_and_read_every_row(daemon: str, imported: list[bool]) -> None:
    found = read_with(daemon)
    assert (found["imported"], found["rows"]) == (imported, everything(ODD).num_rows)


@only_glibc
@pytest.mark.starts_spark
@pytest.mark.parametrize(("daemon", "shared"), [("tiered_stream.worker_daemon", True), (SPARK_DAEMON, False)])
def test_a_workers_threads_and_arrow_share_the_one_heap_that_our_daemon_had(daemon: str, shared: bool) -> None:
    found = read_with(daemon)
    assert [number == 1 for number in found["heaps"]] == [shared, shared]
    assert [pool == "system" for pool in found["pools"]] == [shared, shared]


@pytest.mark.starts_spark
def test_where_an_import_fails_sparks_own_daemon_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "boto3.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join((str(tmp_path), spark_environment()["PYTHONPATH"]))
    found = read_with("tiered_stream.worker_daemon", PYTHONPATH=path)
    assert (found["imported"], found["rows"]) == ([False, False], everything(ODD).num_rows)


def test_the_warning_about_threads_of_an_import_does_not_say_that_the_import_has_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, result in (("share_heap_with_arrow", None), ("import_ahead", None), ("may_fork", False)):
        monkeypatch.setattr(worker_daemon, name, Mock(return_value=result))
    monkeypatch.setattr(os, "execv", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        worker_daemon.main()
    assert caplog.messages == [
        "Spark's own daemon runs instead, so each worker imports its modules: an imported module has started threads"
    ]

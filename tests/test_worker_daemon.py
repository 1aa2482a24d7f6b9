"""Spark's Python workers, forked from a daemon that has imported everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything
from tests.stack.spark import spark_environment
from tiered_stream.worker_daemon import SPARKS_OWN, may_fork

_READ = """
import sys
from ctypes import CDLL, byref, c_char_p, c_size_t, c_void_p
from pathlib import Path
from threading import Thread
from tests.delta.archive import ODD, options
from tests.stack.spark import spark_session

def heaps_of_malloc(_):
    thread = Thread(target=lambda: bytes(1 << 16))
    thread.start()
    thread.join()
    libc, text, size = CDLL(None), c_char_p(), c_size_t()
    libc.open_memstream.restype = c_void_p
    stream = c_void_p(libc.open_memstream(byref(text), byref(size)))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    return text.value.count(b"<heap nr=")

spark = spark_session("daemon", (), {"spark.python.daemon.module": sys.argv[1]})
workers = spark.sparkContext.parallelize([0, 1], 2)
imported = workers.map(lambda _: "numba" in sys.modules and "boto3" in sys.modules).collect()
heaps = workers.map(heaps_of_malloc).collect()
rows = spark.read.format("tiered_stream").options(**options(ODD)).load().count()
spark.stop()
print("found", imported, [number == 1 for number in heaps], rows)
"""


def read_with(daemon: str, more: dict[str, str] | None = None) -> str:
    """What a session of that daemon finds: whether its workers have the imports at their start, whether the threads of
    each share one heap, and how many rows."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, daemon], capture_output=True, text=True, check=False,
        env={**spark_environment(), **(more or {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return next(line for line in done.stdout.splitlines() if line.startswith("found"))


@pytest.mark.stack
@pytest.mark.parametrize(
    ("daemon", "ahead"), [("tiered_stream.worker_daemon", [True, True]), (SPARKS_OWN, [False, False])]
)
def test_workers_have_imports_and_one_heap_at_their_start_and_read_every_row(daemon: str, ahead: list[bool]) -> None:
    assert read_with(daemon) == f"found {ahead} {ahead} {everything(ODD).num_rows}"


@pytest.mark.stack
def test_where_an_import_fails_sparks_own_daemon_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "boto3.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join((str(tmp_path), spark_environment()["PYTHONPATH"]))
    found = read_with("tiered_stream.worker_daemon", {"PYTHONPATH": path})
    assert found == f"found {[False, False]} {[False, False]} {everything(ODD).num_rows}"


@pytest.mark.parametrize(
    ("threads", "forks"), [([], True), (["jemalloc_bg_thd"], True), (["jemalloc_bg_thd", "OpenBLAS"], False)]
)
def test_a_process_with_threads_of_others_is_not_forked(tmp_path: Path, threads: list[str], forks: bool) -> None:
    for number, name in enumerate(["python3", *threads]):
        (tmp_path / str(os.getpid() + number)).mkdir()
        (tmp_path / str(os.getpid() + number) / "comm").write_text(f"{name}\n")
    assert may_fork(tmp_path) is forks

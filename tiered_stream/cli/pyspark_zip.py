"""Spark's `pyspark.zip` and `py4j-….zip`, compiled once.

Spark's Python processes take both packages from these archives, which have source alone, and no place for what Python
compiles of it: each process compiles it anew, more than half a second before a streaming query's first micro-batch.
Only what they load is compiled: Python reads an archive's whole list again and again, and each more entry would cost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode, PyCompileError, compile
from tempfile import TemporaryDirectory

from tiered_stream.errors import ConfigurationError

_PROCESSES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
_LIST_LOADED = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
print(*(getattr(module, "__file__", None) for module in list(sys.modules.values())), sep="\\n")
"""


def find_archives() -> tuple[Path, ...]:
    """`pyspark.zip` first, of the Spark that `SPARK_HOME` names, or of the package pyspark.

    Raises:
        ConfigurationError: there is none.
    """
    package = find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), *(package.submodule_search_locations or () if package else ())]
    home = next(filter(None, homes), None)
    if home is None:
        raise ConfigurationError("no Spark is here: SPARK_HOME is not set, and pyspark is not installed")
    found = Path(home, "python", "lib", "pyspark.zip")
    if not found.is_file():
        raise ConfigurationError(f"{found} does not exist: is {home} a Spark installation (SPARK_HOME)?")
    return found, *sorted(found.parent.glob("py4j-*.zip"))


def loaded_modules(archives: Sequence[Path]) -> dict[Path, list[str]]:
    """The modules that Spark's Python processes take from each archive at their start, by their names in it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))}
    command = [sys.executable, "-c", _LIST_LOADED, *_PROCESSES]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split("\n")
    return {archive: _names_in(archive, listed) for archive in archives}


def _names_in(archive: Path, files: Iterable[str]) -> list[str]:
    inside = (path.removeprefix(f"{archive}/") for path in files if path.startswith(f"{archive}/"))
    return sorted({name.removesuffix("c") for name in inside})


def compile_archive(archive: Path, modules: Iterable[str]) -> int:
    """Add the bytecode of those modules (`package/module.py`) that are in the archive without; how many.

    What is in it stays where it is, so processes that use the archive are not disturbed. The bytecode names the source
    by its time and size, as Python's own files do: it is not used with another one.

    Raises:
        OSError: the archive cannot be written.
    """
    with TemporaryDirectory(dir=archive.parent) as folder:
        # Replaced as a whole, so that nobody ever finds half of it.
        whole = Path(folder, archive.name)
        shutil.copy2(archive, whole)
        with zipfile.ZipFile(whole, "a") as opened:
            there = set(opened.namelist())
            sources = [name for name in modules if f"{name}c" not in there]
            compiled = sum(_add(opened, name, archive, folder) for name in sources)
        if compiled:
            os.replace(whole, archive)
    return compiled


def _add(opened: zipfile.ZipFile, name: str, archive: Path, folder: str) -> bool:
    source = opened.extract(name, folder)
    # A ZIP file has local times without a zone; zipimport reads them in the same way.
    modified = time.mktime((*opened.getinfo(name).date_time, -1, -1, -1))
    os.utime(source, (modified, modified))
    try:
        compile(
            source, f"{source}c", dfile=str(archive / name), doraise=True,
            invalidation_mode=PycInvalidationMode.TIMESTAMP,
        )  # fmt: skip
    except PyCompileError:
        return False  # whoever imports it gets the error
    opened.write(f"{source}c", f"{name}c")
    return True

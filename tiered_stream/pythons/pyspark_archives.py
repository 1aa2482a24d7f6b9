"""Add bytecode to Spark's `pyspark.zip` and `py4j-….zip`, so that Python processes need not compile them.

Spark's Python processes import both packages from these archives, which contain only source code. Python cannot store
bytecode in an archive, so each process compiles the source again. This delays the first micro-batch of a streaming
query by more than 0.5 s. Only the modules that the processes load are compiled, because Python reads an archive's list
of contents many times, and each further entry makes this slower.
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
    """Return the paths of `pyspark.zip` and `py4j-….zip`, in this order, in Spark's folder.

    Spark's folder is `SPARK_HOME`; if that is not set, the folder of the installed package pyspark.

    Raises:
        ConfigurationError: there is no Spark, or it has no `pyspark.zip`.
    """
    package = find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), *(package.submodule_search_locations or () if package else ())]
    home = next(filter(None, homes), None)
    if home is None:
        raise ConfigurationError("no Spark is here: SPARK_HOME is not set, and pyspark is not installed")
    archive = Path(home, "python", "lib", "pyspark.zip")
    if not archive.is_file():
        raise ConfigurationError(f"{archive} does not exist: is {home} a Spark installation (SPARK_HOME)?")
    return archive, *sorted(archive.parent.glob("py4j-*.zip"))


def loaded_modules(archives: Sequence[Path]) -> dict[Path, list[str]]:
    """Return, by archive, the sorted files in it that Spark's Python processes import at their start.

    The files are paths in the archive, such as `pyspark/daemon.py`.

    Raises:
        CalledProcessError: the Python that lists the files fails.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))}
    command = [sys.executable, "-c", _LIST_LOADED, *_PROCESSES]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split("\n")
    return {archive: _names_in(archive, listed) for archive in archives}


def _names_in(archive: Path, files: Iterable[str]) -> list[str]:
    inside = (path.removeprefix(f"{archive}/") for path in files if path.startswith(f"{archive}/"))
    return sorted({name.removesuffix("c") for name in inside})


def compile_archive(archive: Path, modules: Iterable[str]) -> int:
    """Add bytecode to the archive for each of its files in `modules` (`package/module.py`) that has no bytecode yet.

    Existing entries keep their place, so processes that use the archive are not disturbed. Like a `.pyc` file, the
    bytecode contains the time and size of its source, and Python ignores the bytecode if the source has another time or
    size. Files that do not compile are left out.

    Returns:
        Number of files to which bytecode was added.

    Raises:
        OSError: the archive cannot be written.
    """
    with TemporaryDirectory(dir=archive.parent) as folder:
        # The archive is replaced as a whole, so that no process ever reads a half-written archive.
        copy = Path(folder, archive.name)
        shutil.copy2(archive, copy)
        with zipfile.ZipFile(copy, "a") as zip_file:
            entries = set(zip_file.namelist())
            sources = [name for name in modules if f"{name}c" not in entries]
            compiled = sum(_add(zip_file, name, archive, folder) for name in sources)
        if compiled:
            os.replace(copy, archive)
    return compiled


def _add(zip_file: zipfile.ZipFile, name: str, archive: Path, folder: str) -> bool:
    """Extract the archive's file `name` to `folder`, compile it, and add its bytecode to `zip_file`.

    Return false, without bytecode, if the file does not compile. Otherwise return true.
    """
    source = zip_file.extract(name, folder)
    # A ZIP file has local times without a zone; zipimport reads them in the same way.
    modified = time.mktime((*zip_file.getinfo(name).date_time, -1, -1, -1))
    os.utime(source, (modified, modified))
    try:
        compile(
            source, f"{source}c", dfile=str(archive / name), doraise=True,
            invalidation_mode=PycInvalidationMode.TIMESTAMP,
        )  # fmt: skip
    except PyCompileError:
        return False  # the import of the module reports the error
    zip_file.write(f"{source}c", f"{name}c")
    return True

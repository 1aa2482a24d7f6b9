"""A packed environment, unpacked or not, and the environment of a `spark-submit` that ships it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.rigs.stack.build import ROOT
from tests.rigs.stack.spark import spark_environment
from tests.rigs.stack.spark_cluster import BARE_PATH


def pack(folder: Path) -> Path:
    """The archive that `make dist` makes, quickly."""
    subprocess.run([sys.executable, "conf/pack.py", str(folder), "1"], cwd=ROOT, check=True)
    (archive,) = folder.glob("tiered-stream-*.tar.gz")
    return archive


def unpack(archive: Path, folder: Path) -> Path:
    """The folder."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="tar")
    return folder


def with_python_by_path() -> dict[str, str]:
    """As in an environment that is activated: the driver has this Python by the PATH."""
    found = {name: value for name, value in spark_environment().items() if not name.startswith("PYSPARK_")}
    return {**found, "PATH": os.pathsep.join([str(Path(sys.executable).parent), BARE_PATH])}

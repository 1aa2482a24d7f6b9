"""`build/` in the checkout: whatever a run started by `make` writes, kept until the next run of that name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
SPARK_CLASSES = ROOT / "build" / "spark.jsa"
"""Archive of Spark's classes for the JVMs of tests (`tests/rigs/stack/class_archive.py`); it may be missing."""


@contextmanager
def build_folder(name: str) -> Iterator[Path]:
    """Yield the empty folder `build/NAME`. An error that leaves the block gets a note with the folder of the logs."""
    folder = ROOT / "build" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    except Exception as error:
        logs = "".join(f"\n  {log}" for log in sorted(folder.rglob("*.log")) if _is_text(log))
        error.add_note(f"What this run wrote is in {folder}; its logs:{logs or ' none'}")
        raise


def _is_text(log: Path) -> bool:
    """Not one of Kafka's segments, which are numbers."""
    return log.stat().st_size > 0 and not log.stem[0].isdigit()

"""Hadoop's settings as a test makes them, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings
from tiered_stream.delta.requirements.writer_requirements import Kind, find_requirement

REVIEWED = (Path(__file__).parent / "reviewed_settings.txt").read_text().split()
"""Settings that tasks follow, or that ask nothing of writers; the list does not have them."""


def is_known(name: str) -> bool:
    """Return whether a setting has an entry in the list, or was reviewed."""
    return find_requirement(Kind.SESSION, name) is not None or any(fnmatchcase(name, each) for each in REVIEWED)


def made_hadoop(
    given: Mapping[str, str],
    *,
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    classes: Collection[str] | None = None,
) -> HadoopSettings:
    """Return the settings; `files` are Hadoop's credential files. `classes` are on the class path; None: all are."""
    return HadoopSettings(
        given.get, {**given, **(files or {})}.get, (environment or {}).get,
        names_after=lambda prefix: [name.removeprefix(prefix) for name in given if name.startswith(prefix)],
        has_class=lambda name: classes is None or name in classes, set=lambda *_: None,
    )  # fmt: skip

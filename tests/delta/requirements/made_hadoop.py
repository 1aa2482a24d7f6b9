"""Hadoop's settings as a test makes them, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings


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

"""Settings of a command: those of a file, which may be that of `jobs/ingest_to_delta.py`, and of its command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tiered_stream.options.properties_files import read_settings
from tiered_stream.replay.run_replay import READS

TABLE, LANE = "ingest.table", "ingest.lane"
_OF_THE_JOB = frozenset({TABLE, LANE, "ingest.checkpointlocation", "ingest.trigger"})


def given_settings(file: Path | None, options: Mapping[str, str]) -> dict[str, str]:
    """The settings of the file, those of the command line on top.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    from_file = read_settings(file) if file else {}
    reads = {option.name.lower() for option in READS}
    own = {name.lower() for name in options}
    # Who says on the command line what to read, does not mean what the file says of it.
    left_out = own | (reads if reads & own else set())
    return {name: value for name, value in from_file.items() if name.lower() not in left_out} | dict(options)


def of_the_source(settings: Mapping[str, str]) -> dict[str, str]:
    """Without what is the ingest job's own."""
    return {name: value for name, value in settings.items() if name.lower() not in _OF_THE_JOB}


def of_the_job(settings: Mapping[str, str], name: str) -> str | None:
    """The value of `TABLE` or `LANE`."""
    return next((value for key, value in settings.items() if key.lower() == name), None)


def table_of_the_job(settings: Mapping[str, str]) -> str | None:
    """Its one table; None where it is not given, or each topic has its own."""
    table = of_the_job(settings, TABLE)
    return None if not table or "{topic}" in table else table

"""The settings that a command runs with: those of a file, with what the command line says on top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tiered_stream.options import spark_options as spark
from tiered_stream.options.properties_files import parse_assignments, read_settings

SUBSCRIPTION = (spark.SUBSCRIBE.name, spark.SUBSCRIBE_PATTERN.name, spark.ASSIGN.name)
STARTS = (spark.STARTING_TIMESTAMP.name, spark.STARTING_OFFSETS_BY_TIMESTAMP.name, spark.STARTING_OFFSETS.name)
ENDS = (spark.ENDING_TIMESTAMP.name, spark.ENDING_OFFSETS_BY_TIMESTAMP.name, spark.ENDING_OFFSETS.name)
POSITIONS = (*SUBSCRIPTION, *STARTS, *ENDS)
"""What is read, and from where to where."""


def command_settings(file: Path | None, assignments: Sequence[str] | None, reads: Mapping[str, str]) -> dict[str, str]:
    """The settings of the file, on top `name=value` texts, on top of them `reads`, what to read.

    Raises:
        ConfigurationError: the file cannot be read, or a text has no `=`.
    """
    own = {**parse_assignments(assignments, "--option"), **reads}
    from_file = read_settings(file) if file else {}
    # Who says on the command line what to read, does not mean what the file says of it.
    return without(from_file, (*own, *SUBSCRIPTION) if gives(own, SUBSCRIPTION) else own) | own


def gives(settings: Mapping[str, str], names: Iterable[str]) -> bool:
    """Whether the settings have one of the names, in whatever case."""
    return not {name.lower() for name in names}.isdisjoint(name.lower() for name in settings)


def without(settings: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The settings but for those with the names, in whatever case."""
    left_out = {name.lower() for name in names}
    return {name: value for name, value in settings.items() if name.lower() not in left_out}

"""Settings of a command: the settings of a file, overridden by the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tiered_stream.options import spark_options as spark
from tiered_stream.options.properties_files import lines_of_settings, parse_assignments, read_settings

SUBSCRIPTION = (spark.SUBSCRIBE.name, spark.SUBSCRIBE_PATTERN.name, spark.ASSIGN.name)
STARTS = (spark.STARTING_TIMESTAMP.name, spark.STARTING_OFFSETS_BY_TIMESTAMP.name, spark.STARTING_OFFSETS.name)
ENDS = (spark.ENDING_TIMESTAMP.name, spark.ENDING_OFFSETS_BY_TIMESTAMP.name, spark.ENDING_OFFSETS.name)
_COMMAND_LINE = "command line"
_MAX_SHOWN = 5
_origins: dict[str, str] = {}
"""Where each setting of the command that runs in this process was written, by name. `command_settings` fills it."""
POSITIONS = (*SUBSCRIPTION, *STARTS, *ENDS)
"""Names of all options that say which topics to read, where to start and where to end."""


def command_settings(file: Path | None, assignments: Sequence[str] | None, reads: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a command: the settings in `file`, overridden by the command line.

    If the command line names topics, all options in `file` that name topics are left out.

    Args:
        file: the settings file; None: no file.
        assignments: `name=value` texts of the command's `--option`.
        reads: options by name, which the command's other arguments (such as `--subscribe`) stand for. They override
            `assignments`.

    Raises:
        ConfigurationError: the file cannot be read or is malformed, or a text has no name or no `=`.
    """
    from_command = {**parse_assignments(assignments, "--option"), **reads}
    from_file = read_settings(file) if file else {}
    # Only one option may name topics. So topics on the command line replace all such options of the file.
    replaced = (*from_command, *SUBSCRIPTION) if gives(from_command, SUBSCRIPTION) else from_command
    settings = without(from_file, replaced) | from_command
    lines = lines_of_settings(file) if file else {}
    _origins.clear()
    for name in settings:
        _origins[name] = _COMMAND_LINE if name in from_command else f"{file}, line {lines[name]}"
    return settings


def origin_of(name: str) -> str:
    """Return where the command's setting `name` was written: a file with a line, or the command line; empty: nowhere.

    Settings that tiered_stream itself has derived or added, or that a program gives, were written nowhere.
    """
    return next((origin for given, origin in _origins.items() if given.lower() == name.lower()), "")


def with_origins(text: str) -> str:
    """Return the text of an error, and after it where the settings that it names were written, if a file gives them."""
    named = (name for name in _origins if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w-]|\.\w)", text, re.IGNORECASE))
    found = [f"{name}: {_origins[name]}" for name in named if _origins[name] != _COMMAND_LINE]
    return f"{text} ({'; '.join(found[:_MAX_SHOWN])})" if found else text


def gives(settings: Mapping[str, str], names: Iterable[str]) -> bool:
    """Return whether the settings contain at least one of the names; upper and lower case are the same."""
    return not {name.lower() for name in names}.isdisjoint(name.lower() for name in settings)


def without(settings: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return a copy of the settings without the settings named in `names`; upper and lower case are the same."""
    left_out = {name.lower() for name in names}
    return {name: value for name, value in settings.items() if name.lower() not in left_out}

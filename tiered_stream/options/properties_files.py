"""Settings files of jobs and gateway: Java properties, so that what a broker has can be pasted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tiered_stream.errors import ConfigurationError


def read_settings(path: Path) -> dict[str, str]:
    r"""The `name=value` lines of a file. Names keep their case, values are taken as they are.

    `#` or `!` begins a comment line; `\` at its end joins a line with the next. Of Java's other forms (escapes, `:`
    for `=`) none is read.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no setting.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"the settings file {path} is not UTF-8") from None
    settings: dict[str, str] = {}
    for number, line in _lines(text):
        name, equals, value = line.partition("=")
        name = name.rstrip()
        if not equals or not name or name in settings:
            # The line is not shown, for it may hold a secret.
            raise ConfigurationError(
                f"the settings file {path} (line {number}): write one name=value a line, each name once"
            )
        settings[name] = value.lstrip()
    return settings


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor comments, each with its number; joined lines with that of the last."""
    begun = ""
    for number, each in enumerate([*text.split("\n"), ""], 1):  # one more, to end what the last has begun
        line = begun + each.strip()
        if not begun and line.startswith(("#", "!")):
            continue
        begun = line[:-1] if line.endswith("\\") else ""
        if line and not begun:
            yield number, line.rstrip()


def parse_assignment(text: str) -> tuple[str, str]:
    """`name=value` from a command line.

    Raises:
        ConfigurationError: there is no `=`.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--option needs name=value, got {name!r}")
    return name, value

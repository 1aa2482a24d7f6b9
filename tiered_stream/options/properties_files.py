"""Readers of Java properties files: settings of jobs and of the gateway, and Spark's own settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import javaproperties

from tiered_stream.errors import ConfigurationError

_SPARKS_BLANKS = "".join(map(chr, range(33))).replace("\r", "").replace("\n", "")
"""Characters that Spark strips from values of its properties file (Spark: `Utils.trimExceptCRLF`)."""


def read_settings(*paths: Path) -> dict[str, str]:
    """Read files of Java properties (`java.util.Properties.load`) in UTF-8, and return the values by name.

    Names keep their case. A byte-order mark, which Windows editors write, is skipped.

    Raises:
        ConfigurationError: a file cannot be read, is not UTF-8, has a malformed escape, or gives a name that it or an
            earlier file has given.
    """
    settings: dict[str, str] = {}
    for path in paths:
        for name, value in _read(path):
            if name in settings:
                raise ConfigurationError(f"the settings file {path} gives {name} twice: keep one of them")
            settings[name] = value
    return settings


def lines_of_settings(path: Path) -> dict[str, int]:
    """Return, by name, the number of the line where a file that `read_settings` has read gives the setting."""
    lines, line = {}, 1
    for element in javaproperties.parse(path.read_text(encoding="utf-8-sig")):
        if isinstance(element, javaproperties.KeyValue):
            lines[element.key] = line
        line += len(element.source.splitlines())
    return lines


def read_spark_properties(path: Path) -> dict[str, str]:
    """Read a properties file for Spark as Spark does (`Utils.getPropertiesFromFile`), and return the values by name.

    If a name occurs twice, the last value is returned. Blanks around values are removed, except line ends.

    Raises:
        ConfigurationError: the file cannot be read, is not UTF-8, or has a malformed escape.
    """
    return {name: value.strip(_SPARKS_BLANKS) for name, value in _read(path)}


def _read(path: Path) -> list[tuple[str, str]]:
    try:
        elements = list(javaproperties.parse(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise ConfigurationError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"the settings file {path} is not UTF-8") from None
    except javaproperties.InvalidUEscapeError:  # not shown: the error's text may contain a part of a secret
        raise ConfigurationError(
            rf"the settings file {path} has a malformed \uxxxx escape: write a backslash as \\"
        ) from None
    return [(element.key, element.value) for element in elements if isinstance(element, javaproperties.KeyValue)]


def parse_assignments(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse the `name=value` texts of the command-line option `option`, and return the values by name.

    Raises:
        ConfigurationError: a text has no name or no `=`. The message names `option`.
    """
    return dict(_parse_assignment(text, option) for text in texts or ())


def _parse_assignment(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"{option} needs name=value, got {name!r}")
    return name, value

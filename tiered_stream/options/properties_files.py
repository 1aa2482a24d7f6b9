"""Settings files of jobs and gateway: Java properties, so that what a broker has can be pasted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import javaproperties

from tiered_stream.errors import ConfigurationError

_SPARKS_BLANKS = "".join(map(chr, range(33))).replace("\r", "").replace("\n", "")
"""`Utils.trimExceptCRLF`."""


def read_settings(path: Path) -> dict[str, str]:
    """The settings of a file, as Java reads them (`java.util.Properties.load`), in UTF-8. Names keep their case.

    A byte-order mark, which Windows' editors write, is passed over.

    Raises:
        ConfigurationError: the file cannot be read, an escape is malformed, or a name is there twice.
    """
    settings: dict[str, str] = {}
    for name, value in _read(path):
        if name in settings:
            raise ConfigurationError(f"the settings file {path} gives {name} twice: keep one of them")
        settings[name] = value
    return settings


def read_spark_properties(path: Path) -> dict[str, str]:
    """The settings of a file for Spark, as Spark reads them (`Utils.getPropertiesFromFile`).

    Of a name that is there twice the last value counts, and blanks around values do not.

    Raises:
        ConfigurationError: the file cannot be read, or an escape is malformed.
    """
    return {name: value.strip(_SPARKS_BLANKS) for name, value in _read(path)}


def _read(path: Path) -> list[tuple[str, str]]:
    try:
        elements = list(javaproperties.parse(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise ConfigurationError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"the settings file {path} is not UTF-8") from None
    except javaproperties.InvalidUEscapeError:  # its text may be part of a secret
        raise ConfigurationError(
            rf"the settings file {path} has a malformed \uxxxx escape: write a backslash as \\"
        ) from None
    return [(each.key, each.value) for each in elements if isinstance(each, javaproperties.KeyValue)]


def parse_assignments(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """The `name=value` texts of a command line's `option`. ConfigurationError: one has no name or no `=`."""
    return dict(_parse_assignment(text, option) for text in texts or ())


def _parse_assignment(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"{option} needs name=value, got {name!r}")
    return name, value

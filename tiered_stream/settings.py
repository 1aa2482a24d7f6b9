"""Settings files of jobs and gateway: Java properties, so that what a broker has can be pasted."""

from __future__ import annotations

from configparser import ConfigParser, Error
from pathlib import Path

from tiered_stream.errors import ConfigurationError

_SECTION = "settings"


def read_settings(path: Path) -> dict[str, str]:
    """The `name=value` lines of a file; `#` begins a comment line. Names keep their case.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no setting.
    """
    parser = ConfigParser(delimiters=("=",), comment_prefixes=("#", "!"), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    try:
        parser.read_string(f"[{_SECTION}]\n{path.read_text()}", source=str(path))
    except OSError as error:
        raise ConfigurationError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (Error, UnicodeDecodeError) as error:
        # The message of the parser would show the line, and a line may hold a secret.
        line = getattr(error, "lineno", None)
        where = f" (line {line - 1})" if isinstance(line, int) else ""
        raise ConfigurationError(f"the settings file {path}{where}: write one name=value a line, each once") from None
    return dict(parser[_SECTION])


def parse_assignment(text: str) -> tuple[str, str]:
    """`name=value` from a command line.

    Raises:
        ConfigurationError: there is no `=`.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--option needs name=value, got {name!r}")
    return name, value

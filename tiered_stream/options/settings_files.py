"""Settings of jobs, commands and Spark, from Java properties files and the command line.

For error messages, the module also keeps in which file and line each setting was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

import javaproperties

from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.options import spark_options as spark

_SPARKS_BLANKS = "".join(map(chr, range(33))).replace("\r", "").replace("\n", "")
"""Characters that Spark strips from values of its properties file (Spark: `Utils.trimExceptCRLF`)."""
SUBSCRIPTION = (spark.SUBSCRIBE.name, spark.SUBSCRIBE_PATTERN.name, spark.ASSIGN.name)
STARTS = tuple(option.name for option in spark.STARTS)
ENDS = tuple(option.name for option in spark.ENDS)
_COMMAND_LINE = "command line"
_SPARK_OPTION = "--spark-conf"
_SPARKS_OWN = "Spark's configuration"
_ON_COMMAND_LINE = (_COMMAND_LINE, _SPARK_OPTION)
_HADOOP = "spark.hadoop."
_WITH_CASE = ("ingest.topic.", "ingest.tableproperty.")
"""Beginnings, in lower case, of names in which case matters, because topics and Delta's properties distinguish it."""
_MAX_SHOWN = 5
_origins: dict[str, str] = {}
"""Place where each setting of this process was written, such as a file with a line, by the setting's name.

`command_settings` and `file_settings` replace all places. `spark_settings` and `note_session_settings` add the places
of Spark's settings.
"""
POSITIONS = (*SUBSCRIPTION, *STARTS, *ENDS)
"""Names of the options that say which topics to read, where to start and where to end."""


def read_settings(*paths: Path) -> dict[str, str]:
    """Read files of Java properties (`java.util.Properties.load`) in UTF-8, and return the values by name.

    Names keep their case. A byte-order mark, which Windows editors write, is skipped.

    Raises:
        ConfigurationError: a file cannot be read, is not UTF-8, has a malformed escape, or gives a name that it or an
            earlier file has given, perhaps in another case.
    """
    settings: dict[str, str] = {}
    known: set[str] = set()
    for path in paths:
        for name, value, _ in _read(path):
            compared = name if name.lower().startswith(_WITH_CASE) else name.lower()
            if compared in known:
                raise ConfigurationError(f"the settings file {path} gives {name} twice: keep one of them")
            known.add(compared)
            settings[name] = value
    return settings


def read_spark_properties(path: Path) -> dict[str, str]:
    """Read a properties file for Spark as Spark does (`Utils.getPropertiesFromFile`), and return the values by name.

    If a name occurs twice, the last value is returned. Blanks around values are removed, except line ends.

    Raises:
        ConfigurationError: the file cannot be read, is not UTF-8, or has a malformed escape.
    """
    return {name: value.strip(_SPARKS_BLANKS) for name, value, _ in _read(path)}


def _read(path: Path) -> list[tuple[str, str, int]]:
    """Return the name, the value and the number of the first line of each setting in a file."""
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
    lines = accumulate((element.source.count("\n") for element in elements), initial=1)
    return [
        (element.key, element.value, line)
        for element, line in zip(elements, lines, strict=False)
        if isinstance(element, javaproperties.KeyValue)
    ]


def parse_assignments(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse the `name=value` texts of the command-line option `option`, and return the values by name.

    Raises:
        ConfigurationError: a text has no name or no `=`. The message names `option`.
    """
    assignments = {}
    for text in texts or ():
        name, equals, assignments[name] = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"{option} needs name=value, got {name!r}")
    return assignments


def command_settings(file: Path | None, assignments: Sequence[str] | None, reads: Mapping[str, str]) -> dict[str, str]:
    """Return a command's settings, which are the settings in `file`, overridden by the command line.

    If the command line names topics, all options in `file` that name topics are left out. For error messages, the
    module keeps where each setting was written.

    Args:
        file: the settings file; None: no file.
        assignments: `name=value` texts of the command's `--option`.
        reads: options from the command's other arguments (such as `--subscribe`), by name. They override `assignments`.

    Raises:
        ConfigurationError: the file cannot be read or is malformed, or a text has no name or no `=`.
    """
    from_command = {**parse_assignments(assignments, "--option"), **reads}
    from_file = read_settings(file) if file else {}
    # Only one option may name topics. So topics on the command line replace all such options of the file.
    replaced = (*from_command, *SUBSCRIPTION) if gives(from_command, SUBSCRIPTION) else from_command
    settings = without(from_file, replaced) | from_command
    _origins.clear()
    _origins.update(_origins_in(file))
    _origins.update(dict.fromkeys(from_command, _COMMAND_LINE))
    for name in _origins.keys() - settings.keys():
        del _origins[name]
    return settings


def file_settings(*files: Path) -> dict[str, str]:
    """Return the settings in `files` by name. For error messages, keep where each setting was written.

    Raises:
        ConfigurationError: a file cannot be read or is malformed, or a setting is given twice.
    """
    settings = read_settings(*files)
    _origins.clear()
    for file in files:
        _origins.update(_origins_in(file))
    return settings


def spark_settings(file: Path | None, assignments: Sequence[str] | None) -> dict[str, str]:
    """Return Spark's settings from a properties file, overridden by `assignments`, by name.

    For error messages, the module keeps where each setting was written.

    Args:
        file: properties file; None: no file.
        assignments: `name=value` texts of the command's `--spark-conf`.

    Raises:
        ConfigurationError: the file cannot be read, or a text has no name or no `=`.
    """
    from_file = read_spark_properties(file) if file else {}
    from_command = parse_assignments(assignments, _SPARK_OPTION)
    _origins.update(_origins_in(file))
    _origins.update(dict.fromkeys(from_command, _SPARK_OPTION))
    return from_file | from_command


def note_session_settings(settings: Mapping[str, str], file: Path | None) -> None:
    """Keep, for error messages, where the settings of a running Spark session were written.

    A setting whose place this process already knows keeps this place.

    Args:
        settings: the session's settings, by name.
        file: properties file that spark-submit was given; None: unknown.
    """
    from_file: dict[str, str] = {}
    lines: dict[str, str] = {}
    with suppress(ConfigurationError):  # the driver may run on another machine than spark-submit
        from_file, lines = (read_spark_properties(file) if file else {}), _origins_in(file)
    for name, value in settings.items():
        known = lines[name] if from_file.get(name) == value else _SPARKS_OWN
        _origins.setdefault(name, known)


def _origins_in(file: Path | None) -> dict[str, str]:
    return {name: f"{file}, line {line}" for name, _, line in _read(file)} if file else {}


def origin_of(name: str) -> str:
    """Return where the setting `name` was written: a file with a line, or the command line.

    `name` is a setting of the command or of Spark. The result is empty for a setting that was not written anywhere,
    because tiered_stream itself has added it, or a program has given it.
    """
    return next((origin for given, origin in _origins.items() if given.lower() == name.lower()), "")


def with_origins(text: str) -> str:
    """Return the text of an error, followed by the places where the settings in this text were written.

    Settings on the command line get no place. A Hadoop setting is also found without Spark's prefix `spark.hadoop.`.
    """
    return _with_places(text, {name: place for name, place in _origins.items() if place not in _ON_COMMAND_LINE})


@contextmanager
def naming_lines(file: str | None) -> Iterator[None]:
    """If the block raises a TieredStreamError, add to its message the lines of `file` with the settings that it names.

    Nothing is added if `file` is None or cannot be read on this machine, or if the message already names lines.
    """
    try:
        yield
    except TieredStreamError as error:
        with suppress(ConfigurationError):
            if file and f"{file}, line " not in str(error):
                error.args = (_with_places(str(error), _origins_in(Path(file))), *error.args[1:])
        raise


def _with_places(text: str, places: Mapping[str, str]) -> str:
    named = (name for name in places if _names(text, name) or _names(text, name.removeprefix(_HADOOP)))
    found = [f"{name}: {places[name]}" for name in named]
    return f"{text} ({'; '.join(found[:_MAX_SHOWN])})" if found else text


def _names(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w-]|\.\w)", text, re.IGNORECASE))


def gives(settings: Mapping[str, str], names: Iterable[str]) -> bool:
    """Return whether `settings` has at least one of the names, without regard to case."""
    return not {name.lower() for name in names}.isdisjoint(name.lower() for name in settings)


def without(settings: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return a copy of `settings` without the settings in `names`, whose case is ignored."""
    left_out = {name.lower() for name in names}
    return {name: value for name, value in settings.items() if name.lower() not in left_out}

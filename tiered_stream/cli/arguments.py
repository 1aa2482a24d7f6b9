"""Arguments, output and exit codes that the commands that read topics share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tiered_stream.delta.settings.ingest_settings import source_options
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.observe.standard_output import open_console, write_bytes
from tiered_stream.options.command_settings import command_settings

if TYPE_CHECKING:
    from rich.console import RenderableType

SettingsFile = Annotated[Path | None, typer.Option(help="A settings file; that of an ingest job will do.")]
Assignments = Annotated[list[str] | None, typer.Option(help="name=value, any setting; may be repeated.")]
Subscribe = Annotated[str | None, typer.Option(help="Topics, separated by commas.")]
SubscribePattern = Annotated[str | None, typer.Option(help="A pattern of topics' names.")]
Assign = Annotated[str | None, typer.Option(help='Partitions: {"topicA":[0,1]}.')]
PropertiesFile = Annotated[
    Path | None, typer.Option(help="Spark's settings, as for spark-submit; default: its own conf/spark-defaults.conf.")
]
SparkConf = Annotated[list[str] | None, typer.Option(help="name=value for Spark; may be repeated.")]
GetPrice = Annotated[float | None, typer.Option(help="What 1,000 GETs cost, in US dollars.")]
GibPrice = Annotated[float | None, typer.Option(help="What a GiB costs that leaves the storage.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]

FAILED, REFUSED, STOPPED = 1, 2, 130
LOOK_EXIT_CODES = "Exit codes: 0 done; 1 failed while it looked; 2 refused; 130 stopped by Ctrl-C."


def reads(subscribe: str | None, subscribe_pattern: str | None, assign: str | None) -> dict[str, str]:
    """Return the arguments that are not None as options of the source."""
    given = {"subscribe": subscribe, "subscribePattern": subscribe_pattern, "assign": assign}
    return {name: value for name, value in given.items() if value is not None}


def source_settings(settings: Path | None, option: Sequence[str] | None, chosen: dict[str, str]) -> dict[str, str]:
    """Return the source's options from a settings file, `name=value` texts and chosen topics.

    Raises: as `command_settings`.
    """
    return source_options(command_settings(settings, option, chosen))


def show(found: str | RenderableType) -> None:
    """Print a text as it is, and anything else as a terminal shows it; a closed output is ignored."""
    if isinstance(found, str):
        write_bytes(found.encode() + b"\n")
    else:
        open_console().print(found)


@contextmanager
def exit_codes(*refused: type[TieredStreamError]) -> Iterator[None]:
    """Turn this package's errors into a line on standard error and an exit code of the command.

    ConfigurationError and the classes `refused` exit with REFUSED (2), other errors with FAILED (1), and Ctrl-C with
    STOPPED (130).
    """
    try:
        yield
    except TieredStreamError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(REFUSED if isinstance(error, (ConfigurationError, *refused)) else FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None

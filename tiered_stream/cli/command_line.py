"""Arguments, output and exit codes that the commands share, and the Typer app of command lines."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tiered_stream import errors
from tiered_stream.delta.settings.ingest_settings import JOB_SETTINGS, check_names, source_options
from tiered_stream.extras import naming_extras
from tiered_stream.observe.standard_output import open_console, write_bytes
from tiered_stream.options.settings_files import command_settings, with_origins
from tiered_stream.options.types import byte_size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings
    from tiered_stream.plan.read_cost import Prices


SettingsFile = Annotated[Path | None, typer.Option(help="A settings file, such as the file of an ingest job.")]
Assignments = Annotated[list[str] | None, typer.Option(help="name=value, any setting; may be repeated.")]
PropertiesFile = Annotated[
    Path | None, typer.Option(help="Spark's settings, as for spark-submit; default: its own conf/spark-defaults.conf.")
]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]

TIME = "2026-11-01T00:00:00Z (with a zone), milliseconds since the epoch, or back from now: -90m, -3h, -2d"
"""Forms of a time, for help texts."""

FAILED, REFUSED, DIFFERS, STOPPED = 1, 2, 3, 130
SIGNALED = 128
"""A command that a signal has stopped ends with this exit code plus the signal's number."""
WRONG_SETUP = (
    errors.ConfigurationError, errors.UnknownTopicError, errors.BrokerAuthorizationError, errors.StorageAccessError,
    errors.StorageBucketNotFoundError,
)  # fmt: skip
"""Errors of a wrong setting or a missing permission, for which the exit code is REFUSED."""
WRONG_INPUT = (*WRONG_SETUP, errors.DataLossError)
"""Errors for which the exit code is REFUSED, if they are raised before anything is written."""


@dataclass(frozen=True, kw_only=True)
class SettingsArguments:
    """Command line arguments for the settings, and for the topics or partitions to read."""

    settings: SettingsFile = None
    option: Assignments = None
    subscribe: Annotated[str | None, typer.Option(help="Topics, separated by commas.")] = None
    subscribe_pattern: Annotated[str | None, typer.Option(help="A pattern of topics' names.")] = None
    assign: Annotated[str | None, typer.Option(help='Partitions: {"topicA":[0,1]}.')] = None

    def subscription(self) -> dict[str, str]:
        """Return, by name, the options `subscribe`, `subscribePattern` and `assign` that the command line gives."""
        named = {"subscribe": self.subscribe, "subscribePattern": self.subscribe_pattern, "assign": self.assign}
        return {name: value for name, value in named.items() if value is not None}

    def all_settings(self) -> dict[str, str]:
        """Return the settings of the file, overridden by the settings and topics of the command line.

        Raises:
            ConfigurationError: the file cannot be read or is malformed, or a text of `--option` has no name or no `=`.
        """
        return command_settings(self.settings, self.option, self.subscription())

    def source_options(self) -> dict[str, str]:
        """Return the options of the source: all settings except `ingest.*`, from the file and the command line.

        Raises:
            ConfigurationError: the file cannot be read or is malformed, a setting of the job is unknown, or a text of
                `--option` has no name or no `=`.
        """
        settings = self.all_settings()
        check_names(settings, JOB_SETTINGS)
        return source_options(settings)


@dataclass(frozen=True, kw_only=True)
class SparkArguments:
    """Command line arguments that configure Spark."""

    properties_file: PropertiesFile = None
    spark_conf: Annotated[list[str] | None, typer.Option(help="name=value for Spark; may be repeated.")] = None

    def hadoop_settings(self) -> HadoopSettings | None:
        """Return the Hadoop settings in Spark's file and `--spark-conf`, or None if neither argument is given.

        Raises:
            ConfigurationError: the file cannot be read, or a text has no name or no `=`.
        """
        # Imported late, because only some commands need them.
        from tiered_stream.doctor.spark_conf import read_spark_conf

        is_given = self.properties_file or self.spark_conf
        return read_spark_conf(self.properties_file, self.spark_conf).hadoop_settings() if is_given else None


@dataclass(frozen=True, kw_only=True)
class PriceArguments:
    """Command line arguments for the storage's prices in US dollars. None stands for the default price."""

    get_price: Annotated[float | None, typer.Option(help="Price of 1,000 GETs, in US dollars.")] = None
    gib_price: Annotated[
        float | None, typer.Option(help="Price of each GiB that leaves the storage, in US dollars.")
    ] = None

    def prices(self) -> Prices:
        """Return the prices of requests and bytes, with the default price for each argument that is None."""
        from tiered_stream.plan.read_cost import prices_or_default

        return prices_or_default(self.get_price, self.gib_price)


def with_grouped_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` in a form for Typer, which needs one parameter for each argument.

    Each parameter whose type is a dataclass, such as `SettingsArguments`, is replaced by one parameter for each field.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in own if is_dataclass(parameter.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for parameter in own:
        if parameter.name in groups:
            parameters += inspect.signature(groups[parameter.name], eval_str=True).parameters.values()
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**arguments: Any) -> None:
        for name, group in groups.items():
            arguments[name] = group(**{field.name: arguments.pop(field.name) for field in fields(group)})
        command(**arguments)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def show(report: str | RenderableType) -> None:
    """Print `report` to standard output: a text unchanged with a line end, any other report as rich renders it.

    If the reader of standard output has closed it, the report is dropped.
    """
    if isinstance(report, str):
        write_bytes(report.encode() + b"\n")
    else:
        open_console().print(report)


@contextmanager
def exit_codes(
    *refused: type[errors.TieredStreamError], failed: tuple[type[Exception], ...] = (), console: Console | None = None
) -> Iterator[None]:
    """Catch this package's errors in the block, print them, and end the command with an exit code.

    The exit code is REFUSED (2) for ConfigurationError, for the error classes `refused`, and if a package of an extra
    is missing. It is FAILED (1) for other errors of this package and for the classes `failed`, and STOPPED (130) for
    Ctrl-C. Errors are printed on `console`, by default on standard error.
    """
    caught: tuple[type[Exception], ...] = (errors.TieredStreamError, *failed)
    try:
        with naming_extras("this command"):
            yield
    except caught as error:
        if console is None:
            typer.echo(with_origins(str(error)), err=True)
        else:
            console.print(with_origins(str(error)), style="red", markup=False)
        raise typer.Exit(REFUSED if isinstance(error, (errors.ConfigurationError, *refused)) else FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None


def command(run: Callable[..., None]) -> Callable[..., None]:
    """Return the command `run` in a form for Typer: with one parameter for each argument, and with exit codes.

    The exit codes are described at `exit_codes`; the errors in WRONG_SETUP give REFUSED (2).
    """
    return with_grouped_arguments(exit_codes(*WRONG_SETUP)(run))


def command_app(*, no_args_is_help: bool = False, add_completion: bool = False) -> typer.Typer:
    """Return a Typer app that shows plain tracebacks, because Typer's own can show local variables with secrets.

    If the output is not a terminal, the help and errors of arguments are plain text, too, without boxes of 80 columns.

    Args:
        no_args_is_help: True to print the help if the command line has no arguments.
        add_completion: True to add Typer's options that install completion in a shell.
    """
    return typer.Typer(
        no_args_is_help=no_args_is_help,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
        rich_markup_mode="rich" if sys.stderr.isatty() and sys.stdout.isatty() else None,
    )


def _rate(text: str) -> int:
    try:
        return byte_size(1)(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


@dataclass(frozen=True, kw_only=True)
class ReplayCommand:
    """Command line arguments that only the command `replay` has."""

    from_time: Annotated[str, typer.Option("--from", help=f"The first time: {TIME}.")]
    to_time: Annotated[str | None, typer.Option("--to", help="The time before which it ends; default: all.")] = None
    into: Annotated[
        str | None, typer.Option(help="A Delta table (its path or name in the catalog), kafka:TOPIC or parquet:FOLDER.")
    ] = None
    name: Annotated[str | None, typer.Option(help="The replay's name; default: made from the arguments.")] = None
    checkpoint: Annotated[
        str | None, typer.Option(help="Its checkpoint; default: in the table or folder, _checkpoints/replay-NAME.")
    ] = None
    exact: Annotated[bool, typer.Option("--exact", help="Every record of that time, and no other.")] = False
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the table's rows of the same offsets out, in the same commit.")
    ] = False
    lane: Annotated[str | None, typer.Option(help="auto, direct or spark.")] = None
    tasks: Annotated[int | None, typer.Option(min=1, help="The most tasks at once.")] = None
    max_bytes_per_second: Annotated[
        int | None,
        typer.Option(parser=_rate, metavar="SIZE", help="The most that is fetched, and the most that is written: 50m."),
    ] = None
    verify: Annotated[bool, typer.Option("--verify", help="In the end, compare the table with the topics.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be read, and stop.")] = False
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: for programs.")] = False

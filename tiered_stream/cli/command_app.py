"""Typer apps for the command lines of the package and its jobs."""

from __future__ import annotations

import sys

import typer


def command_app(*, no_args_is_help: bool = False, add_completion: bool = False) -> typer.Typer:
    """Return a Typer app that shows Python's plain tracebacks. Typer's own may show local variables with secrets.

    Outside a terminal, help and wrong arguments are shown as plain text, too, without boxes of 80 columns.

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

"""Typer apps for the command lines of the package and its jobs."""

from __future__ import annotations

import typer


def command_app(*, no_args_is_help: bool = False, add_completion: bool = False) -> typer.Typer:
    """Return a Typer app with Python's plain tracebacks, because Typer's may show local variables with secrets."""
    return typer.Typer(
        no_args_is_help=no_args_is_help,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
    )

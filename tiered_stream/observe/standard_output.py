"""Standard output of commands: in any encoding, and after its reader has gone."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper

from rich.console import Console

_WIDE = 10_000
"""Columns in files and pipes, so that nothing is broken to fit a width."""


class OutputConsole(Console):
    """A console whose program goes on, silently, when nobody reads its output any more (`… | head`).

    rich's own ends the program with 1, which is the exit code of a failure.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard_output()


def open_console(*, stderr: bool = False, soft_wrap: bool = True) -> OutputConsole:
    """Return a console for text in which nothing is markup: names come from storage and brokers."""
    replace_unknown_characters()
    console = OutputConsole(highlight=False, markup=False, soft_wrap=soft_wrap, stderr=stderr)
    if console.is_terminal:
        return console
    return OutputConsole(highlight=False, markup=False, soft_wrap=soft_wrap, stderr=stderr, width=_WIDE)


def replace_unknown_characters() -> None:
    r"""Print a character that the terminal's encoding does not have as `\xNN`, as Python does on standard error."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def write_bytes(data: bytes) -> bool:
    """Write to standard output at once, in no encoding but the bytes' own. Return whether somebody still reads it."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_output()
        return False
    return True


def discard_output() -> None:
    """Send the rest of the output nowhere. Otherwise Python complains of it at its end, with exit code 120."""
    with suppress(OSError):  # it has no descriptor in tests
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)

"""Standard output of commands. Characters that its encoding lacks are escaped, and a closed pipe is not an error."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper

from rich.console import Console

_WIDE = 10_000
"""Width in columns of output that does not go to a terminal, so that no line is wrapped."""


class OutputConsole(Console):
    """Console that drops its output after the reader of standard output has closed it (`… | head`).

    The program continues. rich's own console ends the program with exit code 1, which would mean a failure.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard_output()


def open_console(*, stderr: bool = False, soft_wrap: bool = True) -> OutputConsole:
    """Return a console that does not interpret markup, because text may contain names from storage and brokers.

    If its output is not a terminal, lines are 10,000 columns wide.

    Args:
        stderr: write to standard error, not to standard output.
        soft_wrap: do not wrap lines.
    """
    replace_unknown_characters()
    console = OutputConsole(highlight=False, markup=False, soft_wrap=soft_wrap, stderr=stderr)
    # Not rich's `is_terminal`, which is true for a pipe, too, if FORCE_COLOR or TTY_COMPATIBLE is set.
    if not console.file.isatty():
        console.width = _WIDE
    return console


def replace_unknown_characters() -> None:
    r"""Make standard output print characters that its encoding lacks as `\xNN`, like standard error."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def write_bytes(data: bytes) -> bool:
    """Write bytes unchanged to standard output and flush it; return False if its reader has closed it, else True."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_output()
        return False
    return True


def discard_output() -> None:
    """Send all further standard output to the null device.

    Without this call, Python would report an error about the closed output when the program ends, with exit code 120.
    """
    with suppress(OSError):  # in tests, standard output has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)

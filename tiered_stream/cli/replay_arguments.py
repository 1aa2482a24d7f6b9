"""Command line arguments of `tiered-stream replay`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tiered_stream.options.types import byte_size

_TIME = "2026-11-01T00:00:00Z (with a zone), milliseconds since the epoch, or back from now: -90m, -3h, -2d"


def _rate(text: str) -> int:
    try:
        return byte_size(1)(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


@dataclass(frozen=True, kw_only=True)
class ReplayCommand:
    """Command line arguments that only the command `replay` has."""

    from_time: Annotated[str, typer.Option("--from", help=f"The first time: {_TIME}.")]
    to_time: Annotated[str | None, typer.Option("--to", help="The time before which it ends; default: all.")] = None
    into: Annotated[
        str | None,
        typer.Option(help="A Delta table (its path or name in the catalog), kafka:TOPIC or parquet:FOLDER."),
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

"""`tiered-stream cat`: print records of topics on standard output, straight from tiered storage, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.cli.record_format import TOKENS, as_json, by_template
from tiered_stream.observe.standard_output import write_bytes
from tiered_stream.options.remote_options import COLUMNS
from tiered_stream.options.settings_files import without

if TYPE_CHECKING:
    import pyarrow as pa

CAT_EXIT_CODES = "Exit codes: 0 done; 1 failed while it read; 2 refused, nothing was read; 130 stopped by Ctrl-C."
_EVERYTHING = {"startingOffsets": "earliest", "includeHeaders": "true"}


@cli.command
def cat(
    settings: cli.SettingsArguments,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=0, help="Stop after this number of records.")
    ] = None,
    format: Annotated[str, typer.Option("--format", "-f", help=f"{TOKENS}.")] = "%s\\n",
    json: Annotated[bool, typer.Option("--json", "-J", help="A line of JSON for each record.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
) -> None:
    """Print the records of topics, one partition after another, in offset order.

    The source's options choose the records: startingOffsets, endingTimestamp and so on. Without them, all records are
    printed.
    """
    format_record = as_json if json else by_template(format)
    # All columns are read, because the template chooses what is printed.
    options = without(settings.source_options(), [COLUMNS.name])
    # Imported late, because other commands need neither numba nor pyarrow.
    from tiered_stream.read import scanner

    read = scanner.follow if follow else scanner.scan
    _print(read({**_EVERYTHING, **options}), count, format_record)


def _print(batches: Iterable[pa.RecordBatch], count: int | None, printed: Callable[[dict[str, Any]], bytes]) -> None:
    """Print each batch of records as soon as it comes, until `count` records are printed or the output is closed.

    If `count` is None, all records are printed. `printed` returns the bytes to print for one record.
    """
    left = sys.maxsize if count is None else count
    if not left:
        return
    for batch in batches:
        rows = _rows(batch.slice(0, left))
        left -= len(rows)
        if not write_bytes(b"".join(map(printed, rows))) or not left:
            return


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    import pyarrow as pa

    at = batch.schema.get_field_index("timestamp")
    millis = pa.array((stamp // 1000 for stamp in batch.column(at).cast(pa.int64()).to_pylist()), pa.int64())
    rows: list[dict[str, Any]] = batch.set_column(at, "timestamp", millis).to_pylist()
    return rows

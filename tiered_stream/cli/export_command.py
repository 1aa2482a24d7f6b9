"""`tiered-stream export`: write records of topics into files, straight from tiered storage, without Spark."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

import tiered_stream.cli.command_line as cli
from tiered_stream.process.heap_and_gc import share_heap_with_arrow

if TYPE_CHECKING:
    from tiered_stream.export.run_export import ExportReport

EXPORT_EXIT_CODES = """\
Exit codes: 0 done, or finished before; 1 failed while it ran; 2 refused, nothing was written; 3 done, but records that
do not decode were left out; 130 stopped by Ctrl-C or SIGTERM. After 1 or 130, give the same command again.
"""


@cli.command
def export(
    settings: cli.SettingsArguments,
    into: Annotated[
        str, typer.Option(help="A file (orders.parquet), or a folder (orders/) that gets a file for each partition.")
    ],
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="parquet, arrow, jsonl, csv, jsonl.gz, …; default: by the file's name."),
    ] = None,
    from_time: Annotated[str | None, typer.Option("--from", help=f"The first time: {cli.TIME}.")] = None,
    to_time: Annotated[str | None, typer.Option("--to", help="The time before which it ends; default: all.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Every record of that time, and no other.")] = False,
    where: Annotated[
        list[str] | None, typer.Option(help="A condition in SQL: amount >= 100, key = 'a17'; may be repeated.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export there.")] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Splits that are read at once; default: one a core.")
    ] = None,
    json: cli.Json = False,
) -> None:
    """Write records of topics into a file, or into a folder with a file for each partition, in offset order.

    Starting and ending options choose the records, or --from and --to as in a replay. Without them, all records are
    exported. With the settings ingest.value.format and ingest.value.schema, values become columns, as in a typed table.
    """
    share_heap_with_arrow()  # before pyarrow is imported
    # Imported late, because other commands need neither numba nor pyarrow.
    from tiered_stream.errors import ConfigurationError
    from tiered_stream.export.run_export import ExportArguments, target_of
    from tiered_stream.export.run_export import export as run
    from tiered_stream.replays.times import parse_range

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if exact and from_time is None and to_time is None:
        raise ConfigurationError("--exact needs a time: give --from or --to")
    timed = from_time is not None or to_time is not None
    times = parse_range(from_time or "0", to_time, time.time_ns() // 1_000_000) if timed else None
    path, is_folder, file_format = target_of(into, format)
    report = run(
        ExportArguments(
            settings=settings.all_settings(), into=path, is_folder=is_folder, file_format=file_format, times=times,
            time_texts=(from_time, to_time), exact=exact, where=where or (), overwrite=overwrite, threads=threads,
        ),
        lambda line: typer.echo(f"export: {line}", err=True),
    )  # fmt: skip
    cli.show(_as_json(report) if json else _described(report))
    if report.undecodable:
        raise typer.Exit(cli.DIFFERS)


def _described(report: ExportReport) -> str:
    from tiered_stream.observe.read_metrics import describe

    if report.finished_before:
        text = "The export has finished before, and nothing was done. --overwrite starts it again"
    else:
        rate = report.records / report.seconds if report.seconds else 0.0
        files = f"{len(report.files):,} files" if len(report.files) != 1 else "1 file"
        text = (
            f"{report.records:,} records in {files} of {report.size / (1 << 20):,.1f} MiB, "
            f"{rate:,.0f} records/s, {describe(report.metrics)}"
        )
    if report.undecodable:
        reason = f": {report.first_reason}, …" if report.first_reason else ""
        text += f"\n{report.undecodable:,} records do not decode and were left out{reason}"
    return text


def _as_json(report: ExportReport) -> str:
    import orjson

    figures = {
        "records": report.records,
        "files": [str(file) for file in report.files],
        "bytes": report.size,
        "seconds": round(report.seconds, 3),
        "undecodable": report.undecodable,
        "first_reason": report.first_reason,
        "finished_before": report.finished_before,
        "storage_bytes": report.metrics.remote_fetch_bytes,
        "storage_requests": report.metrics.remote_fetch_requests,
        "broker_bytes": report.metrics.broker_fetch_bytes,
    }
    return orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode()

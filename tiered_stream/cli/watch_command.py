"""`tiered-stream watch`: show the streaming queries of a driver while they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from time import sleep
from typing import Annotated
from urllib.parse import urlsplit

import orjson
import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import tiered_stream.cli.command_line as cli
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.observe.standard_output import open_console, write_bytes

WATCH_EXIT_CODES = "Exit codes: 0 done; 1 nothing responds there; 2 refused; 130 stopped by Ctrl-C."
_SECONDS, _LARGEST, _LONGEST_LINE = 10.0, 64 << 20, 16 << 10
_MIB = 1 << 20


@dataclass(slots=True)
class QueryFigures:
    """Metrics of one streaming query.

    `values` are the metrics' values, by their names without the common prefix. `dead_letters` is the number of records
    that did not become rows, by the Delta table for dead letters that got them.
    """

    values: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    dead_letters: dict[str, float] = field(default_factory=lambda: defaultdict(float))


Figures = dict[str, QueryFigures]
"""Metrics of streaming queries, by the query's name."""


class NoAnswerError(TieredStreamError):
    """Error for an address that does not respond, or whose response has no metrics of a driver."""


def watch(
    address: Annotated[str, typer.Argument(help="host:port of the driver's metrics (ingest.metrics.prometheus).")],
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    json: cli.Json = False,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
) -> None:
    """Show the progress of a driver's streaming queries from the metrics that the driver serves, until Ctrl-C."""
    with cli.exit_codes():
        url, console = _url(address), open_console(soft_wrap=False)
        redraws = console.is_terminal and not json and not once
        with Live(console=console, auto_refresh=False) if redraws else nullcontext() as live:
            while True:
                figures = look(url)
                if live is not None:
                    live.update(_view(figures), refresh=True)
                elif json:
                    lines = (
                        orjson.dumps({"query": name, **query_figures.values})
                        for name, query_figures in sorted(figures.items())
                    )
                    once = not write_bytes(b"".join(line + b"\n" for line in lines)) or once
                else:  # a file or pipe cannot be redrawn, so each look prints a new table
                    console.print(_view(figures))
                if once or console.quiet:
                    return
                sleep(interval)


def _url(address: str) -> str:
    with suppress(ValueError):  # a malformed IPv6 address
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme in ("http", "https") and parts.hostname:
            # Without a user's name and password, which errors would show.
            server = parts.netloc.rpartition("@")[2]
            return parts._replace(netloc=server, path=parts.path if parts.path.strip("/") else "/metrics").geturl()
    raise ConfigurationError(f"{address!r} is not a host:port or URL of a driver's metrics")


def look(url: str) -> Figures:
    """Request the driver's metrics at `url`; return the metrics of its streaming queries, by the query's name.

    The result is empty if no query has finished a micro-batch. If a query's metric has several samples, which differ in
    other labels, their values are added up. The metric of dead letters is 0 if the query reports landed rows and no
    dead letters.

    Raises:
        NoAnswerError: no response came, or its status is not 200, or its body is not in Prometheus's format.
    """
    import urllib3
    from prometheus_client.parser import text_string_to_metric_families

    from tiered_stream.observe.prometheus_metrics import DEAD_LETTER_TABLE, DEAD_LETTERS, LANDED_ROWS, PREFIX
    from tiered_stream.timed_http import fetch, system_tls, timed_pools

    try:
        tls = system_tls() if url.startswith("https:") else None
        status, body = fetch(timed_pools(_SECONDS, _SECONDS, tls), "GET", url, _LARGEST)
        text = body.decode() if status == 200 else ""
        # The parser's time for a line grows with the square of the line's length.
        if max(map(len, text.split("\n"))) > _LONGEST_LINE:
            raise ValueError("a line of its response is longer than allowed")
        samples = [
            (sample.name, sample.labels, float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
    except (urllib3.exceptions.HTTPError, OSError, ValueError, LookupError, OverflowError) as error:
        raise NoAnswerError(f"{url} returns no metrics: {error}. Does the driver report its queries there?") from error
    if status != 200:
        raise NoAnswerError(f"{url} responds with {status}: it is not a driver that reports its queries")
    by_query: Figures = defaultdict(QueryFigures)
    for metric, labels, value in samples:
        if metric.startswith(PREFIX) and "le" not in labels and "query" in labels:
            query, name = by_query[labels["query"]], metric.removeprefix(PREFIX).removesuffix("_total")
            query.values[name] += value
            if name == DEAD_LETTERS and DEAD_LETTER_TABLE in labels:
                query.dead_letters[labels[DEAD_LETTER_TABLE]] += value
    for query in by_query.values():
        if LANDED_ROWS in query.values:
            query.values.setdefault(DEAD_LETTERS, 0.0)
    return dict(by_query)


def _view(queries: Figures) -> Group:
    """Return the output for the terminal: a table with a row for each query, and a line for each dead letter table."""
    places = (
        Text(f"{name}: {count:,.0f} dead letter{'s' * (count > 1)} in {place}")
        for name, figures in sorted(queries.items())
        for place, count in sorted(figures.dead_letters.items())
    )
    return Group(_table(queries), *places)


def _table(queries: Figures) -> Table:
    table = Table(caption=None if queries else "no query has finished a micro-batch yet")
    table.add_column("query", overflow="fold")
    for title, *_ in _COLUMNS:
        table.add_column(title, justify="right")
    for name, figures in sorted(queries.items()):
        cells = (_cell(figures.values, figure, unit, digits) for _, figure, unit, digits in _COLUMNS)
        table.add_row(name, *cells)
    return table


_COLUMNS = (
    ("batch", "batch_id", 1, 0), ("rows", "rows", 1, 0), ("dead letters", "dead_letters", 1, 0),
    ("rows/s", "rows_per_second", 1, 0), ("batch s", "batch_seconds", 1, 1), ("storage MiB", "storage_bytes", _MIB, 1),
    ("broker MiB", "broker_bytes", _MIB, 1), ("fallbacks", "fallbacks", 1, 0), ("lag", "lag_offsets", 1, 0),
    ("lag s", "lag_seconds", 1, 0),
)  # fmt: skip


def _cell(figures: Mapping[str, float], name: str, unit: int, digits: int) -> str:
    return f"{figures[name] / unit:,.{digits}f}" if name in figures else "-"

"""Rows that `verify` expects in a table of the latest state, computed by its own tasks, and without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiered_stream.delta.schema.routing import TaskSettings
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import query_settings
from tiered_stream.delta.settings.row_settings import SCHEMA_EVOLUTION
from tiered_stream.delta.write.latest_rows import DELETES, last_rows
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.options.parsing import parse_options, parse_subscription
from tiered_stream.options.spark_options import INCLUDE_HEADERS
from tiered_stream.verification.latest_rows_source import latest_rows
from tiered_stream.verification.sums_source import SplitsReader
from tiered_stream.verification.verify_table import _routing


def rows_of_topic(session: Any, options: Mapping[str, str], table: Path) -> list[dict[str, Any]]:
    """Return the row of each key's last record, as the tasks of `verify` decode it for the table."""
    settings = ingest.with_overrides(options, {SCHEMA_EVOLUTION.name: Evolution.NONE})
    query = query_settings({**settings, INCLUDE_HEADERS.name: "false"})
    routing, _ = _routing(session, query, parse_subscription(options).topics, str(table))
    given = ingest.source_options(TaskSettings(routing).added_to(query.options))
    reader = SplitsReader(parse_options(given, streaming=False), partial(latest_rows, routing=routing))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    if not batches:
        return []
    files = routing.spec
    rows = last_rows(pa.Table.from_batches(batches), files.keys, files.order_by).to_pylist()
    return [row for row in rows if not row[DELETES]]

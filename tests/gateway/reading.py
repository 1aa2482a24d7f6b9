"""Topics read through a gateway as a query's tasks read them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from tests.archives import arrow_rows
from tests.gateway.running import RunningGateway
from tests.rigs.stack.rows import Row
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import Split
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.plan.batch import plan_batch
from tiered_stream.read.split_reader import SplitReader


def options(gateway: RunningGateway, topic: str, given: Mapping[str, str] | None = None) -> Options:
    """Everything of the topic, through the gateway; `given` comes on top. There is no storage credential."""
    reading = {
        "kafka.bootstrap.servers": gateway.bootstrap_servers,
        "remote.signed.location.hosts": gateway.storage_endpoint,
        "subscribe": topic,
        "includeHeaders": "true",
    }
    return parse_options({**reading, **(given or {})}, streaming=False)


def plan(asked: Options) -> list[Split]:
    with closing(open_log_source(asked)) as tier:
        return plan_batch(asked, tier)


def read(splits: Sequence[Split], asked: Options) -> tuple[list[Row], ReadMetrics]:
    """The rows by partition and offset, and what they cost."""
    rows: list[Row] = []
    metrics = ReadMetrics()
    for split in splits:
        reader = SplitReader(split, asked)
        for batch in reader.batches():
            rows += arrow_rows(batch)
        metrics.add(reader.metrics)
    return sorted(rows, key=lambda row: (row.partition, row.offset)), metrics


def tiered_only(splits: Sequence[Split]) -> list[Split]:
    return [split for split in splits if split.locations]


def with_urls(split: Split, change: Mapping[str, str]) -> Split:
    """The split with a text in its signed URLs replaced, or another text in their place where the key is empty."""
    return replace(
        split,
        locations=tuple(replace(each, signed_url=_changed(each.signed_url or "", change)) for each in split.locations),
    )


def _changed(url: str, change: Mapping[str, str]) -> str:
    for before, after in change.items():
        url = url.replace(before, after)
    return url

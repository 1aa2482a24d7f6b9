"""Options to read a topic through a gateway, and what becomes of its signed URLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.gateway.running import RunningGateway
from tiered_stream.model import Split
from tiered_stream.options.parsing import Options, parse_options


def options(gateway: RunningGateway, topic: str, given: Mapping[str, str] | None = None) -> Options:
    """Everything of the topic, through the gateway; `given` comes on top. There is no storage credential."""
    reading = {
        "kafka.bootstrap.servers": gateway.bootstrap_servers,
        "remote.signed.location.hosts": gateway.storage_endpoint,
        "subscribe": topic,
        "includeHeaders": "true",
    }
    return parse_options({**reading, **(given or {})}, streaming=False)


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

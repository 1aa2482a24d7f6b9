"""Delay after which brokers copy a closed segment to the tier (KIP-1241, Kafka 4.4).

Until a segment is copied, its offsets are read from the brokers. A topic's `remote.copy.lag.ms` and
`remote.copy.lag.bytes` set the delay: 0 copies the segment at once, -1 copies it when the brokers would delete it from
their own disks. A segment is copied when it is old enough, or when enough newer log follows it, whichever comes first.
Brokers before 4.4 have neither setting, and copy at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.errors import BrokerError

LAG_MS, LAG_BYTES = "remote.copy.lag.ms", "remote.copy.lag.bytes"
COPY_LAG_CONFIGS = (
    LAG_MS, LAG_BYTES, "local.retention.ms", "local.retention.bytes", "retention.ms", "retention.bytes",
)  # fmt: skip
_AS_LOCAL_RETENTION, _AS_RETENTION = -1, -2
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


@dataclass(frozen=True, slots=True)
class CopyLag:
    """Condition under which brokers copy a topic's closed segment to the tier.

    The segment is copied at the age `ms`, or when `bytes` bytes of newer log follow it, whichever comes first. If `ms`
    or `bytes` is None, there is no such bound. `settings` are the topic's settings that define the bounds, as text.
    """

    ms: int | None
    bytes: int | None
    settings: str

    @property
    def is_unbounded(self) -> bool:
        """True if neither `ms` nor `bytes` limits the delay, so that the brokers never copy a segment of the topic."""
        return self.ms is None and self.bytes is None

    def __str__(self) -> str:
        if self.is_unbounded:
            return f"brokers copy no segment, as they keep all of them locally for ever ({self.settings})"
        conditions = [] if self.ms is None else [f"are {_duration(self.ms)} old"]
        conditions += [] if self.bytes is None else [f"have {self.bytes:,} bytes of newer log behind them"]
        return f"brokers keep closed segments from the tier until they {' or '.join(conditions)} ({self.settings})"


def copy_lag(configs: Mapping[str, str]) -> CopyLag | None:
    """Return the copy lag that the topic settings `configs` (values by name) define.

    Return None if closed segments are copied at once, because a lag is 0 or the brokers do not have the settings.
    """
    raw_ms, raw_bytes = (_number(configs, name) for name in (LAG_MS, LAG_BYTES))
    if raw_ms is None or raw_bytes is None:
        return None
    ms, size = _effective(raw_ms, configs, "ms"), _effective(raw_bytes, configs, "bytes")
    if 0 in (ms, size):
        return None
    settings = f"{LAG_MS}={raw_ms}, {LAG_BYTES}={raw_bytes}"
    return CopyLag(ms if ms > 0 else None, size if size > 0 else None, settings)


def copy_lags(reader: OffsetReader, topics: Collection[str]) -> dict[str, CopyLag]:
    """Return by topic the copy lag of each of `topics`; topics whose closed segments are copied at once are left out.

    If the request for the topics' settings fails, the result is empty, and no error is raised: a job does not need the
    right DESCRIBE_CONFIGS.
    """
    try:
        configs = reader.topic_configs(topics, COPY_LAG_CONFIGS)
    except BrokerError:
        return {}
    return {topic: lag for topic, topic_configs in configs.items() if (lag := copy_lag(topic_configs)) is not None}


def _effective(lag: int, configs: Mapping[str, str], unit: str) -> int:
    """Return the limit of the delay in ms or bytes, by the value `lag` of a copy lag setting; negative: no limit.

    The value -1 stands for the topic's local retention. The local retention may in turn stand for the topic's
    retention.

    Args:
        configs: the topic's settings, by name.
        unit: end of the settings' names: `ms` or `bytes`.
    """
    if lag != _AS_LOCAL_RETENTION:
        return lag
    local = _number(configs, f"local.retention.{unit}")
    if local is None or local == _AS_RETENTION:
        local = _number(configs, f"retention.{unit}")
    return -1 if local is None else local


def _number(configs: Mapping[str, str], name: str) -> int | None:
    """Return the setting `name` as an integer, or None if it is missing or not an integer."""
    try:
        return int(configs[name])
    except (KeyError, ValueError):
        return None


def _duration(ms: int) -> str:
    """Format milliseconds as a whole number of the largest unit (d, h, min, s, ms) that divides them."""
    size, unit = next((size, unit) for size, unit in _UNITS if not ms % size)
    return f"{ms // size:,} {unit}"

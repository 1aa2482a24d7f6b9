"""Values of options that are one word of several. Each value is also the text that the user writes."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """Kafka's `isolation.level`."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class LocatorName(StrEnum):
    """`remote.log.locator`: the locator, which finds the segments of an offset range."""

    AUTO = "auto"
    BROKER = "broker"
    METADATA_TOPIC = "metadata-topic"
    ARCHIVE = "archive"
    NONE = "none"


class Prefer(StrEnum):
    """`remote.prefer`: the source of offsets that both the storage and the brokers' disks have."""

    TIERED = "tiered"
    LOCAL = "local"


class Fallback(StrEnum):
    """`remote.fallback`: what to do with a split whose storage fails: read it from the broker, or fail."""

    BROKER = "broker"
    FAIL = "fail"


class StorageLayout(StrEnum):
    """`remote.storage.layout`: the plugin that wrote the objects, Kafka's `LocalTieredStorage` or Aiven's plugin."""

    LOCAL = "local"
    AIVEN = "aiven"


class TimestampStrategy(StrEnum):
    """`startingOffsetsByTimestampStrategy`: what to do if a partition has no record at or after its start time."""

    ERROR = "error"
    LATEST = "latest"


class GroupStrategy(StrEnum):
    """`startingOffsetsByGroupStrategy`: what to do if the starting group has no committed offset for a partition."""

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"

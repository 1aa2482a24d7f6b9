"""Options that are one word of several. Each is also the text that the user gave."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """Kafka's `isolation.level`."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class LocatorName(StrEnum):
    """`remote.log.locator`: who says where segments are."""

    AUTO = "auto"
    BROKER = "broker"
    METADATA_TOPIC = "metadata-topic"
    ARCHIVE = "archive"
    NONE = "none"


class Prefer(StrEnum):
    """`remote.prefer`: from where offsets are read that both the storage and the brokers have."""

    TIERED = "tiered"
    LOCAL = "local"


class Fallback(StrEnum):
    """`remote.fallback`: what becomes of a split whose storage fails."""

    BROKER = "broker"
    FAIL = "fail"


class StorageLayout(StrEnum):
    """`remote.storage.layout`: who wrote the objects, Kafka's `LocalTieredStorage` or Aiven's plugin."""

    LOCAL = "local"
    AIVEN = "aiven"


class TimestampStrategy(StrEnum):
    """`startingOffsetsByTimestampStrategy`: where a partition has nothing at or after its starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


class GroupStrategy(StrEnum):
    """`startingOffsetsByGroupStrategy`: where a partition has no committed offset of the starting group."""

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"

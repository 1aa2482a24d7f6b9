"""Values of options that are one word of several. Each value is also the text that the user writes."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """`kafka.isolation.level`: with `read_committed`, records of open and aborted transactions are left out."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class LocatorName(StrEnum):
    """`remote.log.locator`: component that finds the segments of an offset range; `none`: read brokers only."""

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
    """`remote.fallback`: what to do if the storage fails: read the rest of the split from the broker, or fail."""

    BROKER = "broker"
    FAIL = "fail"


class StorageLayout(StrEnum):
    """`remote.storage.layout`: the plugin that wrote the objects, Kafka's `LocalTieredStorage` or Aiven's plugin."""

    LOCAL = "local"
    AIVEN = "aiven"


class TimestampStrategy(StrEnum):
    """`startingOffsetsByTimestampStrategy`: action for a partition without a record at or after its start time.

    `error`: fail. `latest`: start the partition at its end.
    """

    ERROR = "error"
    LATEST = "latest"


class GroupStrategy(StrEnum):
    """`startingOffsetsByGroupStrategy`: action for a partition without a committed offset of the group.

    The group is the one in `startingOffsets`. `error`: fail. `earliest`, `latest`: start the partition there.
    """

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"

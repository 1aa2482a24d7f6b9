"""Enums for options whose value is one of several words. A member's value is the word that the user writes."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """`kafka.isolation.level`: with `read_committed`, records of open and aborted transactions are left out."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class LocatorName(StrEnum):
    """`remote.log.locator`: component that finds the tiered segments of an offset range.

    `none`: read everything from the brokers. `auto`: the first of `broker`, `metadata-topic` and `none` that works with
    the cluster and the other options.
    """

    AUTO = "auto"
    BROKER = "broker"
    METADATA_TOPIC = "metadata-topic"
    ARCHIVE = "archive"
    NONE = "none"


class Prefer(StrEnum):
    """`remote.prefer`: source from which to read offsets that are in the storage and also on the brokers' disks.

    `tiered`: the storage. `local`: the brokers.
    """

    TIERED = "tiered"
    LOCAL = "local"


class Fallback(StrEnum):
    """`remote.fallback`: action if the storage fails while a split is read.

    `broker`: read the rest of the split from the broker. `fail`: fail.
    """

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

    The option `startingOffsets` names the group. `error`: fail. `earliest`, `latest`: start the partition at the start
    or at the end of its log.
    """

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"

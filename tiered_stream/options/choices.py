"""Enums for options whose value is one of several words. A member's value is the word that the user writes."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """Value of `kafka.isolation.level`. `read_committed` leaves out records of open and aborted transactions."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class LocatorName(StrEnum):
    """Value of `remote.log.locator`, which names the component that finds the tiered segments of an offset range.

    `none`: read everything from the brokers. `auto`: the first of `broker`, `metadata-topic` and `none` that works with
    the cluster and the other options.
    """

    AUTO = "auto"
    BROKER = "broker"
    METADATA_TOPIC = "metadata-topic"
    ARCHIVE = "archive"
    NONE = "none"


class Prefer(StrEnum):
    """Value of `remote.prefer`: where to read offsets that are in the storage and also on the brokers' disks.

    `tiered`: from the storage. `local`: from the brokers.
    """

    TIERED = "tiered"
    LOCAL = "local"


class Fallback(StrEnum):
    """Value of `remote.fallback`, the action if the storage fails while a split is read.

    `broker`: read the rest of the split from the broker. `fail`: raise the storage's error.
    """

    BROKER = "broker"
    FAIL = "fail"


class StorageLayout(StrEnum):
    """Value of `remote.storage.layout`: the plugin that wrote the objects.

    `local`: Kafka's `LocalTieredStorage`. `aiven`: Aiven's tiered storage plugin.
    """

    LOCAL = "local"
    AIVEN = "aiven"


class TimestampStrategy(StrEnum):
    """Value of `startingOffsetsByTimestampStrategy`: action if a partition has no record at or after its start time.

    `error`: fail. `latest`: start the partition at its end.
    """

    ERROR = "error"
    LATEST = "latest"


class GroupStrategy(StrEnum):
    """Value of `startingOffsetsByGroupStrategy`: action if a consumer group has no committed offset for a partition.

    The option `startingOffsets` names the group. `error`: fail. `earliest`, `latest`: start the partition at the start
    or at the end of its log.
    """

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"

"""Kafka's message definitions for the records of `__remote_log_metadata` (storage/src/main/resources/message).

kafka-python writes the records by them; our own decoder reads these.
"""

from __future__ import annotations

from kafka.protocol.api_data import ApiData


class RemoteLogSegmentMetadataRecord(ApiData, load_json=__name__):  # type: ignore[call-arg, misc]
    """A broker began to copy a segment."""


class RemoteLogSegmentMetadataUpdateRecord(ApiData, load_json=__name__):  # type: ignore[call-arg, misc]
    """A segment's state changed."""


class RemotePartitionDeleteMetadataRecord(ApiData, load_json=__name__):  # type: ignore[call-arg, misc]
    """A partition is deleted, with all its segments."""

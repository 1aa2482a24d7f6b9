"""Values of metadata records, as the package decodes them; broker ids and event times, which it leaves out, are -1."""

from __future__ import annotations

from struct import pack

from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    PartitionDelete,
    RemoteLogMetadata,
    SegmentMetadataUpdate,
    encoded_partition,
)
from tiered_stream.records import flexible_versions as flexible


def encode_remote_log_metadata(metadata: RemoteLogMetadata) -> bytes:
    name = encoded_partition(metadata.partition)
    if isinstance(metadata, PartitionDelete):
        return b"\1\2\0" + name + pack(">iqbx", -1, -1, 0)
    if isinstance(metadata, SegmentMetadataUpdate):
        end = {} if metadata.end_offset is None else {1: pack(">q", metadata.end_offset)}
        custom = flexible.compact_bytes(metadata.custom_metadata)
        fields = metadata.segment_id.bytes + pack(">xiq", -1, -1) + custom + pack(">b", metadata.state)
        return b"\1\1\1" + name + fields + flexible.tagged_fields(end)
    segment = metadata.segment
    fields = pack(">xqqiqq", segment.base_offset, segment.end_offset, -1, segment.max_timestamp, -1)
    epochs = flexible.compact_array([pack(">iqx", *entry) for entry in segment.leader_epochs])
    custom = flexible.compact_bytes(segment.custom_metadata)
    return b"".join((
        b"\1\0\0", name, segment.segment_id.bytes, fields, epochs, pack(">i", segment.size), custom,
        pack(">b", metadata.state), flexible.tagged_fields({0: b"\1"} if segment.transaction_index_empty else {}),
    ))  # fmt: skip

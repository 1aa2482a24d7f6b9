"""Topics of records that a test makes, tiered as Aiven's plugin keeps them: no broker is needed to land them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import google_crc32c

from tests.locate.log_model import TieredSegment, manifest_of
from tests.stack.batches import record_batch
from tests.stack.rows import Record
from tiered_stream.model import LeaderEpoch, RemoteLogSegment, TopicPartition
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.fetcher import IndexType

_BATCH = 5000


def write_topic(
    bucket: Path,
    topic: str,
    partitions: Sequence[Sequence[Record]],
    first: int = 0,
    batch_records: int = _BATCH,
) -> None:
    """One segment for each partition that has records, from the offset `first` on, in record batches of so many."""
    topic_id = uuid5(NAMESPACE_OID, topic)
    for number, records in enumerate(partitions):
        if not records:
            continue
        starts = range(0, len(records), batch_records)
        batches = [record_batch(records[at : at + batch_records], base_offset=first + at) for at in starts]
        log = b"".join(batches)
        segment = RemoteLogSegment(
            TopicPartition(topic, number), topic_id, uuid5(topic_id, f"{number} {first}"), first,
            first + len(records) - 1, len(log), records[-1].timestamp_ms, (LeaderEpoch(0, 0),),
            transaction_index_empty=True,
        )  # fmt: skip
        main = bucket / main_path(segment)
        main.parent.mkdir(parents=True, exist_ok=True)
        main.with_name(f"{main.name}.log").write_bytes(log)
        tiered = TieredSegment(segment, b"", _indexes(batches, batch_records))
        main.with_name(f"{main.name}.indexes").write_bytes(b"".join(tiered.indexes.values()))
        main.with_name(f"{main.name}.rsm-manifest").write_bytes(manifest_of(tiered))


def _indexes(batches: Sequence[bytes], batch_records: int) -> dict[IndexType, bytes]:
    """All batches but the first are in the offset index, as if each were longer than `index.interval.bytes`."""
    no_producers = struct.pack(">i", 0)
    positions = accumulate(map(len, batches[:-1]))
    entries = [(number * batch_records - 1, position) for number, position in enumerate(positions, 2)]
    return {
        IndexType.OFFSET: b"".join(struct.pack(">ii", *entry) for entry in entries),
        IndexType.TIMESTAMP: b"",
        IndexType.TRANSACTION: b"",
        IndexType.PRODUCER_SNAPSHOT: struct.pack(">hI", 1, google_crc32c.value(no_producers)) + no_producers,
        IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    }


def typed_options(bucket: Path, topics: str, given: Mapping[str, str]) -> dict[str, str]:
    """Everything in the topics."""
    return {
        "remote.log.locator": "archive",
        "remote.storage.layout": "aiven",
        "remote.storage.uri": bucket.as_uri(),
        "subscribe": topics,
        "startingOffsets": "earliest",
        **given,
    }

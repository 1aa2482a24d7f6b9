"""Plan of an archive of 1,000,000 segments: a listing of 3,000,000 keys, and a manifest for each segment.

The bucket is made up while it is read, outside of the meter's
seconds. Its requests take no time, which a real bucket's do: a listing returns 1,000 keys.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.rigs.scale.made_up_topics import OFFSETS, SEGMENT_BYTES, Indexes
from tests.rigs.scale.measured import Meter
from tests.rigs.scale.segments import SEGMENTS, warm_up
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier.layouts import PLAIN, archive_in
from tests.tier.segments import TieredSegment, tiered
from tiered_stream.data_limits import Limit
from tiered_stream.locate.archive.archive_locator import ArchiveLocator
from tiered_stream.locate.archive.archive_offsets import ArchiveOffsetReader
from tiered_stream.model import ByteRange, RemoteLogSegment, TopicPartition, uuid_to_text
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.storage.fetcher import IndexType
from tiered_stream.storage.object_store import ObjectStore

TOPIC, TOPIC_ID = "orders", UUID(int=7 << 64 | 7)
SUFFIXES = (".indexes", ".log", ".rsm-manifest")
_PAGE = 1000
_ID = UUID(int=1)
_PARTITION, _START, _END = 111_111_111, 222_222_222, 333_333_333
"""Numbers in the manifest in place of which each segment's own are written."""


class MadeUpBucket(ObjectStore):
    """Bucket of a topic with so many partitions and, in each, so many segments of 1 GiB; all have one manifest."""

    def __init__(self, partitions: int, segments: int, meter: Meter) -> None:
        self.partitions, self.segments, self._meter = partitions, segments, meter
        batches = [[record_batch([Record()] * OFFSETS)]]
        (self.template,) = tiered(TopicPartition(TOPIC, 0), batches, topic_id=TOPIC_ID, segment_ids=iter([_ID]))
        (data,) = [data for key, data in PLAIN.objects(self.template).items() if key.endswith(SUFFIXES[-1])]
        manifest: dict[str, Any] = json.loads(data)
        chunks = manifest["chunkIndex"]
        chunks |= {"originalFileSize": SEGMENT_BYTES, "finalTransformedChunkSize": chunks["transformedChunkSize"]}
        metadata = manifest["remoteLogSegmentMetadata"]
        metadata["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]["partition"] = _PARTITION
        metadata |= {"startOffset": _START, "endOffset": _END, "segmentLeaderEpochs": {"0": _START}}
        self._manifest = json.dumps(manifest, separators=(",", ":"))

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        with self._meter.outside():
            _, partition, name = key.removesuffix(SUFFIXES[-1]).split("/")
            first = int(name[:20])
            marks = {_PARTITION: partition, _START: first, _END: first + OFFSETS - 1}
            text = self._manifest.replace(uuid_to_text(_ID), name[21:])
            for mark, number in marks.items():
                text = text.replace(str(mark), str(number))
            return text.encode()

    def size(self, key: str) -> int:
        raise NotImplementedError

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        keys = self._keys()
        while True:
            with self._meter.outside():
                page = [key for key in islice(keys, _PAGE) if key.startswith(prefix)]
            if not page:
                return
            yield from page

    def describe(self, key: str) -> str:
        return f"made-up:{key}"

    def _keys(self) -> Iterator[str]:
        for partition in range(self.partitions):
            folder = f"{TOPIC}-{uuid_to_text(TOPIC_ID)}/{partition}"
            for number in range(self.segments):
                segment_id = uuid_to_text(UUID(int=(partition << 64) + number + 2))
                yield from (f"{folder}/{number * OFFSETS:020d}-{segment_id}{suffix}" for suffix in SUFFIXES)


class IndexesOf(Indexes):
    """Indexes of segments of which `template` is one, but for the offset index."""

    def __init__(self, template: TieredSegment) -> None:
        self._template = template

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        others = {each: self._template.indexes[each] for each in types if each is not IndexType.OFFSET}
        return super().fetch_indexes(segment, types) | others


def measure(scale: float, _: Path, partitions: int) -> Meter:
    segments = max(1, round(SEGMENTS * scale / partitions))
    count = segments * partitions
    warm_up()
    meter = Meter(f"archive of {count:,} segments in {partitions:,} partitions")
    bucket = MadeUpBucket(partitions, segments, meter)
    fetcher, isolation = IndexesOf(bucket.template), IsolationLevel.READ_COMMITTED
    archive = archive_in(bucket, fetcher)
    given = {"remote.log.locator": "archive", "remote.storage.layout": "aiven", "remote.storage.uri": "file:///made-up"}
    options = parse_options(given | {"subscribe": TOPIC, "startingOffsets": "earliest"}, streaming=True)
    locator = ArchiveLocator(archive, fetcher, isolation)
    planner = StreamPlanner(options, ArchiveOffsetReader(archive, fetcher, isolation), locator)
    start = planner.initial

    def plan() -> None:
        begin = start()
        end = planner.next_end(begin, limited=True)
        assert splits_for(planner.ranges(begin, end), options, locator, planner.topic_ids)

    meter.step("first plan", plan, (count, "segment"))
    at_end = {TopicPartition(TOPIC, number): segments * OFFSETS for number in range(partitions)}
    found = meter.step("nothing new", partial(planner.next_end, at_end, limited=True), (count, "segment"))
    assert found is at_end
    return meter

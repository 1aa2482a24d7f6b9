"""Plan of an archive of 1,000,000 segments: a listing of 3,000,000 keys, and a manifest for each segment.

python -m tests.rigs.scale.archive SCALE PARTITIONS. The bucket is made up while it is read, outside of the meter's
seconds. Its requests take no time, which a real bucket's do: a listing returns 1,000 keys.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from uuid import UUID

from tests.rigs.scale.measured import Meter
from tests.rigs.scale.segments import SEGMENTS
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier.layouts import PLAIN
from tests.tier.segments import TieredSegment, tiered
from tiered_stream.limits import Limit
from tiered_stream.locate.archive.archive_locator import ArchiveLocator
from tiered_stream.locate.archive.archive_offsets import ArchiveOffsetReader
from tiered_stream.locate.archive.archived_partitions import Archive
from tiered_stream.model import ByteRange, RemoteLogSegment, TopicPartition, uuid_to_text
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.object_store import ObjectStore

TOPIC, TOPIC_ID = "orders", UUID(int=7 << 64 | 7)
SUFFIXES = (".indexes", ".log", ".rsm-manifest")
_PAGE = 1000
_OFFSETS = 1000


class MadeUpBucket(ObjectStore):
    """Bucket of a topic with so many partitions and, in each, so many segments; all are copies of one segment."""

    def __init__(self, partitions: int, segments: int, meter: Meter) -> None:
        self.partitions, self.segments, self._meter = partitions, segments, meter
        batches = [[record_batch([Record()] * _OFFSETS)]]
        (self.template,) = tiered(TopicPartition(TOPIC, 0), batches, topic_id=TOPIC_ID, segment_ids=iter([UUID(int=1)]))
        (self._manifest,) = [data for key, data in PLAIN.objects(self.template).items() if key.endswith("manifest")]
        assert self._manifest.count(b'"startOffset":0,"endOffset":999') == 1, self._manifest

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        with self._meter.outside():
            _, partition, name = key.removesuffix(SUFFIXES[-1]).split("/")
            first, segment_id = int(name[:20]), name[21:]
            return (
                self._manifest.replace(b'"partition":0', f'"partition":{partition}'.encode())
                .replace(
                    b'"startOffset":0,"endOffset":999', f'"startOffset":{first},"endOffset":{first + 999}'.encode()
                )
                .replace(uuid_to_text(UUID(int=1)).encode(), segment_id.encode())
                .replace(b'"segmentLeaderEpochs":{"0":0}', f'"segmentLeaderEpochs":{{"0":{first}}}'.encode())
            )

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
                yield from (f"{folder}/{number * _OFFSETS:020d}-{segment_id}{suffix}" for suffix in SUFFIXES)


class IndexesOf(RemoteStorageFetcher):
    """The indexes of one segment for all segments."""

    def __init__(self, template: TieredSegment) -> None:
        self._indexes = template.indexes

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        raise NotImplementedError

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return {each: self._indexes[each] for each in types}


def main() -> None:
    scale, partitions = float(sys.argv[1]), int(sys.argv[2])
    segments = max(1, round(SEGMENTS * scale / partitions))
    count = segments * partitions
    meter = Meter(f"archive of {count:,} segments in {partitions:,} partitions")
    bucket = MadeUpBucket(partitions, segments, meter)
    fetcher, isolation = IndexesOf(bucket.template), IsolationLevel.READ_COMMITTED
    archive = Archive(bucket, fetcher)
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
    at_end = {TopicPartition(TOPIC, number): segments * _OFFSETS for number in range(partitions)}
    found = meter.step("nothing new", partial(planner.next_end, at_end, limited=True), (count, "segment"))
    assert found is at_end
    meter.write()


if __name__ == "__main__":
    main()

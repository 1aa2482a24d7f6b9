"""Locator for topics in a bucket whose Kafka cluster is gone, or is not used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tiered_stream.errors import DataLossError
from tiered_stream.locate.archive.archived_partitions import Archive
from tiered_stream.locate.locator import SegmentFilter, every_segment
from tiered_stream.locate.segment_metadata_locator import SegmentMetadataLocator
from tiered_stream.locate.visible_segments import VisibleSegments
from tiered_stream.model import AbortedTransaction, OffsetRange, PartitionLocations, PartitionRanges, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.storage.fetcher import RemoteStorageFetcher


class ArchiveLocator(SegmentMetadataLocator):
    """Locator that takes segments from a bucket's manifests, and leader epochs from each partition's newest segment.

    It finds the segments that the last listing of `archive` has. `ArchiveOffsetReader.latest` lists the archive again.
    `close` closes neither the archive nor the fetcher.
    """

    name = "archive"

    def __init__(self, archive: Archive, fetcher: RemoteStorageFetcher, isolation: IsolationLevel) -> None:
        super().__init__(fetcher, isolation)
        self._archive = archive

    def find_locations(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        return super().find_locations(self._stable(ranges), needed)

    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, VisibleSegments]:
        return super().segments(self._stable(ranges))

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        return self._archive.missing_objects(partition, offsets)

    def _stable(self, ranges: PartitionRanges) -> PartitionRanges:
        """Return `ranges`; under read_committed, each range ends at most at its partition's last stable offset.

        A transaction that is open at the archive's end stays open forever, so its records are never read.
        """
        if not self.committed:
            return ranges
        stable = {
            partition: OffsetRange(0, archived.last_stable_offset)
            for partition, archived in self._archive.partitions(ranges).items()
        }
        return {partition: offsets.intersect(stable.get(partition, offsets)) for partition, offsets in ranges.items()}

    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        return {partition: archived.visible for partition, archived in self._archive.partitions(partitions).items()}

    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        """Return an empty tuple for each seam, because no open transaction can be looked up without brokers.

        A seam is a pair of a partition and the offset at which its segments in the archive end, or a gap between them
        begins. A transaction that is open at the archive's end begins at or after the last stable offset, so its
        records are not read.

        Raises:
            DataLossError: a transaction is open at a gap between segments.
        """
        for partition, seam in seams:
            self._check_gap(partition, self.visible_of([partition])[partition], seam)
        return dict.fromkeys(seams, ())

    def _check_gap(self, partition: TopicPartition, visible: VisibleSegments, seam: int) -> None:
        at = visible.ends.tolist().index(seam)
        if at + 1 == len(visible):
            return
        still_open = [first for _, first in self._archive.open_transactions(visible[at].segment)]
        if still_open:
            gap = OffsetRange(seam, visible[at + 1].offsets.start)
            missing = self.missing_objects(partition, gap)
            gone = f" ({' and '.join(missing)} is missing)" if missing else ""
            raise DataLossError(
                f"partition {partition}: the archive has no segment with the offsets {gap.start} to {gap.end - 1}"
                f"{gone}. In this gap, the transaction that begins at offset {min(still_open)} ended: nothing shows "
                "if it was committed. With kafka.isolation.level=read_uncommitted its records are read"
            )

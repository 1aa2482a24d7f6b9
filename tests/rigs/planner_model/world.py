"""A topic that changes while nobody looks: records come, retention deletes segments, groups commit, time passes.

It leaves out: transactions, topics that are deleted for good, and segments that become tiered while a run plans.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tests.plan.in_memory_offsets import InMemoryOffsets, Log
from tests.plan.made_up_tier import MadeUpTier, TieredLog
from tiered_stream.model import TopicPartition

TOPIC, GROUP = "t", "g"
MINUTE, HOUR = 60_000, 3_600_000
BIRTH_MS = 1_700_000_000_000
"""Time of the first records."""


class World(InMemoryOffsets):
    """The topic with its clock. Every random choice comes from `draw`."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw
        self.now_ms = BIRTH_MS
        self.segment_ends: dict[TopicPartition, list[int]] = {}
        self.groups[GROUP] = {}
        self.create(TOPIC)
        for _ in range(draw.randint(1, 3)):
            self.add_partition()

    def assigned(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in range(len(self.logs[TOPIC]))]

    def add_partition(self) -> None:
        self.logs[TOPIC].append(Log())
        partition = self.assigned()[-1]
        self.segment_ends[partition] = []
        if self.draw.random() < 0.8:
            self.append(partition)

    def append(self, partition: TopicPartition) -> None:
        """Append records of about now, a few of them late, and perhaps begin another segment."""
        log, draw = self.log(partition), self.draw
        for _ in range(draw.randint(1, 25)):
            late = draw.randint(0, 5 * HOUR) if draw.random() < 0.05 else draw.randint(0, MINUTE)
            log.timestamps[log.latest] = self.now_ms - late
            log.latest += 1
        if draw.random() < 0.6:
            self.segment_ends[partition].append(log.latest)

    def recreate(self) -> None:
        """Delete the topic, and create it again with as many partitions, whose logs are at least as long."""
        self.create(TOPIC, *(Log(0, log.latest + self.draw.choice((0, 1, 20))) for log in self.logs[TOPIC]))
        for partition in self.assigned():
            self.segment_ends[partition] = []
            self.log(partition).timestamps = dict.fromkeys(range(self.log(partition).latest), self.now_ms)

    def delete_segments(self, until: Mapping[TopicPartition, int]) -> None:
        """Move the log start of one partition to the end of a segment, or exactly to its offset in `until`."""
        partition = self.draw.choice(self.assigned())
        log = self.log(partition)
        ends = [*self.segment_ends[partition], *([until[partition]] if partition in until else [])]
        ends = [end for end in ends if log.earliest < end <= log.latest]
        if ends:
            log.earliest = self.draw.choice(ends)
            log.timestamps = {offset: time for offset, time in log.timestamps.items() if offset >= log.earliest}

    def commit_group(self) -> None:
        """Let another consumer commit some offset of the logs."""
        for partition in self.assigned():
            if self.draw.random() < 0.7:
                log = self.log(partition)
                self.groups[GROUP][partition] = self.draw.choice((log.earliest, log.latest, log.latest))

    def change(self, until: Mapping[TopicPartition, int]) -> None:
        """Let something happen. `until` are offsets at which retention likes to stop."""
        for _ in range(self.draw.choice((0, 0, 1, 1, 2, 4))):
            match self.draw.randrange(10):
                case 0 | 1 | 2 | 3:
                    self.append(self.draw.choice(self.assigned()))
                case 4 | 5:
                    self.now_ms += self.draw.choice((MINUTE, 20 * MINUTE, HOUR, 4 * HOUR, 72 * HOUR))
                case 6 | 7:
                    self.commit_group()
                case 8:
                    self.delete_segments(until)
                case 9 if len(self.assigned()) < 5:
                    self.add_partition()

    def tier(self) -> MadeUpTier:
        """Most closed segments, as a locator knows them."""
        tiered: dict[TopicPartition, list[TieredLog]] = {}
        for partition, ends in self.segment_ends.items():
            bounds = list(zip([0, *ends], ends, strict=False))
            kept = [TieredLog(*each, 1, 100) for each in bounds if each[1] > self.log(partition).earliest]
            tiered[partition] = kept[: self.draw.randint(0, len(kept))]
        return MadeUpTier(tiered)

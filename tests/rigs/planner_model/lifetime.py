"""One random lifetime of a query: runs with crashes, days between them, and the rows that it must have in the end."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from unittest.mock import patch

from tests.rigs.histories import logged
from tests.rigs.planner_model.spark import Died, Query, Reader, open_reader
from tests.rigs.planner_model.world import BIRTH_MS, GROUP, HOUR, MINUTE, TOPIC, World
from tiered_stream.errors import ConfigurationError, DataLossError
from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import offsets_to_json
from tiered_stream.options.parsing import parse_options
from tiered_stream.spark.stream_reader import StreamWithOwnLimits, StreamWithSparkLimits

READERS: tuple[type[Reader], ...] = (StreamWithOwnLimits, StreamWithSparkLimits)
TRIGGERS = "once", "availableNow", "1 second", "1 second"
BEFORE_NOW = "-20m", "-3h", "-2d"


@dataclass
class Lifetime:
    """A lifetime that the name gives. `faults` say what is wrong; `events` and `counts` say what happened."""

    name: str
    faults: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.name)
        self.world = World(self.draw)
        self.query = Query(self._reached, self._logged)
        self.warnings: list[str] = []
        """Warnings of lost records."""
        self.start: PartitionOffsets | None = None
        """Where the stream starts, from the moment at which the log has its first micro-batch."""
        self.ends: dict[TopicPartition, int] = {}
        """Where the bounded stream ends, once that is known."""
        self.lowest: Counter[TopicPartition] = Counter()
        """Highest log start that a planner has seen."""
        self.end_ms: int | None = None
        """What the ending options say: a time, or below 0 a time before now; None: no time."""
        self._found: dict[TopicPartition, int] = {}
        self._found_ms: int | None = None
        """What `ends` and `end_ms` become if the micro-batch that is being planned is logged."""
        self._deadly = 0
        """Points from here to the driver's death; 0: it does not die."""
        self._looks_up, self._has_target = True, False
        """Whether the planner looks up ends at its next trigger, and whether it does so once in a run."""
        self.recreated = False
        """True if the topic was created again after a micro-batch was logged."""
        self._still = False
        """True in the last run, in which nothing changes."""
        for _ in range(self.draw.randint(0, 6)):
            self.world.change({})

    def run(self) -> Lifetime:
        """Live, and look at the table."""
        clock = patch.object(time, "time_ns", lambda: self.world.now_ms * 1_000_000)
        with clock, logged("tiered_stream.plan.data_loss", logging.WARNING, self.warnings):
            self._live()
        self._check_rows()
        return self

    def _live(self) -> None:
        given = self._options()
        for _ in range(self.draw.randint(1, 6)):
            self._deadly = self.draw.choice((0, *range(1, 15)))
            of_run = {**given, "remote.available.now": self.draw.choice(("true", "false", "false"))}
            kind, trigger = self.draw.choice(READERS), self.draw.choice(TRIGGERS)
            if not self._lives_on(kind, of_run, trigger, self.draw.randint(1, 6)):
                return
            for _ in range(self.draw.randint(0, 3)):
                self.world.change(self.query.ends())
            if self.query.offset_log and given["failOnDataLoss"] == "true" and self.draw.random() < 0.05:
                self.world.recreate()
                self.recreated = True
            if self.start is not None and self.draw.random() < 0.2:
                rest = {name: value for name, value in given.items() if not name.startswith("starting")}
                given = {**rest, **self._starting()}  # the checkpoint goes before it
        self._deadly, kind = 0, self.draw.choice(READERS)
        trigger = "availableNow" if kind is StreamWithSparkLimits else "1 second"
        given = {name: value for name, value in given.items() if name != "minOffsetsPerTrigger"}
        self._still = True
        if self._lives_on(kind, given, trigger, None):
            self._check_end()
            if self.recreated:
                self.faults.append("another topic of the same name is read on")

    def _lives_on(self, kind: type[Reader], given: dict[str, str], trigger: str, triggers: int | None) -> bool:
        """Run the query; return whether it may be started again."""
        self._event(f"{kind.__name__} {trigger} {given}")
        now = trigger == "availableNow" and kind is StreamWithSparkLimits
        self._looks_up, self._has_target = True, now or given.get("remote.available.now") == "true"
        reader = open_reader(kind, parse_options(given, streaming=True), self.world)
        try:
            self.query.run(reader, trigger, triggers)
        except Died as died:
            self._event(f"died {died}")
        except DataLossError as error:
            self._event(f"told: {error}")
            self.counts["losses that ended a query"] += 1
            if not self._is_lost():
                self.faults.append(f"no record was lost: {error}")
            return False
        except ConfigurationError as error:
            self._event(f"refused: {error}")
            self.counts["starts that were refused"] += 1
            if self.start is not None:
                self.faults.append(f"refused after the stream had begun: {error}")
            return False
        return True

    def _options(self) -> dict[str, str]:
        draw = self.draw
        given = {
            "kafka.bootstrap.servers": "b:9092", "subscribe": TOPIC, "fetchOffset.retryIntervalMs": "0",
            "fetchOffset.numRetries": "1", "failOnDataLoss": draw.choice(("true", "true", "false")), **self._starting(),
        }  # fmt: skip
        for name, values in {
            "maxOffsetsPerTrigger": ("3", "10", "40"),
            "maxBytesPerTrigger": ("500", "2k"),
            "minOffsetsPerTrigger": ("2", "3"),
            "kafka.consumer.commit.groupid": (GROUP, "other"),
            "remote.segment.aligned.ends": ("false",),
        }.items():
            if draw.random() < 0.3:
                given[name] = draw.choice(values)
        return {**given, **self._ending()} if draw.random() < 0.4 else given

    def _starting(self) -> dict[str, str]:
        draw, partitions = self.draw, self.world.assigned()
        strategy, word = draw.choice(("latest", "latest", "error")), draw.choice(("earliest", "latest"))
        at_time = {"startingOffsetsByTimestampStrategy": strategy}
        times = {partition: BIRTH_MS + draw.randint(0, 4 * HOUR) for partition in partitions}
        logs = {partition: self.world.log(partition) for partition in partitions}
        offsets = {
            partition: draw.choice((-2, -1, log.earliest, draw.randint(log.earliest, log.latest)))
            for partition, log in logs.items()
        }
        return draw.choice([
            {"startingOffsets": "earliest"},
            {"startingOffsets": "latest"},
            {"startingOffsets": offsets_to_json(offsets)},
            {"startingOffsets": f"group:{GROUP}", "startingOffsetsByGroupStrategy": word},
            {"startingTimestamp": draw.choice(BEFORE_NOW), **at_time},
            {"startingTimestamp": draw.choice(BEFORE_NOW), **at_time},
            {"startingTimestamp": str(draw.choice(list(times.values()))), **at_time},
            {"startingOffsetsByTimestamp": offsets_to_json(times), **at_time},
        ])  # fmt: skip

    def _ending(self) -> dict[str, str]:
        draw, partitions = self.draw, self.world.assigned()
        logs = {partition: self.world.log(partition) for partition in partitions}
        match draw.randrange(3):
            case 0:
                self.ends = {each: draw.randint(log.earliest, log.latest + 30) for each, log in logs.items()}
                return {"boundedStreaming": "true", "endingOffsets": offsets_to_json(self.ends)}
            case 1:
                self.end_ms = self.world.now_ms + draw.randint(-2 * HOUR, 6 * HOUR)
                return {"boundedStreaming": "true", "endingTimestamp": str(self.end_ms)}
        self.end_ms = -draw.choice((MINUTE, HOUR, 5 * HOUR))
        return {"boundedStreaming": "true", "endingTimestamp": f"{self.end_ms // 1000}s"}

    # What happens at the points at which Spark calls back

    def _reached(self, point: str) -> None:
        if self._deadly:
            self._deadly -= 1
            if not self._deadly:
                self.counts[f"crashes {point}"] += 1
                raise Died(point)
        if point == "before the end is planned":
            if self._looks_up:
                self._note_ends()
            self._looks_up = self._looks_up and not self._has_target
        elif not self._still and (point == "between triggers" or self.draw.random() < 0.05):
            self.world.change(self.query.ends())
        for partition in self.world.assigned():
            self.lowest[partition] = max(self.lowest[partition], self.world.log(partition).earliest)

    def _note_ends(self) -> None:
        """Note the ends that the times of the ending options give now, by the records that are there."""
        self._found = dict(self.ends)
        if self.end_ms is None:
            return
        self._found_ms = end_ms = self.end_ms if self.end_ms > 0 else self.world.now_ms + self.end_ms
        for partition in self.world.assigned():
            log = self.world.log(partition)
            after = [offset for offset, at in log.timestamps.items() if at >= end_ms]
            if after or end_ms <= self.world.now_ms:
                self._found.setdefault(partition, min(after, default=log.latest))

    def _logged(self, batch: int, start: PartitionOffsets) -> None:
        if batch == 0:
            self.start = start
            self._event(f"starts at {start}")
        if self.end_ms is not None:
            self.end_ms, self.ends = self._found_ms, self._found
        self.counts["micro-batches"] += 1
        self._event(f"batch {batch}; logs {[(log.earliest, log.latest) for log in self.world.logs[TOPIC]]}")

    def _event(self, text: str) -> None:
        self.events.append(f"{(self.world.now_ms - BIRTH_MS) / HOUR:.2f} h: {text}")

    # What must be true

    def _is_lost(self) -> bool:
        """Return whether retention or another topic has replaced records that the query has yet to read."""
        if self.start is None or self.recreated:
            return True  # what its options named
        following = {**self.start, **self.query.ends(self.query.commit_log)}
        return any(following.get(each, 0) < self.world.log(each).earliest for each in self.world.assigned())

    def _check_rows(self) -> None:
        """Compare the table with all offsets from the stream's start to the end of its last complete micro-batch."""
        rows = Counter(row for batch in self.query.table.values() for row in batch)
        self.counts["rows"] += rows.total()
        start, ends = self.start or {}, self.query.ends(set(self.query.table))
        expected = {(each, at) for each, end in ends.items() for at in range(start.get(each, 0), end)}
        if twice := [row for row, count in rows.items() if count > 1]:
            self.faults.append(f"{len(twice)} rows are there twice: {_shown(twice)}")
        if more := rows.keys() - expected:
            self.faults.append(f"{len(more)} rows are before the start or after the end: {_shown(more)}")
        lost = expected - rows.keys()
        untold = {row for row in lost if not self.warnings or row[1] >= self.lowest[row[0]]}
        self.counts["rows that were lost and told"] += len(lost - untold)
        if untold:
            self.faults.append(f"{len(untold)} of {len(expected)} rows are lost: {_shown(untold)}")

    def _check_end(self) -> None:
        """Check that the query has read all there is, or all before the end of the stream."""
        ends, start = self.query.ends(), self.start or {}
        bounded = bool(self.ends) or self.end_ms is not None
        for partition in self.world.assigned():
            if bounded and partition not in start:
                continue  # whether a partition that was added is read depends on the kind of end
            latest = self.world.log(partition).latest
            due = max(min(self.ends.get(partition, latest), latest), start.get(partition, 0))
            if ends.get(partition, 0) != due:
                self.faults.append(f"{partition} is read up to {ends.get(partition)}, and not {due}")
        self.counts["lifetimes that reached their end"] += 1


def _shown(rows: object) -> str:
    return str(sorted(rows)[:3])  # type: ignore[call-overload]

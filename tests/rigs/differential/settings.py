"""Random options that Spark's `kafka` source and ours take alike: what to read, from where, to where, and how."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.reading import FIRST_TIMESTAMP_MS
from tests.rigs.differential.topics import Log, Topic
from tests.rigs.stack.consume import READ_COMMITTED, READ_UNCOMMITTED

Options = dict[str, str]
Partitions = Mapping[str, Mapping[int, Log]]
"""By topic and number."""
EARLIEST, LATEST = -2, -1

OURS: Mapping[str, Sequence[str]] = {
    "remote.split.bytes": ("1", "2k", "128m"),
    "remote.prefer": ("tiered", "local"),
    "remote.fallback": ("broker", "fail"),
}
"""For our source alone, which may not change the rows."""


@dataclass(frozen=True)
class Setting:
    """One comparison. `batch`: a batch read, or a stream that runs twice, the topic grown meanwhile."""

    number: int
    batch: bool
    options: Options

    def __str__(self) -> str:
        return f"{'batch' if self.batch else 'stream'} {self.number}: {json.dumps(self.options)}"


class Settings:
    """Draws settings; the same seed over the same topics gives the same."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def batch(self, number: int, topics: Sequence[Topic]) -> Setting:
        chosen = self._draw.sample(topics, self._draw.choice((1, 1, 2)))
        options, partitions = self._subscription(chosen)
        newest = max(topic.newest_timestamp_ms for topic in chosen)
        options |= self._position("starting", EARLIEST, partitions, newest)
        options |= self._position("ending", LATEST, partitions, newest)
        options |= self._reading()
        return Setting(number, True, options)

    def stream(self, number: int, topic: Topic) -> Setting:
        options, partitions = self._subscription([topic])
        options |= self._position("starting", EARLIEST, partitions, topic.newest_timestamp_ms, latest=True)
        options |= self._reading()
        options["remote.segment.aligned.ends"] = "false"
        if self._draw.random() < 0.7:
            options["maxOffsetsPerTrigger"] = str(self._draw.choice((25, 40, 150, 10**6, 2**63 - 1)))
        return Setting(number, False, options)

    def _subscription(self, topics: Sequence[Topic]) -> tuple[Options, Partitions]:
        everything = {topic.name: dict(enumerate(topic.logs)) for topic in topics}
        match self._draw.choice(("subscribe", "subscribe", "subscribePattern", "assign")):
            case "subscribe":
                return {"subscribe": ",".join(everything)}, everything
            case "subscribePattern":
                return {"subscribePattern": f"^({'|'.join(everything)})$"}, everything
        some = {name: self._some(logs) for name, logs in everything.items()}
        return {"assign": json.dumps({name: list(logs) for name, logs in some.items()})}, some

    def _some(self, logs: Mapping[int, Log]) -> dict[int, Log]:
        chosen = self._draw.sample(sorted(logs), self._draw.randint(1, len(logs)))
        return {number: logs[number] for number in chosen}

    def _position(self, side: str, whole: int, partitions: Partitions, newest: int, *, latest: bool = False) -> Options:
        """`startingOffsets`, `endingTimestamp` and their like; `whole` is the offset that leaves nothing out."""
        words = {EARLIEST: "earliest", LATEST: "latest"}
        begins = side == "starting"

        def offset(log: Log) -> int:
            width = log.end - log.start
            wanted = [whole, log.start, log.end, log.start + self._draw.randint(0, max(0, width))]
            wanted += [LATEST] if latest else []
            wanted += [log.start // 2, log.end + 5] if self._draw.random() < 0.05 else []
            return self._draw.choice(wanted)

        def timestamp(_: Log) -> int:
            return self._draw.randint(FIRST_TIMESTAMP_MS - 1000, newest + 1000)

        match self._draw.choice(("absent", "word", "offsets", "offsets", "by timestamp", "timestamp")):
            case "word":
                word = words[LATEST] if latest and self._draw.random() < 0.3 else words[whole]
                return {f"{side}Offsets": word if self._draw.random() < 0.7 else word.upper()}
            case "offsets":
                return {f"{side}Offsets": self._map(partitions, offset)}
            case "by timestamp":
                return {f"{side}OffsetsByTimestamp": self._map(partitions, timestamp), **self._strategy(begins)}
            case "timestamp":
                return {f"{side}Timestamp": str(timestamp(Log(0, 0))), **self._strategy(begins)}
        return {}

    def _map(self, partitions: Partitions, value: Callable[[Log], int]) -> str:
        """For each partition; rarely one too few, which both refuse."""
        given = {name: {str(number): value(log) for number, log in logs.items()} for name, logs in partitions.items()}
        if self._draw.random() < 0.03:
            of_one = self._draw.choice(list(given.values()))
            of_one.popitem()
        return json.dumps({name: logs for name, logs in given.items() if logs})

    def _strategy(self, begins: bool) -> Options:
        if not begins or self._draw.random() < 0.3:
            return {}
        return {"startingOffsetsByTimestampStrategy": self._draw.choice(("latest", "latest", "error"))}

    def _reading(self) -> Options:
        options = {
            "kafka.isolation.level": self._draw.choice((READ_COMMITTED, READ_UNCOMMITTED)),
            "failOnDataLoss": self._draw.choice(("true", "false")),
            "includeHeaders": self._draw.choice(("true", "false")),
        }
        if self._draw.random() < 0.3:
            options["minPartitions"] = str(self._draw.randint(1, 12))
        if self._draw.random() < 0.3:
            options["maxRecordsPerPartition"] = str(self._draw.choice((20, 50, 10_000)))
        return options | {name: self._draw.choice(values) for name, values in OURS.items()}

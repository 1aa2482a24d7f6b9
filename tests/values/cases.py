"""Options with values in every form that somebody may write, and what Spark's `kafka` source makes of them.

They stand in `kafka_source.jsonl`, a case a line. To add one, write its `given` and run `python -m tests.values`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

TOPIC = "option-values"
RECORD_TIMES = {0: (1000, 2000, 3000), 1: (1500, 2500)}
"""Of its records in ms, by partition."""
KINDS = ("batch", "stream")

_FILE = Path(__file__).with_name("kafka_source.jsonl")
_COMMON = {"subscribe": TOPIC, "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "10"}
_IN_PLACE_OF = {
    "subscribe": ("subscribe", "subscribepattern", "assign"),
    "startingOffsets": ("startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """Options as their user wrote them, and the answers of Spark's own source; empty: not asked yet.

    An answer is `rows N`, or where the error came and what PySpark shows: `load IllegalArgumentException`.
    """

    given: dict[str, str]
    batch: str = ""
    stream: str = ""

    def __str__(self) -> str:
        return orjson.dumps(self.given).decode()

    def answer(self, kind: str) -> str:
        return self.batch if kind == "batch" else self.stream

    def options(self) -> dict[str, str]:
        """All that a source is given but the brokers: a start and a subscription where the case has none."""
        names = {name.lower() for name in self.given}
        common = {name: value for name, value in _COMMON.items() if not names.intersection(_IN_PLACE_OF.get(name, ()))}
        return common | self.given


def read_cases() -> list[Case]:
    return [Case(**orjson.loads(line)) for line in _FILE.read_bytes().splitlines()]


def write_cases(cases: Iterable[Case]) -> None:
    _FILE.write_bytes(b"".join(orjson.dumps(asdict(case)) + b"\n" for case in cases))

"""Contenders side by side in one run, and whose core seconds it takes: by what the processes below this one used."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.rigs.bench.figures import Row, spread
from tests.rigs.soak.held import family, own_and_childrens_seconds

PYTHON, JVM, S3, BROKER, HDFS, JOBS = "Python", "Spark's JVM", "S3 server", "broker", "HDFS", "jobs"
_SERVICES = {"org.gaul.s3proxy.Main": S3, "kafka.Kafka": BROKER, "py4j.GatewayServer": HDFS}
_PROGRAMS = {"java": JVM, "versitygw": S3}


def kind_of(words: Sequence[str]) -> str:
    """What a process is to a run, by its command line."""
    services = [kind for main_class, kind in _SERVICES.items() if main_class in words]
    return services[0] if services else _PROGRAMS.get(os.path.basename(words[0]) if words else "", PYTHON)


def core_seconds() -> dict[str, float]:
    """What this process and all below it have used until now, by kind; jobs count when they have ended."""
    spent = dict.fromkeys((PYTHON, JVM, S3, BROKER, HDFS, JOBS), 0.0)
    root = os.getpid()
    for pid, words in [(root, ()), *((each.pid, each.arguments) for each in family(root).values())]:
        own, ended_children = own_and_childrens_seconds(pid)
        spent[kind_of(words)] += own
        spent[JOBS if pid == root else PYTHON] += ended_children
    return spent


def since(before: Mapping[str, float]) -> dict[str, float]:
    """What was used since `core_seconds` gave `before`."""
    return {kind: spent - before[kind] for kind, spent in core_seconds().items()}


@dataclass
class Contender:
    """Who is measured: `run` runs it once and tells its seconds; it reads `records`. `settle` comes before each run.

    What else is told of its runs comes into `more`, of which the largest counts.
    """

    run: Callable[[], float]
    records: int
    settle: Callable[[], None] = lambda: None
    more: dict[str, float] = field(default_factory=dict)
    spent: list[Mapping[str, float]] = field(default_factory=list)
    """Core seconds of each run, by who used them."""

    def tell(self, **found: float) -> None:
        for name, value in found.items():
            self.more[name] = max(value, self.more.get(name, value))


def timed(work: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    """For a contender's `run`: by another clock, such as that of this process's core seconds."""

    def run() -> float:
        begin = clock()
        work()
        return clock() - begin

    return run


def allowance(seconds: float, records: int) -> Contender:
    """In place of another side: what the subject may take."""
    return Contender(lambda: seconds, records)


@dataclass(frozen=True)
class Claim:
    """`subject` takes less than `against` by a factor: at least `floor`, at best `aim`; None where nothing is said."""

    workload: str
    subject: str
    against: str
    floor: float | None = None
    aim: float | None = None


AGREE = 1.05
"""Two rounds agree if none of a contender's runs took so many times as long as its other one."""


def take_turns(contenders: Mapping[str, Contender], runs: int) -> dict[str, list[float]]:
    """The seconds of each contender's runs, which are `runs` at most.

    They take turns run by run, so that a slow stretch of the machine hits all of them. Rounds end once two in a row
    agree. A first round counts only if the second agrees with it: otherwise it found the JVM's compiled code, the page
    cache and the memory as others have left them.
    """
    rounds: list[dict[str, tuple[float, Mapping[str, float]]]] = []
    while len(rounds) <= runs and not _agree(rounds[-2:]):
        rounds.append({name: _measured(contender) for name, contender in contenders.items()})
    counted = rounds if _agree(rounds[:2]) else rounds[1:]
    for name, contender in contenders.items():
        contender.spent.extend(each[name][1] for each in counted)
    return {name: [each[name][0] for each in counted] for name in contenders}


def _measured(contender: Contender) -> tuple[float, Mapping[str, float]]:
    contender.settle()
    before = core_seconds()
    return contender.run(), since(before)


def _agree(rounds: Sequence[Mapping[str, tuple[float, Mapping[str, float]]]]) -> bool:
    if len(rounds) < 2:
        return False
    return all(
        max(took, earlier) <= AGREE * min(took, earlier)
        for (earlier, _), (took, _) in ((rounds[0][name], rounds[1][name]) for name in rounds[0])
    )


def rows_of(claims: Sequence[Claim], contenders: Mapping[str, Contender], runs: int) -> list[Row]:
    """Run the contenders of some claims and say what came of each."""
    seconds = take_turns(contenders, runs)
    return [_row(claim, contenders, seconds) for claim in claims]


def _row(claim: Claim, contenders: Mapping[str, Contender], seconds: Mapping[str, list[float]]) -> Row:
    ours, theirs = contenders[claim.subject], contenders[claim.against]
    ratios = [
        (against / theirs.records) / (own / ours.records)
        for own, against in zip(seconds[claim.subject], seconds[claim.against], strict=True)
    ]
    return Row(
        claim.workload, claim.subject, claim.against, spread(seconds[claim.subject]), spread(seconds[claim.against]),
        spread(ratios), claim.floor, claim.aim, dict(ours.more), _core_seconds(ours),
    )  # fmt: skip


def _core_seconds(contender: Contender) -> dict[str, float]:
    """The median of each kind's, of those that had a share worth to be told."""
    kinds = {kind: statistics.median(each[kind] for each in contender.spent) for kind in contender.spent[0]}
    return {kind: round(spent, 1) for kind, spent in kinds.items() if spent >= 0.05}

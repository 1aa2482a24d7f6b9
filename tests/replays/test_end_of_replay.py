"""Ends of replays whose query a test plays, without Spark: a replay is finished only if the target is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.errors import ReplayStoppedError, TableError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.options.positions import TimeRange
from tiered_stream.replays import run_replay
from tiered_stream.replays.replay_checkpoint import ReplayStore
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan
from tiered_stream.replays.run_replay import Replay
from tiered_stream.replays.target import Target

IN_ARCHIVE, PLANNED = 6, 10
"""Number of records in the archive, and of offsets in the plan: the last records were lost after the plan was made."""
PLAN = ReplayPlan(
    "again",
    ReplayArguments(("subscribe", "orders"), "0", None, "table /t"),
    TimeRange(0),
    {TopicPartition("orders", 0): OffsetRange(0, PLANNED)},
    {},
)


class InMemory(ReplayStore):
    """Checkpoint in a dictionary: bytes by the file's name."""

    def __init__(self) -> None:
        self.folder = "memory"
        self.files = {"replay.json": PLAN.to_json()}

    def entries(self, name: str = "") -> list[str]:
        return [file.removeprefix(f"{name}/") for file in self.files if file.startswith(f"{name}/")]

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, text: bytes, *, replace: bool = False) -> None:
        self.files.setdefault(name, text)


@dataclass(frozen=True)
class Played(Target):
    """Target that another query overtakes when `overtaken` has an item."""

    KIND = "table"
    overtaken: list[str] = field(default_factory=list)

    def default_checkpoint(self, name: str) -> str | None:
        raise AssertionError("the replay has a checkpoint")

    def check(self, plan: ReplayPlan) -> None:
        raise AssertionError("the replay is planned")

    def check_not_overtaken(self, plan: ReplayPlan) -> None:
        if self.overtaken:
            raise TableError(self.overtaken[0])

    def settings(self, plan: ReplayPlan) -> dict[str, str]:
        return {}

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> tuple[Any, str]:
        return None, "played"


@dataclass
class Player:
    """Replay of the archive in `bucket`, and the checkpoint that its query writes."""

    bucket: Path
    replay: Replay
    store: InMemory
    overtaken: list[str]

    def run(self, committed: int, by: str | None = None, written: int = 0) -> bool:
        """Run the replay; its query commits offsets below `committed`, and another query `by` lands later ones.

        Meanwhile, `written` records are added to the archive. Return whether the replay had finished before.
        """

        def follow(*_: object) -> None:
            write_topic(self.bucket, "orders", [[Record(b"k", b"new", (), 2000)] * written], first=IN_ARCHIVE)
            self.store.write("offsets/0", b'v1\n{}\n{"orders":{"0":%d}}' % committed)
            self.store.write("commits/0", b"v1\n{}")
            self.overtaken += [by] if by else []

        return self.replay.run(follow).finished_before


@pytest.fixture
def player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Player:
    monkeypatch.setattr(run_replay, "open_receiver", lambda spark: MetricsReceiver())
    write_topic(tmp_path, "orders", [[Record(b"k", b"v", (), 1000 + n) for n in range(IN_ARCHIVE)]])
    options = topic_options(tmp_path, "orders", getattr(request, "param", {}))
    store, overtaken = InMemory(), list[str]()
    target = Played(cast(SparkSession, None), "/t", options, overtaken=overtaken)
    return Player(tmp_path, Replay(PLAN, target, store, "memory"), store, overtaken)


MAY_LOSE = pytest.mark.parametrize("player", [{"failOnDataLoss": "false"}], indirect=True)


def test_a_replay_that_has_read_its_plan_is_finished(player: Player) -> None:
    assert [player.run(PLANNED), player.run(PLANNED)] == [False, True]


@MAY_LOSE
def test_a_replay_is_finished_where_the_lost_records_begin(player: Player) -> None:
    assert [player.run(IN_ARCHIVE), player.run(IN_ARCHIVE)] == [False, True]


@MAY_LOSE
def test_a_replay_is_finished_where_lost_records_began_although_others_write_there_now(player: Player) -> None:
    assert [player.run(IN_ARCHIVE, written=2), player.run(IN_ARCHIVE)] == [False, True]


@MAY_LOSE
def test_a_replay_that_is_stopped_before_the_lost_records_is_not_finished(player: Player) -> None:
    with pytest.raises(ReplayStoppedError):
        player.run(IN_ARCHIVE - 1)
    assert not player.store.finished


def test_a_replay_that_may_lose_nothing_is_not_finished_where_the_log_ends(player: Player) -> None:
    with pytest.raises(ReplayStoppedError):
        player.run(IN_ARCHIVE)
    assert not player.store.finished


def test_a_replay_that_was_overtaken_fails_again_when_it_is_repeated(player: Player) -> None:
    for _ in range(2):
        with pytest.raises(TableError):
            player.run(PLANNED, by="another query")
    assert not player.store.finished

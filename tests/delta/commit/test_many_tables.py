"""A batch's commits into many tables, real ones by the `deltalake` library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.delta.committing import QUERY, folder_of, log_of, offsets, planned, table, written_rows
from tests.delta.folder_in_memory import FolderInMemory
from tests.delta.made_batches import decoded
from tests.rigs.stack.rows import Record
from tiered_stream.delta.checkpoint.query_tables import Landed, Parked, QueryTablesLog
from tiered_stream.delta.commit import many_tables
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.dead_letters import DeadLetterTable, Unfinished
from tiered_stream.delta.commit.deltalake_commit import create_table, delete_rows, open_table
from tiered_stream.delta.commit.many_tables import ManyTables
from tiered_stream.delta.commit.query_commits import Share
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.settings.ingest_settings import FAIL, PARK, TableSpec, table_spec
from tiered_stream.delta.write.data_files import DataFile, HeldRows
from tiered_stream.errors import ConfigurationError, DataLossError, TableError
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition
from tiered_stream.observe.landed_rows import LandedRows


class Lake:
    """Tables of one query, by topic; `refuse` are topics whose tables cannot be opened, and why."""

    def __init__(self, folder: Path, *routes: Route, **overrides: dict[str, str]) -> None:
        by_topic = Route(".*", f"{folder}/{{topic}}", f"{folder.as_uri()}/{{topic}}")
        self.routing = Routing(
            TableSpec(""), (*routes, by_topic), {topic: table_spec(own) for topic, own in overrides.items()}
        )
        self.checkpoint = FolderInMemory()
        self.refuse: dict[str, Exception] = {}
        self.opened: list[str] = []
        self.parks = False
        self.told: list[str] = []
        self.source: dict[str, int] = {}
        """Records of the topics that were written so far."""
        self.gone = 0

    def started(self) -> ManyTables:
        """As a query would that starts now."""
        books = QueryTablesLog(self.checkpoint)
        spec = replace(self.routing.spec, on_table_error=PARK if self.parks else FAIL)
        routing = replace(self.routing, spec=spec)
        tables = ManyTables(routing, self._open, self._open_dead_letters, books, self)
        tables.begin(QUERY)
        return tables

    def land(self, tables: ManyTables, batch_id: int, held: str = "", **counts: int) -> list[LandedRows]:
        """A batch with so many new records of each topic; tasks could not write those `held`. Returns what it says."""
        files, refused = [], []
        for topic, count in counts.items():
            first, self.source[topic] = self.source.get(topic, 0), self.source.get(topic, 0) + count
            if topic in held or self.target(topic).uri in self.told:
                ends = {TopicPartition(topic, 0): (first, first + count - 1)}
                refused.append(HeldRows(self.target(topic).uri, ends, f"no folder for {topic}"))
            else:
                files += self.written(topic, count, first)
        tables.commit(QUERY, batch_id, files, refused)
        self.checkpoint.write(f"commits/{batch_id}", b"")
        return tables.take_landed()

    def land_again(self, tables: ManyTables, batch_id: int, **counts: int) -> None:
        """A batch that was begun before."""
        for topic, count in counts.items():
            self.source[topic] -= count
        self.land(tables, batch_id, **counts)

    def report_parked(self, parked: Sequence[str]) -> None:
        self.told = list(parked)

    def files(self, key: str, ranges: PartitionRanges, query_id: str, batch_id: int) -> list[DataFile]:
        """As `ParkedRowsReader.files`."""
        if any(offsets.start < self.gone for offsets in ranges.values()):
            raise DataLossError(f"the log starts at {self.gone}")
        found = [self.written(each.topic, len(offsets), offsets.start) for each, offsets in ranges.items()]
        return [file for files in found for file in files if file.table == key]

    def _open(self, target: TableSpec, landed: Landed) -> TableCommits:
        self.opened.append(target.key)
        for topic, error in self.refuse.items():
            if target.key == self.routing.target(topic).key:
                raise error
        if open_table(target) is None:
            create_table(target, target.schema, {})

        def on_gap(last: int | None, due: int) -> None:
            raise TableError(f"has {last}, not {due}")

        return TableCommits(planned(target), on_gap, landed, sleep=lambda _: None)

    def _open_dead_letters(self, target: TableSpec) -> DeadLetterTable:
        def remove(query_id: str, unfinished: Unfinished) -> None:
            for key, newest in unfinished.items():
                delete_rows(target, f"query = '{query_id}' AND target = '{key}' AND batch > {newest}")

        opened = partial(self._open, target, Landed())
        return DeadLetterTable(opened, remove, opened())

    def target(self, topic: str) -> TableSpec:
        return self.routing.target(topic)

    def written(self, topic: str, count: int, first_offset: int = 0) -> list[DataFile]:
        """Files with records of the topic."""
        partition = TopicPartition(topic, 0)
        records = decoded([Record(b"k", b"v")] * count, first_offset, partition)
        return written_rows(self.target(topic), records, partition=partition)

    def batches(self, topic: str) -> list[int]:
        """Those that the table's log has, in the order of their commits."""
        commits = range(table(self.target(topic)).version() + 1)
        return [each["txn"]["version"] for at in commits for each in log_of(self.target(topic), at) if "txn" in each]


@pytest.fixture
def query(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_each_table_that_gets_files_has_a_commit_and_others_have_none(query: Lake) -> None:
    tables = query.started()
    tables.commit(QUERY, 0, [*query.written("a", 3), *query.written("b", 2)])
    tables.commit(QUERY, 1, query.written("b", 4, 2))
    tables.commit(QUERY, 2, [])
    tables.commit(QUERY, 3, [*query.written("a", 1, 3), *query.written("c", 1)])
    assert {topic: query.batches(topic) for topic in "abc"} == {"a": [0, 3], "b": [0, 1], "c": [3]}
    assert [len(offsets(query.target(topic))) for topic in "abc"] == [4, 6, 1]
    assert sorted(query.opened) == sorted(query.target(topic).uri for topic in "abc")


def test_after_a_kill_between_two_commits_only_those_that_are_missing_are_made(query: Lake) -> None:
    query.started().commit(QUERY, 0, [*query.written("a", 3), *query.written("b", 2)])
    query.refuse["b"] = KeyboardInterrupt()
    batch = lambda: [*query.written("a", 2, 3), *query.written("b", 2, 2), *query.written("c", 1)]  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        query.started().commit(QUERY, 1, batch())
    query.refuse.clear()
    query.started().commit(QUERY, 1, batch())
    query.started().commit(QUERY, 1, batch())  # killed again, before Spark's own commit
    assert {topic: query.batches(topic) for topic in "abc"} == {"a": [0, 1], "b": [0, 1], "c": [1]}
    assert [offsets(query.target(topic)) for topic in "abc"] == [[*range(5)], [*range(4)], [0]]


def test_a_table_that_refuses_fails_the_batch_with_its_name_and_the_others_have_it(query: Lake) -> None:
    query.refuse = {topic: TableError(f"no room for {topic}") for topic in "bc"}
    batch = [file for topic in "abcd" for file in query.written(topic, 2)]
    with pytest.raises(TableError, match=r"/b .*batch 0 .*/c\): no room for b"):
        query.started().commit(QUERY, 0, batch)
    assert query.batches("a") == query.batches("d") == [0]
    query.refuse.clear()
    query.started().commit(QUERY, 0, batch)
    assert all(query.batches(topic) == [0] for topic in "abcd")


def test_a_topic_that_was_made_again_is_data_loss(query: Lake) -> None:
    query.refuse["a"] = DataLossError("a was made again")
    with pytest.raises(DataLossError, match="a was made again"):
        query.started().commit(QUERY, 0, query.written("a", 1))


def drop_last_commit(query: Lake, topic: str) -> None:
    folder = folder_of(query.target(topic).uri) / "_delta_log"
    max(folder.glob("*.json")).unlink()


def make_anew(query: Lake, topic: str) -> None:
    folder = folder_of(query.target(topic).uri)
    folder.rename(folder.with_name("away"))
    create_table(query.target(topic), query.target(topic).schema, {})


@pytest.mark.parametrize("lose", [drop_last_commit, make_anew])
def test_a_table_that_lacks_what_it_had_got_is_told_at_a_start_however_long_it_was_idle(
    query: Lake, lose: Callable[[Lake, str], None]
) -> None:
    tables = query.started()
    tables.commit(QUERY, 0, [*query.written("a", 3), *query.written("b", 2)])
    tables.commit(QUERY, 1, query.written("a", 3, 3))
    for batch_id in range(2, 6):
        tables.commit(QUERY, batch_id, query.written("b", 1, batch_id))
    lose(query, "a")
    with pytest.raises(TableError, match=r"/a .*batch 6: .*(0|None), not 1"):
        query.started().commit(QUERY, 6, [*query.written("a", 1, 6), *query.written("b", 1, 6)])
    assert query.batches("b") == [0, 2, 3, 4, 5, 6]


def test_an_idle_table_is_not_missing_anything(query: Lake) -> None:
    query.started().commit(QUERY, 0, query.written("a", 3))
    for batch_id in range(1, 5):
        query.started().commit(QUERY, batch_id, query.written("b", 1, batch_id))
    query.started().commit(QUERY, 5, query.written("a", 3, 3))
    assert query.batches("a") == [0, 5]


def test_a_table_whose_log_others_have_made_long_is_opened_by_its_end_alone(
    query: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.started().commit(QUERY, 0, query.written("a", 3))
    for _ in range(5):
        table(query.target("a")).create_write_transaction([], "append", table(query.target("a")).schema())
    query.started().commit(QUERY, 1, query.written("a", 1, 3))
    read: list[int] = []
    newest_batch = TableLog.newest_batch

    def seen(log: TableLog, query_id: str, first: int, last: int) -> int | None:
        read.append(first)
        return newest_batch(log, query_id, first, last)

    monkeypatch.setattr(TableLog, "newest_batch", seen)
    query.started().commit(QUERY, 2, query.written("a", 1, 4))
    assert min(read) == 7


def test_topics_that_share_a_table_are_one_commit(tmp_path: Path) -> None:
    query = Lake(tmp_path, Route("a|b", "both", (tmp_path / "both").as_uri()))
    query.started().commit(QUERY, 0, [*query.written("a", 3), *query.written("b", 2), *query.written("c", 1)])
    assert query.batches("a") == [0] and offsets(query.target("b")) == [0, 0, 1, 1, 2]


def test_topics_that_share_a_table_but_want_it_unlike_are_told(tmp_path: Path) -> None:
    shared = Route("a|b", "both", (tmp_path / "both").as_uri())
    query = Lake(tmp_path, shared, a={"ingest.tableProperty.delta.appendOnly": "true"})
    with pytest.raises(ConfigurationError, match="topics a and b .*table both"):
        query.started().commit(QUERY, 0, [*query.written("a", 3), *query.written("b", 2)])


def test_topics_that_want_one_table_unlike_are_told_also_if_they_have_rows_in_different_batches(tmp_path: Path) -> None:
    shared = Route("a|b", "both", (tmp_path / "both").as_uri())
    query = Lake(tmp_path, shared, a={"ingest.dayColumn": "day"})
    tables = query.started()
    query.land(tables, 0, a=3)
    with pytest.raises(ConfigurationError, match="topics a and b .*table both"):
        query.land(tables, 1, b=2)
    assert query.batches("a") == [0]


def test_many_tables_are_committed_to_at_once(tmp_path: Path) -> None:
    query = Lake(tmp_path)
    topics = [f"t{number}" for number in range(30)]
    query.started().commit(QUERY, 0, [file for topic in topics for file in query.written(topic, 2)])
    assert all(query.batches(topic) == [0] for topic in topics)


def test_an_unexpected_error_of_one_table_is_raised_after_the_other_commits_have_ended(
    query: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, waiting, ended = query.started(), Event(), []

    def wait_for_all(calls: Iterable[Future[Any]]) -> None:
        waiting.set()
        wait(calls)

    def call(share: Share) -> None:
        if share.spec.key == query.target("a").key:
            raise KeyError("a")
        waiting.wait()
        ended.append(share.spec.key)

    monkeypatch.setattr(many_tables, "wait", wait_for_all, raising=False)
    files = [*query.written("a", 1), *query.written("b", 1)]
    try:
        with pytest.raises(KeyError):
            tables._run_all(call, tables._shares(files, {}))
        assert ended == [query.target("b").key]
    finally:
        waiting.set()


# Tables that are parked


@pytest.fixture
def parking(query: Lake) -> Lake:
    """A query that parks tables; `b` refuses, having got a batch."""
    query.parks = True
    query.land(query.started(), 0, a=3, b=2)
    query.refuse["b"] = TableError("no room for b")
    return query


def everything_once(query: Lake) -> bool:
    return all(offsets(query.target(topic)) == list(range(count)) for topic, count in query.source.items())


def parked_in(query: Lake) -> dict[str, Parked]:
    tables = QueryTablesLog(query.checkpoint).before(1 << 40)
    return {parked.name.rpartition("/")[2]: parked for parked in tables.parked.values()}


def test_a_parked_table_lacks_its_offsets_and_the_others_go_on(parking: Lake, caplog: pytest.LogCaptureFixture) -> None:
    tables = parking.started()
    for batch_id in range(1, 4):
        parking.land(tables, batch_id, a=1, b=2, c=1)
    assert parking.batches("a") == [0, 1, 2, 3] and parking.batches("b") == [0]
    lacks = parked_in(parking)["b"]
    assert lacks.tried.joined(lacks.newest).ranges == {TopicPartition("b", 0): OffsetRange(2, 8)}
    assert parking.told == [parking.target("b").uri]
    said = [record.message for record in caplog.records if "lacks" in record.message]
    assert [message.rpartition("/")[2] for message in said] == [
        f"b is parked, and lacks {2 * batch} offsets up to batch {batch}: no room for b" for batch in range(1, 4)
    ]


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_a_table_that_can_be_written_again_is_caught_up_at_the_next_start(parking: Lake, batches: int) -> None:
    tables = parking.started()
    for batch_id in range(1, batches + 1):
        parking.land(tables, batch_id, a=1, b=2)
    parking.refuse.clear()
    tables = parking.started()
    assert everything_once(parking) and parking.batches("b") == [0, batches]
    assert parking.told == [] and parked_in(parking) == {}
    parking.land(tables, batches + 1, a=1, b=2)
    assert everything_once(parking) and parking.batches("b") == [0, batches, batches + 1]


def test_rows_of_tables_that_are_caught_up_count_with_the_next_batch(parking: Lake) -> None:
    names = {topic: parking.target(topic).name for topic in "ab"}
    assert parking.land(parking.started(), 1, a=1, b=2) == [LandedRows(names["a"], 1)]
    parking.refuse.clear()
    tables = parking.started()
    assert set(parking.land(tables, 2, a=3)) == {LandedRows(names["a"], 3), LandedRows(names["b"], 2)}
    assert parking.land(tables, 3) == []


def test_it_is_caught_up_while_the_query_runs(parking: Lake) -> None:
    tables = parking.started()
    for batch_id in range(1, 13):
        if batch_id == 7:
            parking.refuse.clear()
        parking.land(tables, batch_id, b=2)
    assert everything_once(parking) and parking.batches("b") == [0, 10, 11, 12]


def test_what_tasks_could_not_write_is_caught_up_too(parking: Lake) -> None:
    parking.refuse.clear()
    parking.land(parking.started(), 1, held="b", a=1, b=3)
    assert parked_in(parking)["b"].reason == "no folder for b" and parking.batches("a") == [0, 1]
    parking.started()
    assert everything_once(parking)


@pytest.mark.parametrize("lost_at", ["the batch", "catching up"])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_commit_whose_answer_was_lost_is_not_made_again(
    parking: Lake, monkeypatch: pytest.MonkeyPatch, lost_at: str, more: int
) -> None:
    commit, batch_id = TableCommits.commit, 2
    refusing = dict(parking.refuse)

    def lose(commits: TableCommits, *arguments: Any) -> None:
        commit(commits, *arguments)
        raise TableError("connection reset")

    if lost_at == "the batch":
        parking.refuse.clear()
        tables = parking.started()
        with monkeypatch.context() as patched:
            patched.setattr(TableCommits, "commit", lose)
            parking.land(tables, 1, b=2)
        parking.refuse = refusing
    else:
        parking.land(parking.started(), 1, b=2)
        parking.refuse.clear()
        with monkeypatch.context() as patched:
            patched.setattr(TableCommits, "commit", lose)
            tables = parking.started()
        parking.refuse = refusing
    assert parking.batches("b") == [0, 1] and "b" in parked_in(parking)
    for batch_id in range(2, 2 + more):
        parking.land(tables, batch_id, b=2)
    parking.refuse.clear()
    parking.started()
    assert everything_once(parking) and parked_in(parking) == {}


def test_a_driver_that_dies_after_it_has_caught_up_a_table_does_not_do_so_again(parking: Lake) -> None:
    """In batch 10, whose rows are among what was caught up."""
    tables = parking.started()
    for batch_id in range(1, 10):
        parking.land(tables, batch_id, a=1, b=2)
    parking.refuse.clear()
    before = dict(parking.checkpoint.files)
    parking.land(tables, 10, a=1, b=2)
    assert parking.batches("b") == [0, 10]
    parking.checkpoint.files = before
    tables = parking.started()
    parking.land_again(tables, 10, a=1, b=2)
    parking.land(tables, 11, a=1, b=2)
    assert everything_once(parking) and parking.batches("b") == [0, 10, 11]


def test_a_batch_that_is_repeated_parks_a_table_once(parking: Lake) -> None:
    parking.land(parking.started(), 1, a=1, b=2)
    for _ in range(2):
        (parking.checkpoint.files.pop("commits/1"))
        parking.land_again(parking.started(), 1, a=1, b=2)
    parking.refuse.clear()
    parking.started()
    assert everything_once(parking) and parking.batches("b") == [0, 1]


def test_a_table_that_still_refuses_stays_parked_with_the_newest_reason(parking: Lake) -> None:
    parking.land(parking.started(), 1, a=1, b=2)
    parking.refuse["b"] = TableError("still no room")
    parking.started()
    assert parked_in(parking)["b"].reason == "still no room"


def test_what_is_parked_is_caught_up_by_a_run_that_parks_no_more_or_fails_it(parking: Lake) -> None:
    parking.land(parking.started(), 1, a=1, b=2)
    parking.parks = False
    with pytest.raises(TableError, match="/b.* parked.*: no room for b"):
        parking.started()
    parking.refuse.clear()
    parking.started()
    assert everything_once(parking) and parked_in(parking) == {}


def test_what_a_parked_table_lacks_and_is_gone_is_data_loss(parking: Lake) -> None:
    parking.land(parking.started(), 1, a=1, b=2)
    parking.refuse.clear()
    parking.gone = 3
    with pytest.raises(DataLossError, match="parked .*/b .* 3"):
        parking.started()


def send(query: Lake, topic: str) -> None:
    """To a table that no topic had before."""
    folder = folder_of(query.target(topic).uri).with_name("new")
    query.routing = replace(query.routing, routes=(Route(topic, str(folder), folder.as_uri()), *query.routing.routes))


@pytest.mark.parametrize("parks", [True, False])
@pytest.mark.parametrize("is_new_table_used", [False, True])
def test_a_run_that_sends_a_parked_tables_topic_elsewhere_is_refused_and_loses_no_row(
    parking: Lake, parks: bool, is_new_table_used: bool
) -> None:
    tables, first = parking.started(), parking.routing
    parking.land(tables, 1, a=1, b=2)
    parking.refuse.clear()
    if is_new_table_used:
        parking.land(tables, 2, new=1)
    send(parking, "b")
    parking.parks = parks
    with pytest.raises(ConfigurationError):
        parking.started()
    assert parking.batches("a") == [0, 1] and "b" in parked_in(parking)
    parking.routing = first
    parking.started()
    assert everything_once(parking) and parked_in(parking) == {}


@pytest.mark.parametrize("moved", ["a", "b"])
def test_neither_of_two_topics_may_leave_the_parked_table_that_they_share(tmp_path: Path, moved: str) -> None:
    query = Lake(tmp_path, Route("a|b", "both", (tmp_path / "both").as_uri()))
    query.parks, first = True, query.routing
    tables = query.started()
    query.refuse["a"] = TableError("no room")
    query.land(tables, 0, a=3, b=2)
    query.refuse.clear()
    send(query, moved)
    with pytest.raises(ConfigurationError):
        query.started()
    query.routing = first
    query.started()
    assert offsets(query.target("a")) == [0, 0, 1, 1, 2]


def test_a_topic_that_was_made_again_parks_nothing(parking: Lake) -> None:
    parking.refuse["b"] = DataLossError("b was made again")
    with pytest.raises(DataLossError, match="b was made again"):
        parking.land(parking.started(), 1, a=1, b=2)

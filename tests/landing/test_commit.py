"""The driver's commits, into real tables by the `deltalake` library."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from tests.landing.made_batches import ORDERS, decoded, plain
from tests.stack.rows import Record
from tiered_stream.errors import TableError
from tiered_stream.landing.commit import ATTEMPTS, TableCommits
from tiered_stream.landing.files import DataFile
from tiered_stream.landing.lane import table_schema
from tiered_stream.landing.table import make_table, open_table
from tiered_stream.landing.target import TableFiles
from tiered_stream.landing.write import TableWriter
from tiered_stream.offsets import TopicPartition

QUERY = "3c1e0fd4-0000-4000-8000-6a1c4c0f2b11"


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    made = TableFiles((tmp_path / "table").as_uri())
    make_table(made, table_schema(True, None), {})
    return made


def written(files: TableFiles, count: int, first_offset: int = 0) -> list[DataFile]:
    writer = TableWriter(files, 0)
    writer.add(ORDERS, plain(count, first_offset))
    return writer.finish()


def table(files: TableFiles) -> DeltaTable:
    found = open_table(files)
    assert found is not None
    return found


def offsets(files: TableFiles) -> list[int]:
    found: list[int] = table(files).to_pyarrow_table()["offset"].to_pylist()
    return sorted(found)


def log_of(files: TableFiles, version: int) -> list[dict[str, Any]]:
    log = Path(files.uri.removeprefix("file://"), "_delta_log", f"{version:020d}.json")
    return [orjson.loads(line) for line in log.read_bytes().splitlines()]


def test_a_batch_is_one_commit_that_says_what_came(files: TableFiles) -> None:
    other = TopicPartition("payments", 0)
    writer = TableWriter(files, 1)
    writer.add(other, decoded([Record(b"k", b"v")] * 4, 90, other))
    both = written(files, 10, 5) + writer.finish()
    TableCommits(files).commit(QUERY, 7, both)
    (last,) = table(files).history(1)
    assert last["operation"] == "WRITE"
    assert last["operationMetrics"] == {
        "numFiles": "2",
        "numOutputRows": "14",
        "numOutputBytes": str(sum(file.size for file in both)),
    }
    assert last["operationParameters"]["queryId"] == QUERY and last["operationParameters"]["epochId"] == "7"
    assert orjson.loads(last["userMetadata"]) == {
        "startOffsets": {"orders": {"3": 5}, "payments": {"0": 90}},
        "endOffsets": {"orders": {"3": 15}, "payments": {"0": 94}},
    }
    transactions = [action["txn"] for action in log_of(files, last["version"]) if "txn" in action]
    assert [(each["appId"], each["version"]) for each in transactions] == [(QUERY, 7)]
    assert transactions[0]["lastUpdated"] > 1_600_000_000_000


def test_a_repeated_batch_commits_nothing(files: TableFiles) -> None:
    commits = TableCommits(files)
    assert not commits.is_committed(QUERY, 0)
    commits.commit(QUERY, 0, written(files, 10))
    for batch_id in (0, 0):
        assert commits.is_committed(QUERY, batch_id)
        commits.commit(QUERY, batch_id, written(files, 10))
    assert table(files).version() == 1
    assert not commits.is_committed(QUERY, 1) and not commits.is_committed("another query", 0)
    assert offsets(files) == list(range(10))


def test_a_second_attempt_of_a_task_leaves_no_row_in_the_table(files: TableFiles) -> None:
    written(files, 10)
    TableCommits(files).commit(QUERY, 0, written(files, 10))
    assert offsets(files) == list(range(10))
    assert len(table(files).vacuum(retention_hours=0, enforce_retention_duration=False, full=True)) == 1


def test_what_was_committed_is_known_after_a_checkpoint_of_the_log(files: TableFiles) -> None:
    commits = TableCommits(files)
    commits.commit(QUERY, 0, written(files, 10))
    table(files).create_checkpoint()
    assert commits.is_committed(QUERY, 0)
    assert table(files).get_add_actions(flatten=True)["max.offset"].to_pylist() == [9]


def test_several_writers_wait_for_each_other(files: TableFiles) -> None:
    def land(query: int) -> None:
        commits = TableCommits(files)
        for batch_id in range(5):
            commits.commit(f"query {query}", batch_id, written(files, 3, 100 * query + 3 * batch_id))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(land, range(4)))
    assert offsets(files) == sorted(100 * query + n for query in range(4) for n in range(15))
    assert table(files).version() == 20


def test_a_commit_whose_answer_was_lost_is_not_made_twice(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, waits = TableCommits._commit, []

    def lose(self: TableCommits, *arguments: Any) -> None:
        commit(self, *arguments)
        raise CommitFailedError("connection reset")

    monkeypatch.setattr(TableCommits, "_commit", lose)
    TableCommits(files, sleep=waits.append).commit(QUERY, 0, written(files, 10))
    assert len(waits) == 1
    assert table(files).version() == 1


def test_commits_that_never_succeed_name_the_table(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise CommitFailedError("somebody was faster")

    monkeypatch.setattr(TableCommits, "_commit", fail)
    waits: list[float] = []
    with pytest.raises(TableError, match=rf"table: batch 3 could not be committed in {ATTEMPTS} attempts: somebody"):
        TableCommits(files, sleep=waits.append).commit(QUERY, 3, [])
    assert len(waits) == ATTEMPTS - 1 and waits[0] < waits[5] < 11


def test_a_table_that_gets_a_constraint_is_not_written_to(files: TableFiles) -> None:
    table(files).alter.add_constraint({"small": "offset < 5"})
    with pytest.raises(TableError, match=r"no longer be written to by the direct lane: the table has the constr"):
        TableCommits(files).commit(QUERY, 0, written(files, 10))
    assert offsets(files) == []


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"the table file:///.*gone cannot be opened"):
        TableCommits(TableFiles((tmp_path / "gone").as_uri())).is_committed(QUERY, 0)


def test_the_name_of_the_transaction_is_the_one_of_sparks_sink(files: TableFiles) -> None:
    """What Spark's Delta sink has committed of the same checkpoint counts here too."""
    properties = CommitProperties(app_transactions=[Transaction(QUERY, 4)])
    table(files).create_write_transaction([], "append", table(files).schema(), commit_properties=properties)
    assert TableCommits(files).is_committed(QUERY, 4)
    assert not TableCommits(files).is_committed(QUERY, 5)

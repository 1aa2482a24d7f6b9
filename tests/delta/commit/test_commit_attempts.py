"""The driver's commits, into real tables by the `deltalake` library."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import LongType, StructType

from tests.delta.committing import (
    QUERY,
    folder_of,
    log_file,
    log_of,
    offsets,
    overwrite,
    planned,
    table,
    written,
    written_rows,
)
from tests.delta.made_batches import decoded, plain
from tests.rigs.stack.rows import Record
from tiered_stream.delta.commit import deltalake_commit
from tiered_stream.delta.commit.commit_attempts import ATTEMPTS, TableCommits
from tiered_stream.delta.commit.deltalake_commit import (
    CHECKPOINT_INTERVAL,
    DeltalakeTable,
    add_columns,
    create_table,
    describe,
)
from tiered_stream.delta.commit.transaction import BatchCommit, CommitTable, TableState
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.errors import DataLossError, TableError
from tiered_stream.formats.columns.conform import mark_grown
from tiered_stream.model import TopicPartition, uuid_to_text


@pytest.fixture(autouse=True, params=[False, True], ids=["", "prepared"])
def prepared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens to the table between two commits, it makes no difference that it was opened before that."""
    if not request.param:
        return
    commit = TableCommits.commit

    def commit_and_prepare(self: TableCommits, query_id: str, batch_id: int, written: Sequence[DataFile]) -> int | None:
        version = commit(self, query_id, batch_id, written)
        self.prepare()
        wait_until_opened(self.planned.table)
        return version

    monkeypatch.setattr(TableCommits, "commit", commit_and_prepare)


def wait_until_opened(of_table: CommitTable) -> None:
    assert isinstance(of_table, DeltalakeTable) and of_table._prepared is not None
    of_table._prepared.exception()


def no_gap(last: int | None, done: int) -> None:
    raise AssertionError(f"after {last} comes {done}")


def table_commits(files: TableSpec, on_gap: Callable[[int | None, int], None] = no_gap, **given: Any) -> TableCommits:
    return TableCommits(planned(files), on_gap, **{"sleep": lambda _: None, **given})


def test_a_batch_is_one_commit_that_says_what_came(files: TableSpec) -> None:
    other = TopicPartition("payments", 0)
    of_other = written_rows(files, decoded([Record(b"k", b"v")] * 4, 90, other), partition=other)
    both = written(files, 10, 5) + of_other
    table_commits(files, lambda *_: None).commit(QUERY, 7, both)
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


def test_a_repeated_batch_commits_nothing(files: TableSpec) -> None:
    commits = table_commits(files)
    assert not commits.is_committed(QUERY, 0)
    commits.commit(QUERY, 0, written(files, 10))
    for again in (commits, table_commits(files)):
        assert again.is_committed(QUERY, 0)
        again.commit(QUERY, 0, written(files, 10))
    assert table(files).version() == 1
    assert not commits.is_committed(QUERY, 1) and not table_commits(files).is_committed("another query", 0)
    assert offsets(files) == list(range(10))


def test_what_was_committed_is_known_after_a_checkpoint_of_the_log(files: TableSpec) -> None:
    table_commits(files).commit(QUERY, 0, written(files, 10))
    table(files).create_checkpoint()
    assert table_commits(files).is_committed(QUERY, 0)
    assert table(files).get_add_actions(flatten=True)["max.offset"].to_pylist() == [9]


def test_several_writers_wait_for_each_other(files: TableSpec) -> None:
    def land(query: int) -> None:
        commits = table_commits(files)
        for batch_id in range(5):
            commits.commit(f"query {query}", batch_id, written(files, 3, 100 * query + 3 * batch_id))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(land, range(4)))
    assert offsets(files) == sorted(100 * query + n for query in range(4) for n in range(15))
    assert table(files).version() == 20


def test_a_commit_whose_answer_was_lost_is_not_made_twice(files: TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    write, waits = DeltaTable.create_write_transaction, []

    def lose(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        write(self, *arguments, **named)
        raise CommitFailedError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose)
    table_commits(files, sleep=waits.append).commit(QUERY, 0, written(files, 10))
    assert len(waits) == 1
    assert table(files).version() == 1


def test_commits_that_never_succeed_name_the_table(files: TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise CommitFailedError("somebody was faster")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    waits: list[float] = []
    with pytest.raises(TableError, match=rf"table: batch 0 .*{ATTEMPTS} attempts: somebody"):
        table_commits(files, sleep=waits.append).commit(QUERY, 0, [])
    assert len(waits) == ATTEMPTS - 1 and waits[0] < waits[5] < 11


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"file:///.*gone"):
        DeltalakeTable(TableSpec((tmp_path / "gone").as_uri())).begin()


def test_the_name_of_the_transaction_is_the_one_of_sparks_sink(files: TableSpec) -> None:
    """What Spark's Delta sink has committed of the same checkpoint counts here too."""
    properties = CommitProperties(app_transactions=[Transaction(QUERY, 4)])
    table(files).create_write_transaction([], "append", table(files).schema(), commit_properties=properties)
    assert table_commits(files).is_committed(QUERY, 4)
    assert not table_commits(files).is_committed(QUERY, 5)


def test_a_batch_without_rows_is_a_commit(files: TableSpec) -> None:
    """As in Spark's sink, so that a start can tell it from one that is lost."""
    table_commits(files).commit(QUERY, 0, [])
    assert table_commits(files).is_committed(QUERY, 0)
    table_commits(files).commit(QUERY, 1, written(files, 3))
    assert offsets(files) == [0, 1, 2]


def test_two_drivers_of_one_query_commit_a_batch_once(files: TableSpec) -> None:
    one, other = table_commits(files), table_commits(files)
    assert not one.is_committed(QUERY, 0) and not other.is_committed(QUERY, 0)
    one.commit(QUERY, 0, written(files, 10))
    other.commit(QUERY, 0, written(files, 10))
    assert offsets(files) == list(range(10)) and table(files).version() == 1


def test_the_same_batch_by_another_driver_in_the_midst_of_a_commit_is_a_conflict(files: TableSpec) -> None:
    begun = DeltalakeTable(files).begin()
    table_commits(files).commit(QUERY, 0, written(files, 10))
    with pytest.raises(TableError):
        begun.commit(BatchCommit(QUERY, 0, written(files, 10)))
    assert offsets(files) == list(range(10))


def test_a_commit_that_was_overwritten_is_named(files: TableSpec) -> None:
    commits = table_commits(files)
    commits.commit(QUERY, 0, written(files, 10))
    commits.commit(QUERY, 1, written(files, 5, 10))
    overwrite(files, 2, [{"commitInfo": {"operation": "WRITE"}}])
    assert offsets(files) == list(range(10))
    expected = r'batch 1, which brought \{"startOffsets":\{"orders":\{"3":10\}\},"endOffsets":\{"orders":\{"3":15\}\}\}'
    with pytest.raises(TableError, match=expected):
        commits.commit(QUERY, 2, written(files, 5, 15))
    assert offsets(files) == list(range(10))
    gaps: list[tuple[int | None, int]] = []
    again = table_commits(files, lambda *gap: gaps.append(gap))
    assert not again.is_committed(QUERY, 2) and gaps == [(0, 1)]


def test_a_commit_is_looked_for_among_those_of_others(files: TableSpec) -> None:
    commits, others = table_commits(files), table_commits(files)
    for batch_id in range(3):
        commits.commit(QUERY, batch_id, written(files, 2, 100 + 2 * batch_id))
        for n in range(3):
            others.commit("another query", 3 * batch_id + n, written(files, 1, 3 * batch_id + n))
            others = table_commits(files)
    assert offsets(files) == [*range(9), *range(100, 106)]


def test_a_commit_whose_file_was_cleaned_up_is_found_in_the_tables_state(files: TableSpec) -> None:
    commits = table_commits(files)
    commits.commit(QUERY, 0, written(files, 10))
    table_commits(files).commit("another query", 0, written(files, 1, 10))
    table(files).create_checkpoint()
    log_file(files, 1).unlink()
    commits.commit(QUERY, 1, written(files, 5, 11))
    assert offsets(files) == list(range(16))


@pytest.mark.parametrize(("last", "batch_id"), [(None, 1), (0, 2), (3, 9)])
def test_a_start_with_a_batch_missing_is_told_which(files: TableSpec, last: int | None, batch_id: int) -> None:
    if last is not None:
        table_commits(files, lambda *_: None).commit(QUERY, last, written(files, 10))
    gaps: list[tuple[int | None, int]] = []
    commits = table_commits(files, lambda *gap: gaps.append(gap))
    assert not commits.is_committed(QUERY, batch_id)
    assert gaps == [(last, batch_id - 1)]
    commits.commit(QUERY, batch_id, written(files, 5, 10))
    commits.commit(QUERY, batch_id + 1, written(files, 5, 15))
    assert len(gaps) == 1 and 19 in offsets(files)


def test_a_batch_that_the_table_has_forgotten_while_the_query_runs_is_not_taken_for_lost(tmp_path: Path) -> None:
    files = TableSpec((tmp_path / "drops_transactions").as_uri())
    create_table(files, table_schema(True, None), {"delta.setTransactionRetentionDuration": "interval 1 days"})
    commits = table_commits(files)
    assert not commits.is_committed(QUERY, 7), "it cannot miss a batch"
    commits.commit(QUERY, 0, written(files, 10))
    overwrite(files, 1, [action for action in log_of(files, 1) if "txn" not in action])
    table_commits(files).commit("another query", 0, written(files, 1, 10))
    table(files).create_checkpoint()
    log_file(files, 1).unlink()
    commits.commit(QUERY, 1, written(files, 5, 11))
    assert offsets(files) == list(range(16))


def test_a_table_that_was_replaced_is_not_written_to(files: TableSpec) -> None:
    commits = table_commits(files)
    commits.commit(QUERY, 0, written(files, 10))
    DeltaTable.create(files.uri, table(files).schema(), mode="overwrite")
    version = table(files).version()
    with pytest.raises(TableError, match="another .*its id is"):
        commits.commit(QUERY, 1, written(files, 10, 10))
    assert table(files).version() == version and offsets(files) == []


def test_a_table_that_was_made_anew_in_the_same_folder_is_not_written_to(files: TableSpec) -> None:
    """Its log is as long as the one before was."""
    commits = table_commits(files)
    commits.commit(QUERY, 0, written(files, 10))
    shutil.rmtree(folder_of(files.uri))
    create_table(files, table_schema(True, None), {})
    table_commits(files).commit("another query", 0, written(files, 1))
    log = [path.read_bytes() for path in sorted(log_file(files, 0).parent.iterdir())]
    with pytest.raises(TableError, match="another .*its id is"):
        commits.commit(QUERY, 1, written(files, 10, 10))
    assert [path.read_bytes() for path in sorted(log_file(files, 0).parent.iterdir())] == log


def test_a_table_that_is_gone_since_the_last_commit_is_not_written_to(files: TableSpec) -> None:
    commits = table_commits(files)
    commits.commit(QUERY, 0, written(files, 10))
    shutil.rmtree(folder_of(files.uri))
    with pytest.raises(TableError, match=f"{files.uri} "):
        commits.commit(QUERY, 1, [])
    assert not folder_of(files.uri).exists()


def test_a_constraint_that_came_since_the_last_commit_is_seen(files: TableSpec) -> None:
    commits = table_commits(files)
    commits.commit(QUERY, 0, written(files, 5))
    table(files).alter.add_constraint({"small": "offset < 5"})
    with pytest.raises(TableError, match=r"constraint"):
        commits.commit(QUERY, 1, written(files, 10, 5))
    assert offsets(files) == list(range(5))


def test_what_others_wrote_since_the_last_commit_is_in_the_checkpoint(files: TableSpec) -> None:
    commits = table_commits(files)
    for batch_id in range(8):
        commits.commit(QUERY, batch_id, [])
    table_commits(files).commit("another query", 0, written(files, 3))
    commits.commit(QUERY, 8, written(files, 2, 3))
    assert checkpoints(files) == [10]
    for version in range(10):
        log_file(files, version).unlink()
    assert offsets(files) == list(range(5))


def test_what_was_opened_ahead_is_not_opened_again(files: TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    of_table = DeltalakeTable(files)
    of_table.prepare()
    of_table.prepare()
    wait_until_opened(of_table)
    table_commits(files).commit("another query", 0, [])
    with monkeypatch.context() as context:
        context.setattr(deltalake_commit, "_open", lambda _: pytest.fail("it was opened"))
        assert of_table.begin().state.version == 1
    table_commits(files).commit("another query", 1, [])
    assert of_table.begin().state.version == 2


def test_what_could_not_be_opened_ahead_is_opened_when_it_is_needed(files: TableSpec) -> None:
    moved, of_table = folder_of(files.uri).with_name("moved"), DeltalakeTable(files)
    folder_of(files.uri).rename(moved)
    of_table.prepare()
    wait_until_opened(of_table)
    moved.rename(folder_of(files.uri))
    assert of_table.begin().state.version == 0


def test_a_table_whose_columns_changed_is_not_written_to(files: TableSpec) -> None:
    """Replaced under the same id, as delta-spark does it: the files would be unreadable in it."""
    commits = table_commits(files)
    commits.commit(QUERY, 0, written(files, 10))
    (metadata,) = [action for action in log_of(files, 0) if "metaData" in action]
    schema = orjson.loads(metadata["metaData"]["schemaString"])
    schema["fields"] = [field | {"type": "string"} if field["name"] == "value" else field for field in schema["fields"]]
    changed = metadata["metaData"] | {"schemaString": orjson.dumps(schema).decode()}
    removed = [{"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}} for path in paths(files)]
    overwrite(files, 2, [{"metaData": changed}, *removed])
    with pytest.raises(TableError, match="value as string.* binary"):
        commits.commit(QUERY, 1, written(files, 10, 10))
    assert table(files).version() == 2 and offsets(files) == []


@pytest.mark.parametrize("name", ["offset", "Offset", "day"])
def test_a_new_field_with_the_name_of_another_column_is_named(tmp_path: Path, name: str) -> None:
    files = TableSpec((tmp_path / "t").as_uri(), day_column="day")
    create_table(files, table_schema(True, "day"), {})
    grown: list[StructType] = []

    def grow(_: Any, schema: StructType) -> bool:
        grown.append(schema)
        return False

    plan = replace(planned(files), grow=grow)
    commits = TableCommits(plan, lambda *_: None)
    batch = plain(3)
    column = pa.field(name, pa.int64())
    schema = mark_grown(pa.schema([column, *batch.schema]))
    made = written_rows(files, pa.RecordBatch.from_arrays([pa.array(range(3)), *batch.columns], schema=schema))
    with pytest.raises(TableError, match=f"new field {name.lower()}.*ingest.kafkaColumns={name.lower()} as kafka_"):
        commits.commit(QUERY, 0, made)
    assert (table(files).version(), grown) == (0, [])


@pytest.mark.parametrize("name", ["new", "NEW", "New"])
def test_a_new_field_that_the_table_has_in_another_case_is_refused(files: TableSpec, name: str) -> None:
    """Readers that heed case, such as deltalake, would find nulls in its place."""
    commits = TableCommits(replace(planned(files), grow=lambda *_: False), lambda *_: None)
    add_columns(files, StructType().add("new", LongType()))
    made = written_with_field(files, name)
    if name == "new":
        commits.commit(QUERY, 0, made)
        assert table(files).to_pyarrow_table()["new"].to_pylist() == [0, 1, 2]
    else:
        with pytest.raises(TableError, match=f"its column new is called {name}"):
            commits.commit(QUERY, 0, made)


def written_with_field(files: TableSpec, name: str) -> list[DataFile]:
    """Three records with a field that was not planned."""
    batch = plain(3)
    schema = mark_grown(pa.schema([*batch.schema, pa.field(name, pa.int64())]))
    return written_rows(files, pa.RecordBatch.from_arrays([*batch.columns, pa.array(range(3))], schema=schema))


def test_a_batch_that_another_driver_commits_while_columns_are_added_is_committed_once(files: TableSpec) -> None:
    other = table_commits(files)

    def grow(*_: Any) -> bool:
        add_columns(files, StructType().add("new", LongType()))
        other.commit(QUERY, 0, written(files, 3))
        return True

    commits = TableCommits(replace(planned(files), grow=grow), lambda *_: None)
    assert commits.commit(QUERY, 0, written_with_field(files, "new")) is None
    assert offsets(files) == [0, 1, 2]


def paths(files: TableSpec) -> list[str]:
    return [action["add"]["path"] for action in log_of(files, 1) if "add" in action]


def checkpoints(files: TableSpec) -> list[int]:
    return sorted(int(each.name[:20]) for each in log_file(files, 0).parent.glob("*.checkpoint.parquet"))


@pytest.mark.parametrize(("given", "expected"), [({}, [10, 20]), ({"delta.checkpointInterval": "7"}, [7, 14, 21])])
def test_checkpoints_come_when_delta_would_write_them(
    tmp_path: Path, given: dict[str, str], expected: list[int]
) -> None:
    files = TableSpec((tmp_path / "table").as_uri())
    create_table(files, table_schema(True, None), given)
    commits = table_commits(files)
    for batch_id in range(22):
        commits.commit(QUERY, batch_id, [])
    assert checkpoints(files) == expected


@pytest.mark.parametrize("interval", ["0", "-5", "often", "", "\u0667"])
def test_an_interval_of_checkpoints_that_is_no_number_from_1_counts_as_the_default(
    files: TableSpec, interval: str
) -> None:
    description = replace(describe(table(files)), configuration={CHECKPOINT_INTERVAL: interval})
    for version, expected in ((8, []), (9, [0])):
        DeltalakeTable(files).checkpoint(table(files), TableState(version, description))
        assert checkpoints(files) == expected


def test_a_checkpoint_that_cannot_be_written_costs_no_batch(
    files: TableSpec, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: DeltaTable) -> None:
        raise OSError("no space")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    commits = table_commits(files)
    for batch_id in range(11):
        commits.commit(QUERY, batch_id, [])
    assert table(files).version() == 11 and re.search("version 10: .*no space", caplog.text)


# Topics that were made again

OF_ORDERS, NEW_ORDERS = UUID(int=1), UUID(int=2)


def of_topic(files: list[DataFile], topic_id: UUID) -> list[DataFile]:
    return [replace(file, topic_ids={"orders": topic_id}) for file in files]


def test_a_commit_keeps_the_topics_ids_and_so_does_one_without_rows(files: TableSpec) -> None:
    commits = table_commits(files)
    commits.commit(QUERY, 0, of_topic(written(files, 10), OF_ORDERS))
    commits.commit(QUERY, 1, [])
    for entry in table(files).history(2):
        assert orjson.loads(entry["userMetadata"])["topicIds"] == {"orders": uuid_to_text(OF_ORDERS)}


def test_a_topic_that_was_made_again_between_two_runs_is_data_loss_and_nothing_is_committed(files: TableSpec) -> None:
    table_commits(files).commit(QUERY, 0, of_topic(written(files, 10), OF_ORDERS))
    DeltaTable(files.uri).alter.set_table_properties({"delta.appendOnly": "true"})  # somebody else's commit above it
    again = of_topic(written(files, 10, 10), NEW_ORDERS)
    with pytest.raises(DataLossError, match=r"KAFKA_DATA_LOSS\.TOPIC_RECREATED.*orders "):
        table_commits(files).commit(QUERY, 1, again)
    assert offsets(files) == list(range(10))
    table_commits(files).commit("another query", 0, again)


def test_where_data_loss_may_be_it_is_a_warning_and_the_new_topic_is_the_one_from_then_on(
    files: TableSpec, caplog: pytest.LogCaptureFixture
) -> None:
    table_commits(files).commit(QUERY, 0, of_topic(written(files, 10), OF_ORDERS))
    table_commits(files, fail_on_data_loss=False).commit(QUERY, 1, of_topic(written(files, 10, 10), NEW_ORDERS))
    assert [record.levelname for record in caplog.records if "made again" in record.message] == ["WARNING"]
    table_commits(files).commit(QUERY, 2, of_topic(written(files, 10, 20), NEW_ORDERS))
    assert offsets(files) == list(range(30))


def test_a_query_whose_commits_have_no_ids_yet_goes_on(files: TableSpec) -> None:
    table_commits(files).commit(QUERY, 0, written(files, 10))
    table_commits(files).commit(QUERY, 1, of_topic(written(files, 10, 10), OF_ORDERS))
    assert offsets(files) == list(range(20))

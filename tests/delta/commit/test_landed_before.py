"""A new query whose first records another query has landed in the same table, as after the loss of a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import orjson
import pytest

from tests.delta.committing import QUERY, planned, table, written
from tests.delta.made_batches import ORDERS
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.dead_letters import DeadLetterTable
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.commit.query_commits import OneTable
from tiered_stream.delta.commit.table_log import LandedBefore, QueryCommit, landed_before
from tiered_stream.delta.commit.transaction import commit_metadata
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.settings.ingest_settings import FAIL, LAND, TableSpec, table_spec
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.errors import DataLossError, TableError
from tiered_stream.model import OffsetRange


def commits(files: TableSpec, *, lands_again: bool = False) -> TableCommits:
    return TableCommits(planned(replace(files, on_landed_offsets=LAND if lands_again else FAIL)), lambda *_: None)


@pytest.mark.parametrize("start,end", [(0, 100), (50, 300), (199, 201), (150, 160)])
def test_records_that_another_query_has_landed_end_the_query_with_ways_to_go_on(
    files: TableSpec, start: int, end: int
) -> None:
    first = commits(files)
    for batch in range(2):
        first.commit(QUERY, batch, written(files, 100, 100 * batch))
    new = commits(files)
    with pytest.raises(TableError) as refused:
        new.commit("a new query", 0, written(files, end - start, start))
    text = str(refused.value)
    assert f"{ORDERS} {start} to {min(end, 200)}" in text and QUERY in text
    assert 'startingOffsets={"orders":{"3":200}}' in text
    assert "tiered-stream replay" in text and "ingest.onLandedOffsets=land" in text
    assert table(files).version() == 2


def test_records_that_are_to_be_landed_again_are(files: TableSpec, caplog: pytest.LogCaptureFixture) -> None:
    commits(files).commit(QUERY, 0, written(files, 100))
    assert commits(files, lands_again=True).commit("a new query", 0, written(files, 100)) == 2
    assert "This query lands them again" in caplog.text


@pytest.mark.parametrize("start,end", [(200, 210), (90, 100)])
def test_a_query_that_goes_on_where_the_table_ends_or_begins_is_no_concern(
    files: TableSpec, start: int, end: int
) -> None:
    commits(files).commit(QUERY, 0, written(files, 100, 100))
    new = commits(files)
    assert new.commit("a new query", 0, written(files, end - start, start)) == 2
    assert new.commit("a new query", 1, written(files, 10, 100)) == 3, "only its first batch is compared"


def test_a_topic_that_was_made_again_since_has_other_records(files: TableSpec) -> None:
    old, new = (
        [replace(file, topic_ids={"orders": UUID(int=number)}) for file in written(files, 9)] for number in (1, 2)
    )
    commits(files).commit(QUERY, 0, old)
    assert commits(files).commit("a new query", 0, new) == 2
    with pytest.raises(TableError, match="another query|a new query"):
        commits(files).commit("a third query", 0, new)


@pytest.mark.parametrize("ids", [["orders"], {"orders": 7}])
def test_a_commit_with_topic_ids_of_another_form_counts_as_one_without_ids(ids: object) -> None:
    wanted, known = {ORDERS: OffsetRange(0, 5)}, {ORDERS.topic: UUID(int=1)}

    def found(start: int, end: int) -> LandedBefore | None:
        values = orjson.loads(commit_metadata({ORDERS: OffsetRange(start, end)}, {})) | {"topicIds": ids}
        return landed_before([QueryCommit(QUERY, 1, orjson.dumps(values).decode())], "it", "new", wanted, known)

    assert found(5, 9) is None and found(3, 9) is not None


@pytest.mark.parametrize("starts_again", [False, True])
def test_first_records_are_compared_also_after_batches_without_rows(files: TableSpec, starts_again: bool) -> None:
    """As if `ingest.where` left out the first records, or all of them became dead letters."""
    commits(files).commit(QUERY, 0, written(files, 100))
    new = commits(files)
    new.commit("a new query", 0, [])
    with pytest.raises(TableError, match="has offsets of this query's first records already"):
        (commits(files) if starts_again else new).commit("a new query", 1, written(files, 100))
    assert table(files).version() == 2


def test_a_query_that_starts_again_after_its_first_records_is_not_compared(files: TableSpec) -> None:
    commits(files).commit("a new query", 0, written(files, 10, 100))
    commits(files).commit("a replay", 0, written(files, 10, 110))
    assert commits(files).commit("a new query", 1, written(files, 10, 110)) == 3


@pytest.fixture
def dead(tmp_path: Path) -> TableSpec:
    """A new table for dead letters."""
    made = TableSpec((tmp_path / "dead").as_uri())
    create_table(made, table_schema(True, None), {})
    return made


def one_table(files: TableSpec, dead: TableSpec) -> OneTable:
    own = table_spec({"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": "/dead"})
    spec, route = replace(files, rows=own.rows), Route(".*", files.uri, files.uri)
    routing = Routing(spec, (route,), dead_letter_folders={"/dead": dead.uri})
    letters = DeadLetterTable(lambda: commits(dead), lambda *_: None, commits(dead))
    return OneTable(routing, spec, commits(files), lambda _: letters)


def letters_of(files: TableSpec, dead: TableSpec) -> list[DataFile]:
    return [replace(file, dead_letters_for=files.uri) for file in written(dead, 1, 50)]


def test_first_records_are_compared_before_their_dead_letters_are_committed(files: TableSpec, dead: TableSpec) -> None:
    commits(files).commit(QUERY, 0, written(files, 100))
    query, letters = one_table(files, dead), letters_of(files, dead)
    for made in ([*written(files, 50), *letters], letters):
        with pytest.raises(TableError, match="has offsets of this query's first records already"):
            query.commit("a new query", 0, made)
    assert (table(files).version(), table(dead).version()) == (1, 0)


def test_a_topic_that_was_made_again_is_found_before_its_dead_letters_are_committed(
    files: TableSpec, dead: TableSpec
) -> None:
    query = one_table(files, dead)
    old, new = ({"topic_ids": {"orders": UUID(int=number)}} for number in (1, 2))
    query.commit(QUERY, 0, [replace(file, **old) for file in written(files, 50)])
    made = [replace(file, **new) for file in (*written(files, 50), *letters_of(files, dead))]
    with pytest.raises(DataLossError):
        query.commit(QUERY, 1, made)
    assert (table(files).version(), table(dead).version()) == (1, 0)

"""What a query of many tables keeps in its checkpoint."""

from __future__ import annotations

import pytest

from tests.delta.folder_in_memory import FolderInMemory
from tiered_stream.delta.checkpoint.query_tables import (
    Held,
    Landed,
    Parked,
    QueryTables,
    QueryTablesLog,
    query_tables_of,
)
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.model import OffsetRange, TopicPartition

ONE, OTHER = TopicPartition("a", 0), TopicPartition("a", 1)
HELD = Held(4, {ONE: OffsetRange(3, 9), OTHER: OffsetRange(0, 2)})
SINCE = Held(6, {ONE: OffsetRange(12, 20), TopicPartition("b", 0): OffsetRange(5, 6)})
SOME = QueryTables({"file:///lake/a": Landed(3, 7), "s3://lake/b": Landed(9, 0)})
PARKED = QueryTables(SOME.landed, {"x": Parked("bronze.x", "no room", HELD, SINCE), "y": Parked("y", "", HELD)})


def test_it_is_read_as_it_was_written() -> None:
    assert query_tables_of(SOME.to_json()) == SOME
    assert query_tables_of(PARKED.to_json()) == PARKED
    assert query_tables_of(QueryTables().to_json()) == QueryTables()


def test_what_is_held_of_several_batches_is_one_range_of_each_partition() -> None:
    joined = HELD.joined(SINCE)
    assert joined.ranges == {**HELD.ranges, **SINCE.ranges, ONE: OffsetRange(3, 20)} and joined.batch == 6
    parked = PARKED.parked["y"].holding(SINCE).holding(Held(8, {OTHER: OffsetRange(2, 3)}))
    assert parked.tried == HELD and parked.newest.batch == 8 and parked.newest.ranges[ONE] == OffsetRange(12, 20)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"null", b"{}", b'{"version":2,"tables":{}}', b'{"version":1}', b'{"version":1,"tables":[1]}',
        b'{"version":1,"tables":{"a":["1",2]}}', b'{"version":1,"tables":{"a":[-2,0]}}',
        b'{"version":1,"tables":{"a":[true,1]}}', b'{"version":1,"tables":{"a":{"lot":1}}}', SOME.to_json()[:-1],
        PARKED.to_json().replace(b"[0,3,9]", b"[0,9,3]"), PARKED.to_json().replace(b"[0,3,9]", b"[0,3]"),
        PARKED.to_json().replace(b"[0,3,9]", b"[-1,3,9]"), PARKED.to_json().replace(b"[0,3,9]", b"[0,3,3]"),
        PARKED.to_json().replace(b'"batch":6', b'"batch":4'), PARKED.to_json().replace(b'"held"', b'"hold"'),
        PARKED.to_json().replace(b'"bronze.x"', b"7"), b'{"version":1,"tables":{},"parked":[]}',
        b'{"version":1,"tables":{},"parked":{"x":{"name":"x","reason":"","held":[]}}}',
    ],
)  # fmt: skip
def test_what_is_damaged_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptDataError, match="batches"):
        query_tables_of(text)


def test_a_run_goes_on_where_the_one_before_ended() -> None:
    folder = FolderInMemory()
    QueryTablesLog(folder).after(4, SOME)
    assert QueryTablesLog(folder).before(5) == QueryTablesLog(folder).before(80) == SOME


def test_a_batch_that_is_repeated_begins_with_what_was_so_before_it() -> None:
    folder = FolderInMemory()
    log = QueryTablesLog(folder)
    log.after(4, SOME)
    log.after(5, SOME.with_landed({"c": Landed(5, 1)}))
    assert QueryTablesLog(folder).before(5) == SOME
    assert QueryTablesLog(folder).before(4) == QueryTables()
    assert QueryTablesLog(folder).before(6).landed["c"] == Landed(5, 1)


def test_a_batch_that_changes_nothing_writes_nothing_and_two_files_are_kept() -> None:
    folder = FolderInMemory()
    log = QueryTablesLog(folder)
    for batch_id in range(6):
        log.after(batch_id, SOME.with_landed({"c": Landed(batch_id // 2, 1)}))
        assert log.before(batch_id + 1).landed["c"] == Landed(batch_id // 2, 1)
    assert sorted(folder.files) == ["tables/2", "tables/4"]


def test_what_an_attempt_wrote_that_was_killed_is_replaced_by_the_next() -> None:
    folder = FolderInMemory()
    QueryTablesLog(folder).after(4, SOME)
    QueryTablesLog(folder).after(5, PARKED)
    QueryTablesLog(folder).after(5, SOME)
    assert QueryTablesLog(folder).before(6) == SOME


@pytest.mark.parametrize("name", ["\u0665", "9" * 30, "5.tmp"])
def test_a_file_whose_name_is_no_batch_is_passed_over(name: str) -> None:
    folder = FolderInMemory()
    QueryTablesLog(folder).after(4, SOME)
    folder.write(f"tables/{name}", b"")
    assert QueryTablesLog(folder).before(10**31) == SOME


def test_a_query_that_would_leave_a_table_parked_is_refused() -> None:
    folder = FolderInMemory()
    for batch, tables in ((4, SOME), (5, PARKED)):
        QueryTablesLog(folder).after(batch, tables)
        QueryTablesLog(folder).refuse_parked()  # Spark has not committed batch 5 yet, and will repeat it
        folder.write(f"commits/{batch}", b"")
    with pytest.raises(ConfigurationError):
        QueryTablesLog(folder).refuse_parked()


def test_one_run_may_look_back_and_forth() -> None:
    folder = FolderInMemory()
    QueryTablesLog(folder).after(4, SOME)
    log = QueryTablesLog(folder)
    assert [log.before(batch_id) for batch_id in (0, 5, 4, 9)] == [QueryTables(), SOME, QueryTables(), SOME]


def test_a_damaged_file_is_named() -> None:
    folder = FolderInMemory()
    folder.write("tables/3", b"{")
    with pytest.raises(CorruptDataError, match="tables/3 .*checkpoint memory "):
        QueryTablesLog(folder).before(4)

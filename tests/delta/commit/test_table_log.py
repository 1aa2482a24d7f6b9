"""The table's log as others may have written it."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import orjson
import pytest

from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import TableError
from tiered_stream.observe.landed_rows import ChangedKeys


def log_of(folder: Path, line: str) -> TableLog:
    """A table's log with one version of one line."""
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / f"{3:020d}.json").write_text(line + "\n")
    return TableLog(TableSpec(folder.as_uri()))


@pytest.mark.parametrize(
    "line",
    ['["txn"]', '{"txn":7}', '{"txn":{"appId":"q"}}', '{"txn":{"appId":"q","version":"7"}}', '{"txn"'],
)  # fmt: skip
def test_a_transaction_that_cannot_be_read_is_an_error_that_names_the_table(tmp_path: Path, line: str) -> None:
    with pytest.raises(TableError, match=re.escape(tmp_path.as_uri())):
        log_of(tmp_path, line).newest_batch("q", 3, 3)


def test_an_action_that_is_null_is_passed_over(tmp_path: Path) -> None:
    assert log_of(tmp_path, '{"txn":null}').newest_batch("q", 3, 3) == -1


def committed(folder: Path, metadata: object) -> TableLog:
    """A table's log with a commit of the query."""
    info = {"commitInfo": {"timestamp": 1, "userMetadata": metadata}}
    return log_of(folder, '{"txn":{"appId":"q","version":0}}\n' + orjson.dumps(info).decode())


IDS_OF_OTHERS = ["{}", "null", "[]", '"x"', '{"t":7}', '{"t":"short"}', '{"t":"AAAAAAAAAAAAAAAAAAAAAAA"}']


@pytest.mark.parametrize(
    "metadata",
    [None, 7, "", "by hand", "[]", "{}", '{"startOffsets":{}}', *(f'{{"topicIds":{ids}}}' for ids in IDS_OF_OTHERS)],
)
def test_metadata_that_others_wrote_has_no_topic_ids(tmp_path: Path, metadata: object) -> None:
    assert committed(tmp_path, metadata).topic_ids("q", 0, 3) == {}


def test_topic_ids_are_those_of_the_query_alone(tmp_path: Path) -> None:
    log = committed(tmp_path, '{"topicIds":{"t":"AAAAAAAAAAAAAAAAAAAAAQ"}}')
    assert log.topic_ids("q", 0, 3) == {"t": UUID(int=1)}
    assert log.topic_ids("another query", 0, 3) == {}
    assert log.topic_ids("q", 0, 9) == {}  # of which the newest are not there


def test_a_version_is_known_again_by_its_digest(tmp_path: Path) -> None:
    one, other = ((tmp_path / name) for name in ("one", "other"))
    log = log_of(one, '{"txn":null}')
    assert log.digest(3) is not None and log.digest(3) == log.digest(3)
    assert log.digest(3) != log_of(other, '{"add":null}').digest(3)
    assert log.digest(4) is None


@pytest.mark.parametrize(
    "metrics",
    [
        {"numTargetRowsInserted": "7", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "1"},
        {"num_target_rows_inserted": 7, "num_target_rows_updated": 2, "num_target_rows_deleted": 1},
    ],
)
def test_the_keys_that_a_merge_has_changed_are_in_its_commit(tmp_path: Path, metrics: dict[str, object]) -> None:
    info = {"commitInfo": {"operation": "MERGE", "operationMetrics": metrics}}
    log = log_of(tmp_path, '{"txn":{"appId":"q","version":5}}\n' + orjson.dumps(info).decode())
    assert log.changed_keys("q", 5, 3) == ChangedKeys(7, 2, 1)
    assert log.changed_keys("q", 4, 3) is None and log.changed_keys("other", 5, 3) is None
    assert log.changed_keys("q", 5, 4) is None


@pytest.mark.parametrize("metrics", [None, 7, {}, {"numTargetRowsInserted": "7"}])
def test_a_commit_of_others_has_no_changed_keys(tmp_path: Path, metrics: object) -> None:
    info = {"commitInfo": {"operationMetrics": metrics}}
    log = log_of(tmp_path, '{"txn":{"appId":"q","version":5}}\n' + orjson.dumps(info).decode())
    assert log.changed_keys("q", 5, 3) is None

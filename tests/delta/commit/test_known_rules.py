"""What tables of one query ask of their rows: looked up before a task decodes any, and compared at the commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.delta.committing import QUERY, offsets, planned, written
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.landing.data_files_readers import KnownRules
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_files import rules_text
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.table_rules import TableRules

POSITIVE = TableRules(checks=(("positive", "offset > 0"),))


def target(folder: Path, topic: str, *constraints: str) -> TableSpec:
    """A topic's table, made with its constraints."""
    route = Route(".*", f"{folder}/{{topic}}", f"{folder.as_uri()}/{{topic}}")
    found = Routing(TableSpec(""), (route,)).target(topic)
    create_table(found, found.schema, {})
    for number, text in enumerate(constraints):
        name = "positive" if not number else f"c{number}"
        DeltaTable(folder / topic).alter.add_constraint({name: text})
    return found


def test_only_rules_that_tasks_can_check_are_known(tmp_path: Path) -> None:
    ruled, plain = target(tmp_path, "ruled", "offset > 0"), target(tmp_path, "plain")
    odd = target(tmp_path, "odd", "md5(topic) <> 'x'")
    absent = replace(plain, uri=(tmp_path / "absent").as_uri())
    broken = replace(plain, uri=(tmp_path / "broken").as_uri())
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    (tmp_path / "broken" / "_delta_log" / f"{0:020}.json").write_text("{")
    known = KnownRules()
    assert known.of([ruled, plain, odd, absent, broken]) == {ruled.key: POSITIVE}
    # They are looked up once: what comes later, the commit tells.
    DeltaTable(tmp_path / "plain").alter.add_constraint({"positive": "offset > 0"})
    assert known.of([plain]) == {} and KnownRules().of([plain]) == {plain.key: POSITIVE}
    known.forget([plain.key])
    assert known.of([plain]) == {plain.key: POSITIVE}


def test_files_that_were_checked_by_other_rules_are_not_committed(tmp_path: Path) -> None:
    ruled = target(tmp_path, "ruled", "offset > 0")
    commits = TableCommits(replace(planned(ruled), rules=POSITIVE), lambda *_: None, rules_by_file=True)
    unchecked = written(ruled, 3, 1)
    with pytest.raises(TableError, match="constraints"):
        commits.commit(QUERY, 0, unchecked)
    commits.commit(QUERY, 0, [replace(file, rules=rules_text(POSITIVE)) for file in unchecked])
    assert offsets(ruled) == [1, 2, 3]

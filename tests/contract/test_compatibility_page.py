from __future__ import annotations

import pytest

from tests.contract.contract_rows import ROWS, Verdict
from tests.contract.proofs import PAGE, TABLES, marked, proofs
from tests.docs.docs_tables import with_table


def test_every_row_stands_there_once() -> None:
    keys = [row.key for row in ROWS]
    assert len(keys) == len(set(keys))


def test_every_row_has_a_test_or_a_reason_why_it_has_none() -> None:
    tested = proofs()
    assert [row.key for row in ROWS if row.verdict is Verdict.SAME and row.key not in tested] == []
    assert [row.key for row in ROWS if row.verdict is not Verdict.SAME and not row.why] == []


def test_what_is_different_on_purpose_is_tested_too() -> None:
    tested = proofs()
    assert [row.key for row in ROWS if row.verdict is Verdict.ON_PURPOSE and row.key not in tested] == []


def test_marks_name_rows_that_are_there() -> None:
    assert proofs().keys() - {row.key for row in ROWS} == set()


@pytest.mark.parametrize("name", TABLES)
def test_the_page_is_not_stale(name: str) -> None:
    text = PAGE.read_text("utf-8")
    assert text == with_table(text, name, TABLES[name]()), "write it anew with `python -m tests.contract`"


def test_a_row_loses_its_test_with_the_mark() -> None:
    proved = '@pytest.mark.contract("2.1", "2.2")\ndef test_it() -> None: ...\n'
    assert list(marked(proved)) == [("test_it", ["2.1", "2.2"])]
    assert list(marked(proved.replace("@", "# @"))) == []

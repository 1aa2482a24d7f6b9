"""Constraints whose meaning is certain."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tiered_stream.formats.rows.table_rules import RowRules, TableRules, UncertainCheckError, certain_rules, parse_check

NAN = float("nan")
ROWS = pa.RecordBatch.from_pydict(
    {
        "n": pa.array([1, 5, None, -3], pa.int32()),
        "x": pa.array([0.5, NAN, None, -1.0]),
        "f": pa.array([0.5, NAN, None, -1.0], pa.float32()),
        "s": ["a", "it", None, "zz"],
        "b": [True, False, None, True],
        "order": [1, 2, 3, 4],
        "d": pa.array([1, 2, 3, 4], pa.date32()),
        "t": pa.array([1, 2, 3, 4], pa.timestamp("us", tz="UTC")),
    }
)


def test_a_text_that_delta_writes_as_null_in_a_partition_column_breaks_a_rule() -> None:
    texts = pa.RecordBatch.from_pydict({"Land": ["de", "", None, " ", "__HIVE_DEFAULT_PARTITION__"]})
    rules = certain_rules(TableRules(partition_texts=("land", "gone")), texts.schema)
    assert rules
    _, broken = RowRules(rules, texts.schema).apply(texts)
    assert list(broken) == [1, 4]
    assert "partitioned by Land" in broken[1]


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        ("n > -4 AND n <= 1", [True, False, None, True]),
        ("N = 1 or n = -3", [True, False, None, True]),
        ("not (n between 0 and 2)", [False, True, None, True]),
        ("x < 100", [True, False, None, True]),
        ("s = 'it' or s = 'a'", [True, True, None, False]),
        ("`s` < 'b'", [True, False, None, False]),
        ("n > order", [False, True, None, False]),
        ("n IN (1, NULL)", [True, None, None, None]),
        ("d > '1970-01-03'", [False, False, True, True]),
        ("NULL", [None] * 4),
    ],
)
def test_checks_are_what_sql_says(check: str, passed: list[bool | None]) -> None:
    assert parse_check(check, ROWS.schema)[0](ROWS).to_pylist() == passed


@pytest.mark.parametrize(
    "check",
    [
        "", "n", "n >", "n > m", "n + 1 > 0", "s = 'it''s'", "s = 'a' 'b'", "s = 'a\\n'", 's = "a"', "s > 1", "n = 'a'",
        "n NOT 1", "n IS", "(n > 1", "n > 1)", "n > 1 AND", "a.b > 1", "n < 3000000000", "n > 99999999999999999999",
        "f < 99999999", "n > > 1", "n > ,", "(" * 60 + "n > 1" + ")" * 60, "n = 1 OR " * 2000 + "n = 1",
        "x < 1" + "0" * 400, "`n > 1", "n > 1; drop", "s rlike 'x'", "s = '${spark.app.name}'", "n = m = 1",
        "not n = 1 > 2", "n IN (1) = true", "CAST(s AS INT) > 1", "current_date() > d", "t > '2020-01-01 00:00:00'",
    ],
)  # fmt: skip
def test_what_is_not_certain_is_not_parsed(check: str) -> None:
    with pytest.raises(UncertainCheckError):
        parse_check(check, ROWS.schema)


def test_a_row_passes_where_a_check_is_true_and_not_where_it_is_null() -> None:
    rules = RowRules(TableRules(("s",), (("positive", "n > 0"),)), ROWS.schema)
    assert rules.apply(ROWS)[1] == {2: "the column s is NOT NULL", 3: "the constraint positive does not hold"}


def test_a_check_of_a_column_whose_value_is_not_known_breaks_no_row() -> None:
    texts = pa.RecordBatch.from_pydict({"Body": ["x", "x", "y"]})
    rules = RowRules(TableRules(checks=(("c", "body <> 'x'"),)), texts.schema)
    unavailable = pa.array([["body"], None, None], pa.list_(pa.string()))
    assert list(rules.apply(texts, unavailable)[1]) == [1]


def test_of_a_tables_rules_those_remain_that_can_be_asked_of_the_columns() -> None:
    rules = TableRules(("day", "n"), (("known", "n > 0"), ("other", "reverse(s) > 'a'"), ("absent", "gone > 0")))
    assert certain_rules(rules, ROWS.schema) == TableRules(("n",), (("known", "n > 0"),))

"""`ingest.select` and `ingest.where` on Arrow batches: names, types, and refusals."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.depth import examples
from tests.formats.sql.made_sql import COLUMNS, Expressions, parsed, rows, selected
from tiered_stream.delta.schema.row_plan import plan_rows, record_columns
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_steps import RowQuery
from tiered_stream.formats.sql.functions import FUNCTIONS
from tiered_stream.formats.sql.parser import MAX_DEPTH, MAX_LENGTH


def only(select: str, zone: str = "UTC", **values: Any) -> list[Any]:
    """The values of the only column that the select gives for one row."""
    row = pa.RecordBatch.from_pylist([dict.fromkeys(COLUMNS.names) | values], COLUMNS)
    return selected(select, row, zone).column(0).to_pylist()


@pytest.mark.parametrize(
    ("text", "given", "wanted"),
    [
        ("try_add(big, 1)", {"big": 2**63 - 1}, None),
        ("try_multiply(i, 2)", {"i": -(2**30)}, -(2**31)),
        ("d = e", {"d": float("nan"), "e": float("nan")}, True),
        ("d > e", {"d": float("nan"), "e": float("inf")}, True),
        ("upper(s)", {"s": "straße 😀"}, "STRASSE 😀"),
        ("upper(s)", {"s": "ɤ\u1c8a"}, "\ua7cb\u1c89"),
        ("lower(s)", {"s": "ΑΣ\u0897Α ΑΣ\u0897 İΣ\U00010d50"}, "ασ\u0897α ας\u0897 i\u0307σ\U00010d70"),
        ("substring(s, -2, 1)", {"s": "a😀b"}, "😀"),
        ("TRY_CAST(s AS INT)", {"s": "\t+0012 "}, 12),
        ("TRY_CAST(s AS INT)", {"s": "2147483648"}, None),
        ("TRY_CAST(s AS INT)", {"s": "\x7f7\x7f"}, 7),
        ("TRY_CAST(s AS INT)", {"s": "\x857"}, None),
        ("TRY_CAST(s AS BOOLEAN)", {"s": "true\x9f"}, None),
        ("day IN ('2024-02-29')", {"day": 19_782}, True),
        ("TRY_CAST(d AS BIGINT)", {"d": 2.0**63}, 2**63 - 1),
        ("TRY_CAST(m AS DECIMAL(5,1))", {"m": Decimal("-0.25")}, Decimal("-0.3")),
        ("year(day)", {"day": -719_529}, -1),
        ("unix_micros(timestamp_micros(coalesce(big, 0)))", {}, 0),
        ("unix_seconds(at)", {"at": -1}, -1),
        ("unix_seconds(TIMESTAMP '1970-01-01 18:00:00+18:00')", {}, 0),
        ("d <= 1.7976931348623157e308", {"d": 1e308}, True),
        ("b AND c", {"b": None, "c": False}, False),
        ("i NOT IN (1, NULL)", {"i": 2}, None),
        ("CASE i WHEN 1 THEN 'one' ELSE s END", {"i": None, "s": "else"}, "else"),
        ("nested.y", {"nested": {"y": "deep"}}, "deep"),
        ("s LIKE 'a_c%'", {"s": "a\nc."}, True),
        ("s = 'it''s'", {"s": "it's"}, True),
        ("f > 1", {"f": 1.5}, True),
        ("raw >= 'é'", {"raw": b"\xff"}, True),
        ("coalesce(d, 0) / 100", {}, 0.0),
        ("CAST(if(b, 0, -1) AS DOUBLE)", {"b": True}, 0.0),
        ("d * -1", {"d": 0.0}, -0.0),
        ("substr(s, -2147483648)", {"s": "abc"}, "ab"),
        ("substr(s, -2147483648, 2147483647)", {"s": "abc"}, "ab"),
        ("substr(s, -2147483647)", {"s": "abc"}, "abc"),
        ("if(`as`, `all`, 0)", {"all": 7, "as": True}, 7),
    ],
)
def test_a_function_gives_what_spark_gives_at_its_edges(text: str, given: dict[str, Any], wanted: Any) -> None:
    assert only(f"{text} AS x", **given) == [wanted]


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("foo(i) AS x", "the function foo is not on the list"),
        ("sum(i) OVER () AS x", "the function sum"),
        ("length(s) OVER (PARTITION BY i) AS x", r"'\('"),
        ("(SELECT 1) AS x", "'SELECT'"),
        ("nested.*", r"'\*'"),
        ("i; DROP TABLE x", "'; DROP TABLE x'"),
        ("i FROM t", "'FROM'"),
        ("s LIKE 'a' ESCAPE '/' AS x", "'ESCAPE'"),
        ("s 'b'", "b'\" is not expected"),
        ("'a' 'b' AS x", "b'\" is not expected"),
        ("b !> c AS x", "'!'"),
        ("b = NOT c AS x", "'NOT'"),
        ("abs(all -d) AS x", "'all'"),
        ("as AS x", "'as'"),
        ("user", "'user'"),
        ("größe AS x", "'größe AS x'"),
        ("'${spark.app.name}' AS x", "variable"),
        ("i +", "ends too soon"),
        ("i,", "ends too soon"),
        ("1e3L AS x", "'1e3L AS x'"),
        ("2F AS x", "'2F AS x'"),
        ("f + 1 AS x", "CAST one to DOUBLE"),
        ("try_add(f, 1) AS x", "CAST one to DOUBLE"),
        ("substring(s, 5L) AS x", "BIGINT"),
        ("-0.0D AS x", r"-0\.0"),
        ("try_divide(0, if(b, -5, 5)) AS x", r"-0\.0"),
        ("if(b, 0.0D, -(0e0)) AS x", r"-0\.0"),
        ("if(b, 0.0D, TRY_CAST('-0' AS DOUBLE)) AS x", r"-0\.0"),
        ("i AS x -- all", "comment"),
        ("i --1 AS x", "comment"),
        ('"i" AS x', "double quotes"),
        (r"'a\n' AS x", "backslash"),
        ("raw IN ('a') AS x", "IN does not compare BINARY"),
        ("i", "gives two columns"),
        ("nothing", "no column nothing"),
        ("nested.nothing", "no field nothing"),
        ("i.x", "only a STRUCT has fields"),
        ("i + 1 AS x", "can overflow: use try_add"),
        ("try_add(try_add(i, j), 1) AS x", "in another order"),
        ("try_add(coalesce(NULL, try_add(i, j)), 1) AS x", "in another order"),
        ("to_date(timestamp_micros(-9223372036854775808)) AS x", "a constant far away"),
        ("timestamp_micros(coalesce(big, try_add(9223372036854775800, 7L))) AS x", "a constant far away"),
        ("lower(upper(s)) AS x", "lower over upper"),
        ("upper(if(TRUE, t, CAST(upper(s) AS STRING))) AS x", "upper over upper"),
        ("i / j AS x", "use try_divide"),
        ("CAST(s AS INT) AS x", "use TRY_CAST"),
        ("CAST(raw AS STRING) AS x", "not on the list"),
        ("lower(raw) AS x", "the format string"),
        ("i AS x, big = s AS y", "give both one type"),
        ("i + 1", "add AS and a name"),
        ("NULL AS x", r"CAST\(NULL AS"),
        ("if(b, i) AS x", "2 arguments"),
        ("small BETWEEN 12345678901234567890.5 AND tiny AS x", "cannot reach"),
        ("i < 1e300 AS x", "cannot reach"),
        ("nullif(i, s) AS x", "nullif has INT and STRING"),
        ("i BETWEEN 1 AND s AS x", "BETWEEN has INT and STRING"),
        ("at IN ('2024-01-01 00:00:00Z') AS x", "write TIMESTAMP"),
        ("NOT " * (MAX_DEPTH + 5) + "b AS x", "levels deep"),
        ("i" * (MAX_LENGTH + 1), "characters"),
        ("CAST(i AS INTERVAL) AS x", "the type INTERVAL is not on the list"),
        ("DATE '2024-02-30' AS x", "no literal of the form"),
        ("1" * 5000 + " AS x", "1,000 characters"),
        ("timestamp_micros(" + "1" * 5000 + ") AS x", "1,000 characters"),
        ("CAST(i AS DECIMAL(" + "1" * 5000 + ")) AS x", "1,000 characters"),
        ("1e999 AS x", "'1E999'"),
        ("-1e999D AS x", "'1E999D'"),
        ("TIMESTAMP '2024-01-01 00:00:00+18:01' AS x", r"\+18:01'"),
        ("TIMESTAMP '2024-01-01 00:00:00-23:59' AS x", "-23:59'"),
        ("TIMESTAMP '2024-01-01 00:00:00+05:60' AS x", r"\+05:60'"),
        ("TIMESTAMP '2024-01-01 24:00:00Z' AS x", "24:00:00Z'"),
    ],
)
def test_what_is_not_on_the_list_is_refused_by_name(select: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        only(f"i, {select}" if select == "i" else select)


@pytest.mark.parametrize(
    "word",
    [
        "current_catalog", "current_database", "current_date", "current_path", "current_role", "current_schema",
        "current_time", "current_timestamp", "Current_User", "localtime", "localtimestamp", "session_user",
        "system_user", "user",
    ],
)  # fmt: skip
def test_a_word_that_may_be_a_call_for_spark_is_a_column_only_in_back_quotes(word: str) -> None:
    row = pa.RecordBatch.from_pylist([{word: 7}])
    assert selected(f"`{word}` AS x", row, "UTC").column(0).to_pylist() == [7]
    with pytest.raises(ConfigurationError, match=f"'{word}' is not expected. Write a name in back quotes"):
        selected(f"{word} AS x", row, "UTC")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a = b LIKE 'x%'", "(a = b) LIKE 'x%'"), ("b = c < d", "(b = c) < d"), ("b <> c IN (d)", "(b <> c) IN (d)"),
        ("NOT b = c < c", "NOT ((b = c) < c)"), ("!a = b", "NOT (a = b)"), ("a = b IS NULL", "(a = b) IS NULL"),
        ("a BETWEEN b AND c = d", "a BETWEEN b AND (c = d)"), ("a IS DISTINCT FROM b = c", "NOT (a <=> (b = c))"),
        ("NOT a BETWEEN 1 AND 2 AND b OR c", "((NOT (a BETWEEN 1 AND 2)) AND b) OR c"),
        ("-a * b - c", "((-a) * b) - c"),
        ("a || b + c = d", "((a || b) + c) = d"), ("a - b % 2 || c", "(a - (b % 2)) || c"), ("-a::int", "-(a::int)"),
        ("-1::bigint", "CAST((-1) AS BIGINT)"), ("a -1", "a - (1)"), ("a LIKE b || '%'", "a LIKE (b || '%')"),
        ("CASE WHEN a THEN b = c END", "CASE WHEN (a) THEN (b = c) END"), ("a = -b < c", "(a = (-b)) < c"),
    ],
)  # fmt: skip
def test_operators_bind_as_in_spark(text: str, meant: str) -> None:
    assert parsed(None, text).where == parsed(None, meant).where


@pytest.mark.parametrize("text", ["hour(at)", "CAST(at AS DATE)", "TIMESTAMP '2024-01-01'", "at > '2024-01-01'"])
def test_times_that_depend_on_the_sessions_zone_are_refused(text: str) -> None:
    assert only(f"{text} AS x", at=0)
    with pytest.raises(ConfigurationError, match="time zone"):
        only(f"{text} AS x", zone="Europe/Berlin", at=0)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(examples(40)))
def test_no_listed_expression_fails_for_any_values(seed: int) -> None:
    random = Random(seed)
    batch = rows(random, 30)
    for _ in range(50):
        text = Expressions(random).some()
        try:
            query = RowQuery(parsed(f"{text} AS x"), COLUMNS, "UTC")
        except ConfigurationError:
            continue
        assert selected(f"{text} AS x", batch).column(0).type == query.output.field(0).type, text


def test_a_star_stands_for_all_columns_also_for_new_ones() -> None:
    whole = pa.RecordBatch.from_pylist([dict.fromkeys(COLUMNS.names)], COLUMNS)
    found = selected("*, i AS k", whole.append_column("grown", pa.array(["new"])), columns=COLUMNS)
    assert found.schema.names[: len(COLUMNS) + 2] == [*COLUMNS.names, "grown", "k"]


def test_columns_of_the_record_are_found_under_the_names_that_select_gives() -> None:
    select = "O AS place, upper(topic) AS topic, key"
    given = {"ingest.kafkaColumns": "key, offset as o, topic", "ingest.select": select}
    assert record_columns(table_spec(given)) == {"key": "key", "offset": "place"}
    assert record_columns(table_spec({**given, "ingest.select": "*"})) == {
        "key": "key",
        "offset": "o",
        "topic": "topic",
    }


def test_plain_records_are_selected_without_a_format() -> None:
    rows = plan_rows(
        table_spec({"ingest.select": "topic, length(value) AS size", "ingest.where": "partition = 0"}), False
    )
    assert (rows.written.names, rows.is_plain) == (["topic", "size"], False)


def test_each_function_of_the_list_is_in_a_made_expression() -> None:
    calls = {name for name, function in FUNCTIONS.items() if f"`{name}(" in function.forms}
    missing = calls - {"isnull", "isnotnull", "ifnull"}
    for seed in range(1500):
        text = Expressions(Random(seed)).some().lower()
        missing = {name for name in missing if f"{name}(" not in text}
        if not missing:
            break
    assert missing == set()

"""Records to rows and dead letters."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.delta.made_batches import decoded
from tests.rigs.stack.rows import Record
from tiered_stream.errors import ConfigurationError, TableError, UndecodableRecordError
from tiered_stream.formats.columns import decoded as decoded_values
from tiered_stream.formats.row_decoder import DecodedRows, RowDecoder
from tiered_stream.formats.rows.kafka_columns import FIRST_OFFSET, find_column, kafka_column, table_columns
from tiered_stream.formats.rows.row_choices import Format, OnDecodeError
from tiered_stream.formats.rows.row_format import DEAD_LETTER_SCHEMA, PartFormat, RowFormat, plain_rows, schema_to_text
from tiered_stream.formats.rows.row_steps import RowQuery
from tiered_stream.formats.rows.table_rules import TableRules, TextLimit
from tiered_stream.formats.sql.parser import parse_query
from tiered_stream.records.arrow import record_schema

TEXT = PartFormat(Format.STRING, kind=pa.string())
KEPT = (("offset", "kafka_offset"),)
DEAD = OnDecodeError.DEAD_LETTER


def upper(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "value", pa.compute.utf8_upper(batch.column("value")))


def without_first(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


def fickle(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch if batch.num_rows == 0 else batch.select([])


def without_b(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.not_equal(batch.column("value"), "b"))


def only_a(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("value"), "a"))


def thrice(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch, batch])


def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise RuntimeError("not today")


def records(*values: bytes | None) -> pa.RecordBatch:
    return decoded([Record(b"k", value) for value in values], 10)


def decode(*values: bytes | None, kept: tuple[tuple[str, str], ...] = KEPT, **given: Any) -> DecodedRows:
    """Decode values of texts that are at the offsets from 10 on."""
    return RowDecoder(RowFormat(kept, value=TEXT, **given)).decode(records(*values))


def test_what_decodes_is_a_row_and_what_does_not_a_dead_letter_with_its_reason() -> None:
    found = decode(b"a", b"b\xff", None, b"d", on_error=DEAD)
    assert found.rows.select(["value", "kafka_offset"]).to_pydict() == {
        "value": ["a", None, "d"],
        "kafka_offset": [10, 12, 13],
    }
    assert found.dead is not None and found.dead.schema.equals(DEAD_LETTER_SCHEMA)
    (letter,) = found.dead.to_pylist()
    assert (letter["key"], letter["value"], letter["topic"], letter["offset"]) == (b"k", b"b\xff", "orders", 11)
    assert (letter["failed"], letter["reason"]) == ("value", "not UTF-8: invalid start byte at byte 1")


def test_a_record_that_may_not_be_left_out_is_named_but_its_value_is_not() -> None:
    with pytest.raises(UndecodableRecordError) as raised:
        decode(b"a", b"secret\xff")
    assert "value of topic orders, partition 3, offset 11: not UTF-8" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_does_not_decode_may_become_null() -> None:
    found = decode(b"a", b"\xff", on_error=OnDecodeError.NULL)
    assert found.dead is None
    assert found.rows.column("value").to_pylist() == ["a", None]


def test_kafkas_columns_are_found_under_any_name_and_hidden_where_the_table_has_none() -> None:
    kept = decode(b"a").rows
    hidden = decode(b"a", kept=()).rows
    for rows in kept, hidden:
        assert kafka_column(rows, "offset").to_pylist() == [10]
        assert kafka_column(rows, "timestamp").type == pa.timestamp("us", tz="UTC")
    assert find_column(hidden.schema, "topic") == -1
    assert RowFormat((), value=TEXT).written.names == ["value"]
    assert RowFormat(KEPT, key=TEXT, value=TEXT).written.names == ["key", "value", "kafka_offset"]


def test_rows_that_break_a_rule_of_the_table_go_the_way_of_what_does_not_decode() -> None:
    rules = TableRules(("value",), (("short", "kafka_offset < 12"),))
    found = decode(b"\xff", None, b"c", b"d", on_error=DEAD, rules=rules)
    assert found.rows.num_rows == 0 and found.dead is not None
    assert found.dead.select(["offset", "failed", "reason"]).to_pydict() == {
        "offset": [10, 11, 12, 13],
        "failed": ["value", "row", "row", "row"],
        "reason": [
            "not UTF-8: invalid start byte at byte 0", "the column value is NOT NULL",
            "the constraint short does not hold", "the constraint short does not hold",
        ],
    }  # fmt: skip
    with pytest.raises(UndecodableRecordError, match=r"topic orders, .* offset 11: .*value is NOT NULL"):
        decode(b"a", None, rules=rules)


def measured(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"v": batch.column("value"), "size": pc.utf8_length(batch.column("value"))})


def queried(select: str | None, where: str | None = None) -> RowFormat:
    plain = RowFormat(KEPT, value=TEXT, query=parse_query(select, where))
    assert plain.query is not None
    return replace(plain, selected=RowQuery(plain.query, plain.decoded, "UTC").output if select else None)


BY_FUNCTION = RowFormat(
    KEPT,
    value=TEXT,
    transform=f"{__name__}:measured",
    transformed=pa.schema([("v", pa.string()), ("size", pa.int32())]),
)
CHANGED = [queried("value AS v, length(value) AS size"), queried("value AS v, length(value) AS size", "value = 'a'")]


@pytest.mark.parametrize("changed", [*CHANGED, BY_FUNCTION])
@pytest.mark.parametrize(
    "rules",
    [
        TableRules(not_null=("size",)), TableRules(checks=(("long", "size > 3"),)),
        TableRules(text_limits=(TextLimit(("v",), 2, False),)), TableRules(),
    ],
)  # fmt: skip
def test_a_batch_of_dead_letters_alone_has_the_tables_columns_and_no_rows(
    changed: RowFormat, rules: TableRules
) -> None:
    decoder = RowDecoder(replace(changed, on_error=DEAD, rules=rules))
    found = decoder.decode(records(b"\xff", b"\xfe"))
    assert found.dead is not None and found.dead.num_rows == 2
    assert (table_columns(found.rows.schema).names, found.rows.num_rows) == (["v", "size"], 0)
    assert kafka_column(found.rows, "offset").to_pylist() == []


def test_rows_keep_their_offsets_and_left_out_records_are_counted() -> None:
    how = replace(queried("upper(value) AS v, kafka_offset AS o", "value <> 'b'"), on_error=DEAD)
    found = RowDecoder(pickle.loads(pickle.dumps(how))).decode(records(b"a", b"b", b"\xff", b"d", None))
    assert found.rows.select(["v", "o"]).to_pydict() == {"v": ["A", "D"], "o": [10, 13]}
    assert find_column(found.rows.schema, "offset") == 1
    assert kafka_column(found.rows, "timestamp").type == pa.timestamp("us", tz="UTC")
    assert found.filtered == 2  # a null does not meet a condition
    assert found.dead is not None and found.dead.column("offset").to_pylist() == [12]


def test_offsets_are_hidden_where_nothing_selects_them() -> None:
    how = queried("value")
    assert kafka_column(RowDecoder(how).decode(records(b"a")).rows, "offset").to_pylist() == [10]
    assert how.written.names == ["value"]


def test_a_batch_whose_rows_are_all_left_out_has_the_tables_columns() -> None:
    rules = TableRules(not_null=("size",))
    found = RowDecoder(replace(CHANGED[1], on_error=DEAD, rules=rules)).decode(records(b"b", b"\xff"))
    assert (table_columns(found.rows.schema).names, found.filtered) == (["v", "size"], 1)


def transformed(function: str) -> RowFormat:
    name = f"{__name__}:{function}"
    return RowFormat(KEPT, value=TEXT, transform=name, transformed=RowFormat(KEPT, value=TEXT).decoded)


@pytest.mark.parametrize(
    ("function", "kept", "first", "last"),
    [
        ("upper", ["A", "B", "C"], [10, 11, 12], [10, 11, 12]), ("without_first", ["b", "c"], [10, 10], [10, 12]),
        ("without_b", ["a", "c"], [10, 10], [10, 12]), ("only_a", ["a"], [10], [12]),
    ],
)  # fmt: skip
def test_rows_of_the_users_function_stand_for_all_records(
    function: str, kept: list[str], first: list[int], last: list[int]
) -> None:
    rows = RowDecoder(transformed(function)).decode(records(b"a", b"b", b"c")).rows
    assert rows.column("value").to_pylist() == kept
    assert [kafka_column(rows, name).to_pylist() for name in (FIRST_OFFSET, "offset")] == [first, last]


@pytest.mark.parametrize(
    ("function", "values", "kept", "dead"),
    [
        ("without_b", b"abcd", "ad", [12]), ("without_b", b"bcab", "a", [11]), ("without_b", b"cc", "", [10, 11]),
        ("without_b", b"bb", "", []), ("thrice", b"acd", "aaaddd", [11]), ("without_b", b"a\xffbc", "a", [11, 13]),
    ],
)  # fmt: skip
def test_a_row_that_breaks_a_rule_is_the_dead_letter_of_its_record_also_if_the_function_changes_the_number_of_rows(
    function: str, values: bytes, kept: str, dead: list[int]
) -> None:
    how = replace(transformed(function), on_error=DEAD, rules=TableRules(checks=(("no_c", "value <> 'c'"),)))
    found = RowDecoder(how).decode(records(*(bytes([value]) for value in values)))
    assert sorted(found.rows.column("value").to_pylist()) == sorted(kept)
    assert ([] if found.dead is None else found.dead.column("offset").to_pylist()) == dead
    assert set(kafka_column(found.rows, "offset").to_pylist()).isdisjoint(dead)


@pytest.mark.parametrize(
    ("function", "said"), [("fickle", "gave , but of a batch without rows"), ("failing", "not today")]
)
def test_a_function_that_fails_or_breaks_its_promise_is_named(function: str, said: str) -> None:
    with pytest.raises(TableError, match=f"{function}.*{said}"):
        RowDecoder(transformed(function)).decode(records(b"a"))


def test_a_function_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"the function no\.such:thing "):
        RowDecoder(RowFormat(KEPT, transform="no.such:thing"))


def test_a_text_is_padded_in_its_row_and_too_long_a_one_is_a_dead_letter_or_an_error() -> None:
    rules = TableRules(text_limits=(TextLimit(("value",), 2, True),))
    found = decode(b"a", b"abc", None, b"ab", on_error=DEAD, rules=rules)
    assert found.rows.select(["value", "kafka_offset"]).to_pydict() == {
        "value": ["a ", None, "ab"],
        "kafka_offset": [10, 12, 13],
    }
    assert found.dead is not None
    told = [
        (letter["offset"], letter["failed"], letter["reason"], letter["value"]) for letter in found.dead.to_pylist()
    ]
    assert told == [(11, "row", "value is CHAR(2), and the value has more characters", b"abc")]
    for asked in (OnDecodeError.FAIL, OnDecodeError.NULL):
        with pytest.raises(UndecodableRecordError, match=r"offset 11: value is CHAR\(2\)") as raised:
            decode(b"a", b"abc", on_error=asked, rules=rules)
        assert "abc" not in str(raised.value)


def test_what_rows_are_travels_as_text_without_the_registrys_password() -> None:
    schema = pa.schema([("a", pa.decimal128(10, 2)), ("b", pa.list_(pa.field("element", pa.int32())))])
    how = RowFormat(
        KEPT, TEXT, PartFormat(Format.JSON, "s", "m", True, pa.struct(list(schema))), "v", DEAD, transform="a:b",
        transformed=schema, registry={"basic.auth.user.info": "u:p"},
        rules=TableRules(("a",), (("n", "b > 1"),), (("b", "element"),), (TextLimit(("c", "key"), 3, True),)),
    )  # fmt: skip
    assert "u:p" not in repr(how)
    assert pickle.loads(pickle.dumps(how)) == how


def test_records_as_they_are_are_plain() -> None:
    for include_headers in (True, False):
        plain = plain_rows(include_headers)
        assert plain.is_plain
        assert plain.written.names == record_schema(include_headers).names
    assert not RowFormat(KEPT).is_plain and not RowFormat((), value=TEXT).is_plain


WIDE = pa.struct([("x", pa.list_(pa.field("element", pa.struct([(f"f{at}", pa.int64()) for at in range(50)]))))])


@pytest.mark.parametrize("texts", [b"{}", b'{"f1":1,"\\u0041":2}'], ids=["by kernels", "by Python"])
def test_rows_that_need_much_memory_are_decoded_in_parts(texts: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"x":[' + b",".join([texts] * size) + b"]}" for size in (1, 1000, 3, 1000, 1000, 0, 5)]
    values.insert(3, b"{")
    how = RowFormat(
        KEPT, value=PartFormat(Format.JSON, schema_to_text(pa.schema(list(WIDE))), kind=WIDE), on_error=DEAD
    )
    whole = RowDecoder(how).decode(records(*values))
    monkeypatch.setattr(decoded_values, "MAX_BATCH_MEMORY", 600_000)  # a row of 1,000 structs takes 400,000
    parts = list(RowDecoder(how).decode_parts(records(*values)))
    assert len(parts) > 1
    assert pa.concat_batches([part for part, _ in parts]).equals(records(*values))
    assert pa.concat_batches([found.rows for _, found in parts]).equals(whole.rows)
    assert [found.dead for _, found in parts if found.dead] == [whole.dead]
    assert all(part.num_rows == 1 or found.rows.nbytes <= 600_000 for part, found in parts)


def test_a_document_for_python_that_takes_too_much_memory_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_values, "MAX_MEMORY", 1 << 20)
    huge = b'{"x":[' + b",".join([b'{"\\u0041":1}'] * 10_000) + b"]}"
    how = RowFormat(
        KEPT, value=PartFormat(Format.JSON, schema_to_text(pa.schema(list(WIDE))), kind=WIDE), on_error=DEAD
    )
    found = RowDecoder(how).decode(records(huge, b'{"x":[{"\\u0041":1}]}'))
    assert found.dead is not None and found.dead["reason"].to_pylist() == [decoded_values.TOO_LARGE]
    assert found.rows["kafka_offset"].to_pylist() == [11]


def test_one_large_row_does_not_make_the_others_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"x":[' + b",".join([b"{}"] * 2000) + b"]}", *[b'{"x":[{}]}'] * 500]
    how = RowFormat(KEPT, value=PartFormat(Format.JSON, schema_to_text(pa.schema(list(WIDE))), kind=WIDE))
    monkeypatch.setattr(decoded_values, "MAX_BATCH_MEMORY", 600_000)
    sizes = [part.num_rows for part, _ in RowDecoder(how).decode_parts(records(*values))]
    assert sum(sizes) == 501 and len(sizes) < 10


def test_booleans_count_by_the_memory_that_their_kernels_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = pa.struct([("x", pa.list_(pa.field("element", pa.struct([(f"f{at}", pa.bool_()) for at in range(50)]))))])
    value = b'{"x":[' + b",".join([b"{}"] * 1000) + b"]}"  # 100,000 bytes in the kernels' columns, 12,500 in Arrow's
    how = RowFormat(KEPT, value=PartFormat(Format.JSON, schema_to_text(pa.schema(list(flags))), kind=flags))
    monkeypatch.setattr(decoded_values, "MAX_BATCH_MEMORY", 150_000)
    assert [part.num_rows for part, _ in RowDecoder(how).decode_parts(records(value, value))] == [1, 1]

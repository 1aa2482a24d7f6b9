"""Columns of any nesting come out as they were written, however little room there was at first."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.errors import UnsupportedDataError
from tiered_stream.formats.columns import column_builder, column_kernels
from tiered_stream.formats.columns.column_builder import ColumnBuilder, Columns

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SIMPLE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    pa.binary(): st.binary(max_size=40),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.decimal128(38, 4): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda number: decimal.Decimal(number).scaleb(-4, decimal.Context(prec=38))
    ),
    pa.null(): st.none(),
}


@st.composite
def kinds(draw: st.DrawFn, depth: int = 3) -> pa.DataType:
    below = kinds(depth - 1)
    way = draw(st.sampled_from(["simple", "simple", "list", "map", "struct"] if depth else ["simple"]))
    if way == "list":
        return pa.list_(pa.field("element", draw(below)))
    if way == "map":
        return pa.map_(pa.string(), draw(below))
    if way == "struct":
        return pa.struct([(f"f{at}", draw(below)) for at in range(draw(st.integers(0, 3)))])
    return draw(st.sampled_from(list(SIMPLE)))


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        return st.none() | st.lists(values(kind.value_type), max_size=4)
    if pa.types.is_map(kind):
        return st.none() | st.lists(st.tuples(SIMPLE[pa.string()], values(kind.item_type)), max_size=4)
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    return st.none() | SIMPLE[kind]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.StructType, list[Any]]:
    kind = pa.struct([(f"f{at}", draw(kinds())) for at in range(draw(st.integers(1, 4)))])
    return kind, draw(st.lists(values(kind), max_size=8))


def append(builder: ColumnBuilder, columns: Columns, node: int, value: Any) -> bool:
    """As a format's kernel does it."""
    kind, kernels = builder.fields[node][0].type, column_kernels
    if value is None:
        return bool(kernels.append_null(columns, node))
    match int(columns[0][node, kernels.KIND]):
        case kernels.BOOL:
            return bool(kernels.append_bool(columns, node, value))
        case kernels.LONG:
            return bool(
                kernels.append_long(
                    columns,
                    node,
                    pa.scalar(value, kind).cast(pa.int64()).as_py()
                    if not pa.types.is_date32(kind)
                    else (value - EPOCH.date()).days,
                )
            )
        case kernels.DOUBLE:
            return bool(kernels.append_double(columns, node, float(value)))
        case kernels.DECIMAL:
            high, low = divmod(int(value.scaleb(kind.scale, decimal.Context(prec=60))), 1 << 64)
            return bool(kernels.append_decimal(columns, node, high, np.uint64(low)))
        case kernels.BYTES:
            data = value.encode() if isinstance(value, str) else value
            return bool(kernels.append_bytes(columns, node, np.frombuffer(data, np.uint8), 0, len(data)))
        case kernels.STRUCT:
            below = [value[field.name] for field in kind]
            nodes = list(builder.children(node))
            return bool(kernels.append_struct(columns, node)) and all(
                append(builder, columns, child, each) for child, each in zip(nodes, below, strict=True)
            )
    entries = [{"key": each[0], "value": each[1]} if pa.types.is_map(kind) else each for each in value]
    return all(append(builder, columns, node + 1, each) for each in entries) and bool(
        kernels.append_list(columns, node)
    )


def written(kind: pa.StructType, rows: list[Any]) -> tuple[pa.Array, list[int]]:
    builder = ColumnBuilder(kind)

    def write(columns: Columns, row: int) -> int:
        while row < len(rows):
            before = int(columns[0][0, column_kernels.SLOTS])
            if not append(builder, columns, 0, rows[row]):
                column_kernels.truncate(columns, before)
                break
            row += 1
        return row

    return builder.build(len(rows), write)


@given(tables())
def test_any_rows_of_any_schema_come_out_as_they_were_written(table: tuple[pa.StructType, list[Any]]) -> None:
    kind, rows = table
    column, too_large = written(kind, rows)
    column.validate(full=True)
    assert (column.type, too_large) == (kind, [])
    assert column.equals(pa.array(rows, kind))


def test_room_is_made_for_rows_that_take_more_than_those_before() -> None:
    kind = pa.struct([("text", pa.string()), ("numbers", pa.list_(pa.int64()))])
    rows = [{"text": "x" * size, "numbers": list(range(size))} for size in (0, 1, 100_000, 3, 9_000, 2, 0)]
    assert written(kind, rows)[0].to_pylist() == rows


def test_a_row_that_takes_too_much_memory_is_null_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_builder, "MAX_MEMORY", 1 << 20)
    kind = pa.struct([("text", pa.string())])
    rows = [{"text": "x" * size} for size in (1, 1 << 20, 500_000, 2)]
    column, too_large = written(kind, rows)
    assert too_large == [1]
    assert column.to_pylist() == [rows[0], None, *rows[2:]]


def test_no_rows_are_an_empty_column() -> None:
    kind = pa.struct([("map", pa.map_(pa.string(), pa.int8()))])
    column, too_large = written(kind, [])
    assert (len(column), column.type, too_large) == (0, kind, [])


def test_a_type_that_no_kernel_writes_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedDataError, match="uint8"):
        ColumnBuilder(pa.struct([("a", pa.uint8())]))

"""Row hashes and their sums by buckets: as a plain sum over the rows gives them, however the rows are shared out."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.archives import planned
from tests.delta.archive import ODD, everything, options
from tiered_stream.options.parsing import parse_options
from tiered_stream.records.row_hash import BUCKET, HASHED, Numbers, bucket_sums, row_hashes
from tiered_stream.verification import sums_source
from tiered_stream.verification.sums_source import ROW_HASHES, SUMS, split_hashes, split_sums

Sums = dict[int, tuple[int, int, int]]
ROWS = st.dictionaries(st.integers(0, 5 * BUCKET) | st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1))


def plain(rows: dict[int, int]) -> Sums:
    found: dict[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for offset, number in rows.items():
        count, high, low = found[offset // BUCKET]
        unsigned = number % 2**64
        found[offset // BUCKET] = count + 1, high + unsigned // 2**32, low + unsigned % 2**32
    return dict(found)


def added(parts: list[tuple[Numbers, ...]]) -> Sums:
    found: dict[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for part in parts:
        for bucket, *figures in zip(*(column.tolist() for column in part), strict=True):
            one, two, three = (a + b for a, b in zip(found[bucket], figures, strict=True))
            found[bucket] = one, two, three
    return dict(found)


@given(ROWS, st.lists(st.integers(0, 40), max_size=5))
def test_sums_add_up_wherever_the_rows_are_cut(rows: dict[int, int], cuts: list[int]) -> None:
    ordered = sorted(rows)
    offsets, hashes = np.array(ordered, np.int64), np.array([rows[each] for each in ordered], np.int64)
    edges = sorted(cuts)
    pieces = zip(np.split(offsets, edges), np.split(hashes, edges), strict=True)
    parts = [bucket_sums(*piece) for piece in pieces]
    assert added(parts) == plain(rows)


@pytest.mark.parametrize("columns", [HASHED, ("timestamp", "value")])
def test_tasks_give_the_hashes_of_all_rows_and_their_sums(
    columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums_source, "BATCH_ROWS", 100)
    wanted = everything(ODD).combine_chunks().to_batches()[0]
    settings = options(ODD, {"minPartitions": "9", "columns": ",".join(("topic", "partition", "offset", *columns))})
    parsed = parse_options(settings, streaming=False)
    sums = pa.Table.from_batches([rows for split in planned(settings) for rows in split_sums(split, parsed)])
    assert sums.column_names == list(SUMS)
    assert set(sums["topic"].to_pylist()) == set(wanted["topic"].to_pylist())
    assert set(sums["bucket"].to_pylist()) == {offset // BUCKET for offset in wanted["offset"].to_pylist()}

    in_all = sums.group_by("topic").aggregate([("records", "sum"), ("low", "sum"), ("high", "sum")])
    hashes = row_hashes(wanted, columns)
    assert sum(in_all["records_sum"].to_pylist()) == wanted.num_rows
    assert sum(in_all["low_sum"].to_pylist()) == sum(each % 2**32 for each in hashes.tolist())
    assert sum(in_all["high_sum"].to_pylist()) == sum(each % 2**64 // 2**32 for each in hashes.tolist())

    rows = pa.Table.from_batches([rows for split in planned(settings) for rows in split_hashes(split, parsed)])
    assert rows.column_names == list(ROW_HASHES)
    order = [(name, "ascending") for name in ROW_HASHES[:3]]
    hashed = wanted.select(ROW_HASHES[:3]).append_column("hash", pa.array(hashes))
    assert rows.sort_by(order).to_pydict() == hashed.sort_by(order).to_pydict()

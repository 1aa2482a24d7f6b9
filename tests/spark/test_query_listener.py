from __future__ import annotations

import io
from dataclasses import replace

from tests.cli.test_watch_command import batch
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.spark.query_listener import BatchLines


def ended(*, json: bool) -> list[str]:
    out = io.StringIO()
    lines = BatchLines(json=json, out=out)
    made = replace(batch("orders", 1, lag=0), tables=(LandedRows("bronze", 1498, 2, "dead"),))
    for number in (1, 2):
        lines.add(replace(made, batch_id=number))
    lines.ended(made.query_id)
    lines.ended("another query")
    return out.getvalue().splitlines()


def test_an_ended_query_has_one_more_line_with_its_sum() -> None:
    *batches, summed = ended(json=False)
    assert [line.split(", ")[:3] for line in batches] == [
        [f"orders: batch {number}: 1,500 rows read", "1,498 rows landed", "2 dead letters in dead"] for number in (1, 2)
    ]
    assert summed.startswith("orders: in all 3,000 rows read, 2,996 rows landed, 4 dead letters in dead, 6.0 MiB from")


def test_json_lines_have_micro_batches_alone() -> None:
    assert len(ended(json=True)) == 2

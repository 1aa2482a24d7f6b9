"""The prices of requests in the documentation are those that the code's sizes and prices give."""

from __future__ import annotations

import pytest

from tests.docs.docs_tables import DOCS
from tiered_stream.options.remote_options import REQUEST_BYTES
from tiered_stream.plan.read_cost import Prices

PAGE = (DOCS / "guides" / "inspect.md").read_text("utf-8")


@pytest.mark.parametrize(("times", "row"), [(1, "| 8 MiB, "), (1 / 4, "| 2 MiB, "), (2, "| 16 MiB, ")])
def test_a_tib_takes_the_requests_that_the_page_names(times: float, row: str) -> None:
    size = int(REQUEST_BYTES.default * times)
    gets = (1 << 40) // size
    (line,) = [line for line in PAGE.splitlines() if line.startswith(row)]
    assert f"{size >> 20} MiB" in line
    assert f"| {gets:,} | ${gets * Prices().per_1000_gets / 1000:.2f} |" in line


def test_the_page_names_the_price_and_its_day() -> None:
    text = " ".join(PAGE.split())
    assert f"${Prices().per_1000_gets} for 1,000 GETs" in text
    assert Prices().as_of.split(" for ")[0] in text

from __future__ import annotations

import pytest

from tiered_stream.cli.readme_tables import README, tables


@pytest.mark.parametrize("name", tables())
def test_the_readme_holds_exactly_the_table(name: str) -> None:
    between = README.read_text("utf-8").partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0]
    assert between == tables()[name], "write it anew with `python -m tiered_stream.cli.readme_tables`"

from __future__ import annotations

import pytest

from tests.docs.docs_tables import DOCS, tables, with_table


@pytest.mark.parametrize("page,name", tables())
def test_the_page_holds_exactly_the_table(page: str, name: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert text == with_table(text, name, tables()[page, name]), "write it anew with `python -m tests.docs.docs_tables`"

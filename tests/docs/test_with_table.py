from __future__ import annotations

import pytest

from tests.docs.docs_tables import with_table


def test_a_new_table_keeps_the_text_around_it() -> None:
    before = "before\n<!-- some -->\n| stale |\n<!-- /some -->\nafter\n"
    assert with_table(before, "some", "| new |\n") == "before\n<!-- some -->\n| new |\n<!-- /some -->\nafter\n"


def test_a_text_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers <!-- some -->"):
        with_table("<!-- other -->", "some", "")

from __future__ import annotations

import pytest

from tests.docs.docs_tables import DOCS
from tests.docs.figures import PICTURE, draw


def test_the_picture_is_that_of_the_pages_table() -> None:
    assert PICTURE.read_text("utf-8") == draw((DOCS / "figures.md").read_text("utf-8")), (
        "write it anew with `python -m tests.docs.figures`"
    )


def test_a_cell_without_seconds_is_told() -> None:
    with pytest.raises(ValueError, match="soon"):
        draw("| a | b | c |\n|---|---|---|\n| here | soon | 2 s |\n\n")

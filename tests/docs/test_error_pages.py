from __future__ import annotations

import pytest

from tests.docs.error_pages import FIX, FOLDER, classes, pages


@pytest.mark.parametrize("name", ["index.md", *(f"{each.__name__}.md" for each in classes())])
def test_the_page_has_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == pages()[name], "write it again with `python -m tests.docs.error_pages`"


def test_every_page_belongs_to_a_class() -> None:
    assert {path.name for path in FOLDER.iterdir()} == pages().keys()


def test_every_class_says_what_to_do() -> None:
    assert [each.__name__ for each in classes() if FIX not in (each.__doc__ or "")] == []

"""Pages include parts of the repository's files, and a page that fetches something from elsewhere is reported."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from conf.docs.hooks import fetched_from_elsewhere, notebook_text, on_page_markdown, part_of

TEXT = """# Title
before
## One
first
```
## no heading
```
### Within
second
## Two
third
"""


def test_a_part_ends_at_the_next_heading_of_its_level() -> None:
    assert part_of(TEXT, "One") == "first\n```\n## no heading\n```\n## Within\nsecond\n"


def test_without_a_heading_the_whole_file_is_taken() -> None:
    assert part_of(TEXT, None) == TEXT.partition("\n")[2]


def test_a_heading_that_is_not_there_is_told() -> None:
    with pytest.raises(ValueError, match="Three"):
        part_of(TEXT, "Three")


def test_links_of_what_is_included_lead_to_where_their_targets_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (
        "# T\n## One\n[a](docs/a.md#x) [b](#within) [c](DESIGN.md) [d](#two) ![e](docs/e.svg)\n### Within\n## Two\n"
    )
    docs = tmp_path / "docs"
    (docs / "guides").mkdir(parents=True)
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / "DESIGN.md").write_text("# Design\n")
    (docs / "guides" / "one.md").write_text("<!-- include README.md | One -->\n")
    (docs / "two.md").write_text("<!-- include README.md | Two -->\n")
    (docs / "design.md").write_text("<!-- include DESIGN.md -->\n")
    monkeypatch.setattr("conf.docs.hooks.ROOT", tmp_path)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guides/one.md"))
    markdown = on_page_markdown("<!-- include README.md | One -->", page, {"docs_dir": str(docs)})
    assert markdown.splitlines()[0] == (
        "[a](../a.md#x) [b](one.md#within) [c](../design.md) [d](../two.md) ![e](../e.svg)"
    )


def test_links_of_a_file_in_a_folder_lead_to_where_their_targets_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs, examples = tmp_path / "docs", tmp_path / "examples"
    docs.mkdir()
    examples.mkdir()
    (examples / "README.md").write_text("# Examples\n[program](one.py) [page](../docs/a.md)\n")
    (examples / "one.py").write_text("rows[0](1)\n")
    markdown = "<!-- include examples/README.md -->\n<!-- include examples/one.py -->"
    (docs / "examples.md").write_text(markdown)
    monkeypatch.setattr("conf.docs.hooks.ROOT", tmp_path)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="examples.md"))
    shown = on_page_markdown(markdown, page, {"docs_dir": str(docs)})
    assert shown.splitlines()[0] == "[program](examples.md) [page](a.md)"
    assert "```python\nrows[0](1)\n```" in shown


def test_a_notebook_is_shown_with_its_outputs() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}, {"text": ["said\n"]}]},
    ]
    shown = notebook_text(json.dumps({"cells": cells}))
    assert shown == "# Title\ntext\n\n```python\n1 + 1\n```\n\n\n```\n2\n```\n\n\n```\nsaid\n```\n\n"


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="http://example.com/x.png">',
        '<p style="background: url(https://example.com/x.png)">',
        "<style>@import 'https://example.com/x.css'</style>",
    ],
)
def test_what_a_page_would_fetch_from_elsewhere_is_found(html: str) -> None:
    assert len(fetched_from_elsewhere(html)) == 1


def test_links_and_files_of_its_own_are_no_fetches() -> None:
    html = '<a href="https://kafka.apache.org">k</a><script src="a.js"></script><link rel="canonical" href="https://x">'
    assert fetched_from_elsewhere(html) == []

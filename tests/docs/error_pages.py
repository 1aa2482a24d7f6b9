"""Write docs/errors: a page for each error class that a user can meet, made from the code.

Run it as `python -m tests.docs.error_pages`. A page has the class's docstring, its place in the class tree, and the
messages with which the package raises it. Classes outside of `errors.py` reach users as their base class, so they have
no page.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.docs_tables import DOCS
from tests.test_structure import nodes_of_modules
from tiered_stream import errors
from tiered_stream.errors import StorageError, TieredStreamError

FOLDER = DOCS / "errors"
HOLE = "…"
"""Stands for a value in a message."""
_HOLES = re.compile(f"{HOLE}+")
FIX = "Fix: "
_FEWEST_LETTERS = 8
"""A message with fewer letters of its own is only another error's text."""


def classes() -> list[type[TieredStreamError]]:
    """Return the error classes in the order of their declarations."""
    found = (each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, TieredStreamError))
    return list(found)


@cache
def pages() -> dict[str, str]:
    """Return the pages as Markdown, by file name."""
    messages = _messages()
    return {"index.md": _index(), **{f"{each.__name__}.md": _page(each, messages[each.__name__]) for each in classes()}}


def _index() -> str:
    lines = [
        "# Errors",
        "",
        "`tiered_stream` raises these errors on purpose. Import them from `tiered_stream.errors`. In a query, Spark's",
        "error has the name of the class and its message. To find a message, use the search, or see",
        "[Troubleshooting](../troubleshooting.md).",
        "",
        "| Error | Meaning |",
        "|---|---|",
        *(f"| {'&emsp;' * depth}{_link(each)} | {_meaning(each)} |" for depth, each in _tree(TieredStreamError)),
    ]
    return "\n".join(lines) + "\n"


def _page(error: type[TieredStreamError], messages: dict[str, list[str]]) -> str:
    kinds = [each for each in classes() if error in each.__bases__]
    again = "Yes: the same call may succeed without any change." if error.retriable else "No."
    rows = [("Import", f"`from tiered_stream.errors import {error.__name__}`")]
    rows.append(("Base", ", ".join(map(_link, error.__bases__))))
    if kinds:
        rows.append(("More specific", ", ".join(map(_link, kinds))))
    rows.append(("Worth another try", again))
    if issubclass(error, StorageError):
        rows.append(("Reason of a fallback, in metrics", f"`{error.fallback_reason}`"))
    return "\n".join((
        f"# {error.__name__}", "", _meaning(error), "", f"**Fix.** {_fix(error)}", "", "| | |", "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows), *_list(messages),
    )).rstrip() + "\n"  # fmt: skip


def _list(messages: dict[str, list[str]]) -> Iterator[str]:
    if messages:
        yield from ("", "## Messages", "", f"`{HOLE}` stands for a value.")
    for place in sorted(messages):
        yield from ("", f"In `{place}`:", "", *(f"- `{each}`" for each in messages[place]))


def _messages() -> dict[str, dict[str, list[str]]]:
    """Return all messages in the code, by class and by the module or package that has them."""
    names = {each.__name__ for each in classes()}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, nodes in nodes_of_modules().items():
        for node in nodes:
            if isinstance(node, ast.Call) and (name := _called(node.func)) in names and node.args:
                text = _HOLES.sub(HOLE, " ".join(_text(node.args[0]).replace("`", "'").split()))
                place = found[name][Path(path).parts[0].removesuffix(".py")]
                if sum(map(str.isalpha, text)) >= _FEWEST_LETTERS and text not in place:
                    place.append(text)
    return found


def _called(function: ast.expr) -> str:
    """Return the name of a class or function that is called by itself or as a module's attribute; otherwise empty."""
    match function:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name):
            return name
    return ""


def _text(node: ast.expr) -> str:
    """Return the text of an expression, with `HOLE` for the parts that only a run knows."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
    return HOLE


def _meaning(error: type[TieredStreamError]) -> str:
    """Return the class's docstring without the paragraph `Fix`, as one line."""
    return " ".join((error.__doc__ or "").partition(FIX)[0].split())


def _fix(error: type[TieredStreamError]) -> str:
    return " ".join((error.__doc__ or "").partition(FIX)[2].split())


def _tree(root: type[TieredStreamError], depth: int = 0) -> Iterator[tuple[int, type[TieredStreamError]]]:
    """Yield the class and all classes below it, each with its depth in the tree."""
    yield depth, root
    for each in classes():
        if root in each.__bases__:
            yield from _tree(each, depth + 1)


def _link(error: type) -> str:
    return f"[{error.__name__}]({error.__name__}.md)" if error in classes() else f"`{error.__name__}`"


def main() -> None:
    for path in FOLDER.glob("*.md"):
        path.unlink()
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()

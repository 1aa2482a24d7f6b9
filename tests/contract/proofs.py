"""Which tests prove which rows: by their marks, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.contract.contract_rows import ROWS
from tests.rigs.tables import markdown
from tests.values.differences import DIFFERENCES

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "compatibility.md"


@cache
def proofs() -> dict[str, list[str]]:
    """By the row's key, its tests: file and name."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text("utf-8")
        for name, keys in marked(text) if "mark.contract" in text else ():
            for key in keys:
                found.setdefault(key, []).append(f"{path.relative_to(TESTS)}::{name}")
    return found


def marked(text: str) -> Iterator[tuple[str, list[str]]]:
    """The tests of a module that are marked, and the keys of their rows."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            keys = [
                key.value
                for mark in node.decorator_list
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.contract"
                for key in mark.args
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
            if keys:
                yield node.name, keys


def _rows() -> str:
    tests = proofs()
    lines = []
    for row in ROWS:
        ours = f"{row.verdict}: {row.why}" if row.why else str(row.verdict)
        named = "<br>".join(f"`{test}`" for test in tests.get(row.key, ()))
        lines.append((row.key, row.does, ours, named))
    return markdown(("Row", "Spark's `kafka` source", "`tiered_stream`", "Tests"), lines)


def _values() -> str:
    rows = ((f"`{each.option}`", each.value, each.spark, each.ours, each.why) for each in DIFFERENCES)
    return markdown(("Option", "Value", "Spark's `kafka` source", "`tiered_stream`", "Why"), rows)


TABLES = {"rows": _rows, "values": _values}
"""Writers of the compatibility page's tables, by the name of their markers."""

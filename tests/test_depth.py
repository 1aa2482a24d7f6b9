from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import depth

TESTS = Path(__file__).parent


@pytest.mark.parametrize(("deep", "drawn"), [(True, [100, 6, 1]), (False, [20, 2, 1])])
def test_a_quick_run_draws_a_fifth_and_a_deep_run_all(
    monkeypatch: pytest.MonkeyPatch, deep: bool, drawn: list[int]
) -> None:
    monkeypatch.setattr(depth, "DEEP", deep)
    assert [depth.examples(count) for count in (100, 6, 1)] == drawn


def test_a_module_that_counts_examples_itself_marks_the_tests_that_draw_them() -> None:
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text("utf-8")
        if "from tests.depth import" in text:
            by_hypothesis = text.count("max_examples=examples(")
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            counted = sum(isinstance(call.func, ast.Name) and call.func.id == "examples" for call in calls)
            assert counted == by_hypothesis or "@pytest.mark.drawn" in text, path

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


@pytest.mark.parametrize(
    ("lanes", "stores", "kept"),
    [
        (1, 1, [(0, 0)]),
        (1, 2, [(0, 0)]),
        (1, 9, [(0, 0), (0, 1), (0, 2)]),
        (2, 2, [(0, 0), (1, 1)]),
        (2, 3, [(0, 0), (1, 1)]),
        (3, 3, [(0, 1), (1, 0), (2, 2)]),
    ],
)
def test_a_third_of_the_cases_are_kept_with_as_many_values_as_they_can_have(
    lanes: int, stores: int, kept: list[tuple[int, int]]
) -> None:
    cases = [(lane, store) for lane in range(lanes) for store in range(stores)]
    left = set(depth.left_out(("test", {"lane": lane, "store": store}) for lane, store in cases))
    assert [case for position, case in enumerate(cases) if position not in left] == kept


def test_similar_tests_have_other_cases() -> None:
    cases = [(f"test-{number}", {"lane": lane}) for number in range(40) for lane in range(2)]
    kept = [values["lane"] for position, (_, values) in enumerate(cases) if position not in {*depth.left_out(cases)}]
    assert len(kept) == 40
    assert 10 < sum(kept) < 30


def test_a_module_that_counts_examples_itself_marks_the_tests_that_draw_them() -> None:
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text("utf-8")
        if "from tests.depth import" in text:
            by_hypothesis = text.count("max_examples=examples(")
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            counted = sum(isinstance(call.func, ast.Name) and call.func.id == "examples" for call in calls)
            assert counted == by_hypothesis or "@pytest.mark.drawn" in text, path

"""The job itself, in short: with targets that misbehave, and with a few hundred cases of each real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.depth import examples
from tests.rigs.fuzz.job import Job
from tests.rigs.fuzz.target import Target
from tests.rigs.fuzz.targets import TARGETS
from tests.rigs.fuzz.worker import Bench, Found, Memory

CASES = examples(150)


def found_by(target: Target, cases: int) -> list[Found]:
    bench = Bench(target, Memory())
    bench.begin()
    found = [each for number in range(cases) if (each := bench.run(target.case("short", number)))]
    assert bench.tally.cases == cases
    return [each for each in found if each.kind != "slow"]  # of which a machine may be the cause


@pytest.mark.drawn
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_few_cases_of_each_target_give_results_or_our_own_error(target: Target) -> None:
    assert [(each.kind, each.what) for each in found_by(target, CASES)] == []


def test_no_two_targets_have_one_name_and_a_case_is_always_the_same() -> None:
    assert len({target.name for target in TARGETS}) == len(TARGETS)
    for target in TARGETS:
        assert [target.case("seed", each) for each in range(20)] == [target.case("seed", each) for each in range(20)]


@pytest.mark.parametrize(
    ("target", "kind"), [("foreign", "foreign"), ("large", "memory"), ("dying", "dead")]
)  # fmt: skip
def test_what_must_not_be_is_found_and_kept(tmp_path: Path, target: str, kind: str) -> None:
    result = Job("seed", 0.5, tmp_path, "tests.rigs.fuzz.misbehaving", (target,)).run()

    assert {each.kind for each in result.found} == {kind}
    assert all(each.data == b"\x64" for each in result.found)
    (kept,) = (tmp_path / target).iterdir()
    assert kept.read_bytes() == b"\x64"
    assert result.as_json()["found"][0]["kind"] == kind

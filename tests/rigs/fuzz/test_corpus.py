"""What was found once, each file named by what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.fuzz.targets import TARGETS
from tests.rigs.fuzz.worker import Bench, Memory

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(CORPUS.glob("*/*"))
_TARGETS = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_once_is_refused_or_read(case: Path) -> None:
    bench = Bench(_TARGETS[case.parent.name], Memory())
    bench.begin()
    found = bench.run(case.read_bytes())
    assert found is None or found.kind == "slow", found.what

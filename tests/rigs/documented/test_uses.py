"""Each code block of README and docs has a use, and each use has its block."""

from __future__ import annotations

import re

import javaproperties
import pytest

from tests.rigs.documented.blocks import Elsewhere, Lines, Printed, Use, pages, patterns
from tests.rigs.documented.uses import USES
from tests.rigs.stack.build import ROOT
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.ingest.ingest_plan import plan_ingests
from tiered_stream.options.settings_files import read_settings

REGISTERED = {page: [use for use in uses if isinstance(use, Use)] for page, uses in USES.items()}


def test_every_page_with_blocks_is_registered() -> None:
    assert REGISTERED.keys() == pages().keys()


@pytest.mark.parametrize("page", REGISTERED)
def test_every_block_has_a_use_and_every_use_a_block(page: str) -> None:
    found = [f"{block.line}: {block.text.splitlines()[0]}" for block in pages()[page]]
    wrong = [
        f"{use}, but {page}:{line}"
        for use, line in zip(REGISTERED[page], found, strict=True)
        if not line.partition(": ")[2].startswith(use.begins)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "where", sorted({use.where for uses in REGISTERED.values() for use in uses if isinstance(use, Elsewhere)})
)
def test_what_runs_elsewhere_is_there(where: str) -> None:
    file, _, test = where.partition("::")
    assert not test or re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE)
    assert (ROOT / file).is_file()


@pytest.mark.parametrize(
    ("page", "at"),
    [(page, at) for page, uses in REGISTERED.items() for at, use in enumerate(uses) if isinstance(use, Lines)],
)
def test_a_job_accepts_lines_for_its_settings(page: str, at: int) -> None:
    use, block = REGISTERED[page][at], pages()[page][at]
    assert isinstance(use, Lines)
    given = {**use.more, **javaproperties.loads(block.text)}
    settings = read_settings(ROOT / "conf/ingest_to_delta.properties")
    if "subscribePattern" in given:
        del settings["subscribe"]
    for ingest in plan_ingests({**settings, **given}):
        check_settings(ingest.options, ingest.lane)


def test_numbers_and_what_a_page_leaves_out_may_differ() -> None:
    text = "…\nbatch 0: 8,000,000 rows, 1,904,762 rows/s, 3 brokers, …, query 5d1c…: 812.4 MiB"
    (pattern,) = patterns(Printed("", loose=("batch",)), text)
    assert pattern.search("first 7: 1 row, 0.5 rows/s, 1 broker, 7 more, query ab-1: 9 KiB")
    assert not pattern.search("batch 0: 1 line, 0.5 rows/s, 1 broker, 7 more, query ab-1: 9 KiB")
    assert not pattern.search("first 7: 1 row, 0.5 rows/s, 1 broker, 7 more, query ab-1: 9 KiB, and more")

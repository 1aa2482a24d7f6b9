"""The command line of `tiered-stream doctor`, as far as nobody is asked."""

from __future__ import annotations

import orjson
from typer.testing import CliRunner

from tests.archives import TRANSFORMED, archive_options
from tests.cli.running import run
from tiered_stream.cli import app


def test_without_settings_it_says_what_is_missing_and_that_they_are_refused() -> None:
    ended = CliRunner().invoke(app, ["doctor", "--json"])
    report = orjson.loads(ended.stdout)
    assert ended.exit_code == report["exit_code"] == 2
    assert report["findings"][0]["check"] == "settings"
    assert "subscribe" in report["findings"][0]["found"]
    assert report["findings"][1]["status"] == "ok"


def test_people_get_a_line_for_each_check_its_fix_below_and_a_sum() -> None:
    given = archive_options(TRANSFORMED)
    ended = run("doctor", {name: value for name, value in given.items() if "encryption.key" not in name})
    lines = ended.output.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("✗ "))
    assert ended.exit_code == 1
    assert "rsm.config.encryption.key.pairs" in lines[at] and lines[at + 1].startswith("  fix: ")
    assert any(line.startswith("✓ Java: ") for line in lines) and lines[-1].endswith("skipped")

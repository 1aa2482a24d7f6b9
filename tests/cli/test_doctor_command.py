"""The command line of `tiered-stream doctor`, as far as nobody is asked."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from tests.archives import PLAIN, archive_options
from tiered_stream.cli import app


def test_without_settings_it_says_what_is_missing_and_that_they_are_refused() -> None:
    ended = CliRunner().invoke(app, ["doctor", "--json"])
    report = orjson.loads(ended.stdout)
    assert ended.exit_code == report["exit_code"] == 2
    assert report["findings"][0]["check"] == "settings"
    assert "subscribe" in report["findings"][0]["found"]
    assert report["findings"][1]["status"] == "ok"


def test_a_settings_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["doctor", "--settings", str(tmp_path / "none.properties")])
    assert ended.exit_code == 2
    assert "none.properties" in ended.output


def test_ctrl_c_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tiered_stream.doctor.examine.examine", stopped)
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 130


def test_people_get_a_line_for_each_check_and_a_sum() -> None:
    given = [text for name, value in archive_options(PLAIN).items() for text in ("--option", f"{name}={value}")]
    ended = CliRunner().invoke(app, ["doctor", *given])
    assert ended.exit_code == 0, ended.output
    assert any(line.startswith("✓ segment objects: ") for line in ended.output.splitlines())
    assert ended.output.splitlines()[-1].endswith("skipped")

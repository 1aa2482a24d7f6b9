"""The command line of `tiered-stream gateway`, as far as it does not serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiered_stream.cli import app


@pytest.mark.parametrize("settings", [None, "gateway.port=none\n", "gateway.bootstrap.port=no\n"])
def test_settings_that_are_refused_end_it_as_they_end_every_command(tmp_path: Path, settings: str | None) -> None:
    file = tmp_path / "gateway.properties"
    if settings is not None:
        file.write_text(settings)
    ended = CliRunner().invoke(app, ["gateway", "--config", str(file)])
    assert ended.exit_code == 2
    assert "gateway" in ended.output


def test_a_port_that_is_taken_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(_: object) -> None:
        raise OSError("port 9092 is taken")

    monkeypatch.setattr("tiered_stream.gateway.gateway_program._serve", taken)
    monkeypatch.setattr("tiered_stream.gateway.gateway_settings.GatewaySettings.parse", lambda settings: settings)
    file = tmp_path / "gateway.properties"
    file.touch()
    ended = CliRunner().invoke(app, ["gateway", "--config", str(file)])
    assert (ended.exit_code, ended.output) == (1, "port 9092 is taken\n")

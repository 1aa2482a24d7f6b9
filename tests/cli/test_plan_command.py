"""`tiered-stream plan`: what it says is what a read then takes; over golden archives and a broker that tiers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.archives import PLAIN, TRANSFORMED, archive_options, planned
from tests.cli.running import job_settings, report, run
from tests.reading import tier_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tests.tasks import read
from tiered_stream.cli import app
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.read_cost import NO_LOCATOR, NOT_TIERED_YET


@pytest.mark.parametrize("name", [PLAIN, TRANSFORMED])
@pytest.mark.parametrize("given", [{}, {"remote.split.bytes": "20k"}, {"minPartitions": "100"}])
def test_it_says_what_the_read_then_takes(name: str, given: Mapping[str, str]) -> None:
    options = archive_options(name, given)
    total, splits = report("plan", options)["total"], planned(options)
    _, metrics = read(splits, parse_options(options, streaming=False))
    assert total["splits"] == len(splits)
    assert total["segments"] == len({part.segment.segment_id for split in splits for part in split.locations})
    assert (total["storage_bytes"], total["gets"]) == (metrics.remote_fetch_bytes, metrics.remote_fetch_requests)
    assert total["offsets"] >= metrics.records > 0 == total["broker_offsets"]


def test_prices_and_tasks_are_those_of_the_command_line() -> None:
    found = report("plan", archive_options(PLAIN), "--get-price", "1", "--gib-price", "0", "--tasks", "7")
    assert found["dollars"] == round(found["total"]["gets"] / 1000, 6)
    assert (found["tasks"], found["prices"]["as_of"]) == (7, "the command line")


def test_a_jobs_settings_file_will_do(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["plan", "--settings", job_settings(tmp_path, archive_options(PLAIN))])
    assert ended.exit_code == 0, ended.output
    assert "s32-big-0" in ended.stdout and "storage charges about $" in ended.stdout


@pytest.mark.stack
def test_what_is_not_tiered_comes_from_brokers_and_the_reason_is_said(stack: TieredStack, topic: str) -> None:
    tier_segments(stack, topic, [40, 30, 50])
    options = {**stack.options(), "subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":45}}}}'}
    (partition,) = report("plan", options)["partitions"]
    assert (partition["start_offset"], partition["end_offset"], partition["segments"]) == (45, 121, 2)
    assert (partition["broker_offsets"], partition["broker_reason"]) == (1, NOT_TIERED_YET)
    (partition,) = report("plan", {**options, "remote.log.locator": "none"})["partitions"]
    assert (partition["broker_offsets"], partition["broker_reason"], partition["gets"]) == (76, NO_LOCATOR, 0)


@pytest.mark.parametrize("forced", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_piped_tables_have_their_full_width(forced: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**forced, "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    assert "0 to 18,686" in run("plan", archive_options(PLAIN, {"subscribe": "s32-big"})).stdout

"""`tiered-stream segments` over golden archives, a broker that tiers, and a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.archives import PLAIN, archive_options
from tests.cli.running import job_settings, report, run
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tests.storage.golden_aiven import segments as golden_segments
from tiered_stream.cli import app
from tiered_stream.model import uuid_to_text


def test_an_archives_segments_are_listed_with_their_sums() -> None:
    found = report("segments", archive_options(PLAIN))
    listed = [segment for partition in found["partitions"] for segment in partition["segments"]]
    assert {segment["segment_id"] for segment in listed} == {
        uuid_to_text(each.segment_id) for each in golden_segments(PLAIN)
    }
    assert sum(each["segments"] for each in found["topics"]) == len(listed)
    assert sum(each["bytes"] for each in found["topics"]) == sum(each.size for each in golden_segments(PLAIN))
    assert (found["told_by"], found["only_what_counts"]) == ("archive", False)


def test_a_jobs_settings_file_will_do_and_its_positions_do_not_matter(tmp_path: Path) -> None:
    settings = job_settings(tmp_path, {**archive_options(PLAIN), "startingOffsets": "latest"})
    ended = CliRunner().invoke(app, ["segments", "--settings", settings])
    assert ended.exit_code == 0, ended.output
    for each in golden_segments(PLAIN):
        assert uuid_to_text(each.segment_id) in ended.stdout


@pytest.mark.stack
def test_a_brokers_segments_are_listed_without_any_storage_to_ask(stack: TieredStack, topic: str) -> None:
    total = tier_segments(stack, topic, [40, 30, 50], partitions=2)
    found = report("segments", {"kafka.bootstrap.servers": stack.bootstrap_servers}, "--subscribe", topic)
    assert found["told_by"] == "metadata-topic"
    for partition in found["partitions"]:
        offsets = [(each["base_offset"], each["last_offset"]) for each in partition["segments"]]
        assert offsets == [(0, 39), (40, 69), (70, 119)]
        assert {each["state"] for each in partition["segments"]} == {"COPY_SEGMENT_FINISHED"}
        assert partition["not_tiered"] == [{"start": 120, "end": total}]
        assert partition["total"]["orphans"] == partition["total"]["overlapping"] == 0


@pytest.mark.stack
def test_a_gateway_names_what_counts_and_that_is_said(stack: TieredStack, topic: str, tmp_path: Path) -> None:
    tier_segments(stack, topic, [40, 30])
    with RunningGateway(tmp_path / "gateway", stack.options()) as gateway:
        options = {"kafka.bootstrap.servers": gateway.bootstrap_servers, "subscribe": topic}
        found, read = report("segments", options), run("segments", options)
        everything = report("segments", {**stack.options(), "subscribe": topic})
    assert read.exit_code == 0, read.output
    assert (found["told_by"], found["only_what_counts"]) == ("broker", True)
    assert "only segments" in read.stdout

    def ids(report: Mapping[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
        return [segment["segment_id"] for each in report["partitions"] for segment in each["segments"]]

    assert len(ids(found)) == 2 and ids(found) == ids(everything)

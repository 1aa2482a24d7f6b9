"""`tiered-stream segments` over golden archives, a broker that tiers, and a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from tests.archives import PLAIN, archive_options
from tests.cli.running import job_settings, nobody, run
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tests.storage.golden_aiven import segments as golden_segments
from tiered_stream.cli import app
from tiered_stream.model import uuid_to_text


def test_an_archives_segments_are_listed_with_their_sums() -> None:
    ended = run("segments", archive_options(PLAIN), "--json")
    assert ended.exit_code == 0, ended.output
    found = orjson.loads(ended.stdout)
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


@pytest.mark.parametrize(
    ("options", "arguments", "said"),
    [
        ({**archive_options(PLAIN), "remote.log.locater": "archive"}, (), "remote.log.locator"),
        ({"kafka.bootstrap.servers": "b:1", "remote.log.locator": "none"}, ("--subscribe", "t"), "remote.log.locator"),
        ({"kafka.bootstrap.servers": "b:1"}, (), "subscribe, subscribePattern, assign"),
        ({}, ("--settings", "/nowhere.properties"), "/nowhere.properties"),
    ],
)
def test_wrong_input_is_refused_in_one_line(options: Mapping[str, str], arguments: Sequence[str], said: str) -> None:
    ended = run("segments", options, *arguments)
    assert ended.exit_code == 2
    assert said in ended.output and ended.output.count("\n") == 1


def test_brokers_that_are_not_there_fail_it_in_one_line() -> None:
    ended = run("segments", nobody())
    assert ended.exit_code == 1
    assert "no broker" in ended.output and ended.output.count("\n") == 1


@pytest.mark.stack
def test_a_brokers_segments_are_listed_without_any_storage_to_ask(stack: TieredStack, topic: str) -> None:
    total = tier_segments(stack, topic, [40, 30, 50], partitions=2)
    ended = run("segments", {"kafka.bootstrap.servers": stack.bootstrap_servers}, "--subscribe", topic, "--json")
    assert ended.exit_code == 0, ended.output
    found = orjson.loads(ended.stdout)
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
        ended, read = run("segments", options, "--json"), run("segments", options)
        everything = run("segments", {**stack.options(), "subscribe": topic}, "--json")
    assert (ended.exit_code, read.exit_code) == (0, 0), ended.output + read.output
    found = orjson.loads(ended.stdout)
    assert (found["told_by"], found["only_what_counts"]) == ("broker", True)
    assert "only segments" in read.stdout

    def ids(report: Mapping[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
        return [segment["segment_id"] for each in report["partitions"] for segment in each["segments"]]

    assert len(ids(found)) == 2 and ids(found) == ids(orjson.loads(everything.stdout))

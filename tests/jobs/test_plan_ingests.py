"""What `jobs/ingest_to_delta.py` makes of its settings, before any Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tiered_stream.cli.ingest_command import ingest
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, TABLE, TRIGGER
from tiered_stream.errors import ConfigurationError
from tiered_stream.ingest.ingest_plan import plan_ingests

PLACES = {TABLE: "bronze.orders", CHECKPOINT: "/checkpoints/orders"}


def test_topics_share_a_table_whose_name_has_no_place_for_them() -> None:
    (ingest,) = plan_ingests({**PLACES, "subscribe": "a,b", "kafka.bootstrap.servers": "b:9092"})
    assert (ingest.table, ingest.checkpoint) == ("bronze.orders", "/checkpoints/orders")
    assert ingest.options == {"subscribe": "a,b", "kafka.bootstrap.servers": "b:9092"}


@pytest.mark.parametrize(("given", "trigger"), [({}, "availableNow"), ({TRIGGER: "30 seconds"}, "30 seconds")])
def test_all_there_is_now_is_ingested_unless_an_interval_is_given(given: dict[str, str], trigger: str) -> None:
    (ingest,) = plan_ingests({**PLACES, "subscribePattern": "o.*", **given})
    assert ingest.trigger == trigger


def test_the_topics_name_stands_wherever_its_place_is() -> None:
    settings = {TABLE: "/lake/{topic}/raw_{topic}", CHECKPOINT: "/c/{topic}", "subscribe": "a,, b ,"}
    assert [(each.table, each.checkpoint) for each in plan_ingests(settings)] == [
        ("/lake/a/raw_a", "/c/a"),
        ("/lake/b/raw_b", "/c/b"),
    ]


def test_a_topic_that_is_named_twice_is_landed_once() -> None:
    settings = {TABLE: "/lake/{topic}", CHECKPOINT: "/c/{topic}", "Subscribe": "a,b,a"}
    assert [each.options for each in plan_ingests(settings)] == [{"subscribe": "a"}, {"subscribe": "b"}]


def test_the_jobs_own_settings_are_taken_in_any_case() -> None:
    (ingest,) = plan_ingests({"Ingest.Table": "t", "ingest.checkpointlocation": "/c", "INGEST.LANE": "spark"})
    assert (ingest.table, ingest.checkpoint, ingest.lane, ingest.options) == ("t", "/c", "spark", {})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("ingest.tabel", TABLE), ("ingest.triger", TRIGGER), ("ingets.checkpointLocation", CHECKPOINT)],
)
def test_a_mistyped_setting_is_refused_with_the_nearest_known_one(name: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^setting {name} .* {nearest}$"):
        plan_ingests({**PLACES, name: "x", "subscribe": "a"})


@pytest.mark.parametrize("missing", [TABLE, CHECKPOINT])
def test_a_missing_place_is_named(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{missing} "):
        list(plan_ingests({**PLACES, missing: ""}))


@pytest.mark.parametrize("read", [{"subscribe": "a,b"}, {"subscribePattern": "o.*"}, {"assign": '{"a":[0]}'}])
def test_one_checkpoint_is_one_query_for_the_tables_of_all_topics(read: dict[str, str]) -> None:
    (ingest,) = plan_ingests({TABLE: "/lake/{topic}", CHECKPOINT: "/c", **read})
    assert (ingest.table, ingest.checkpoint, ingest.options) == ("/lake/{topic}", "/c", read)


@pytest.mark.parametrize(
    "given",
    [
        {TABLE: "/lake/{topic}", "subscribePattern": "o.*"},
        {TABLE: "/lake/all", "subscribe": "a"},
        {TABLE: "/lake/{topic}", "subscribe": "a", "ingest.route": "a=/lake/other"},
    ],
)
def test_a_query_for_each_topic_needs_topics_by_name_and_a_table_for_each(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=f"{CHECKPOINT}, .*subscribe"):
        plan_ingests({CHECKPOINT: "/c/{topic}", **given})


def test_a_query_for_one_topic_has_that_topics_own_settings() -> None:
    settings = {TABLE: "/lake/{topic}", CHECKPOINT: "/c/{topic}", "subscribe": "a,b", "ingest.compression": "zstd"}
    own = {"ingest.topic.a.compression": "none", "ingest.topic.a.table": "/other/{topic}"}
    assert [(each.table, each.options) for each in plan_ingests(settings | own)] == [
        ("/other/a", {"subscribe": "a", "ingest.compression": "none"}),
        ("/lake/b", {"subscribe": "b", "ingest.compression": "zstd"}),
    ]


def run(*arguments: str | Path) -> tuple[int, str]:
    """The exit status of the job, and what it printed."""
    app = typer.Typer()
    app.command()(ingest)
    ended = CliRunner().invoke(app, list(map(str, arguments)))
    return ended.exit_code, ended.stdout


def test_topics_whose_queries_would_share_a_table_are_refused() -> None:
    own = {"ingest.checkpointLocation": "/c/{topic}", "kafka.bootstrap.servers": "k:9092"}
    read = {"subscribe": "orders,Orders", **own}
    assert len(plan_ingests({**read, "ingest.table": "/lake/{topic}"})) == 2
    assert len(plan_ingests({**read, "ingest.table": "{topic}", "ingest.topic.Orders.table": "orders"})) == 2
    with pytest.raises(ConfigurationError, match="topics orders and Orders would share the table"):
        plan_ingests({**read, "ingest.table": "lake.{topic}"})


def test_a_comment_in_a_topics_name_does_not_lead_to_another_table() -> None:
    own = {"ingest.checkpointLocation": "/c/{topic}", "kafka.bootstrap.servers": "k:9092"}
    planned = plan_ingests({"subscribe": "orders,orders--raw", "ingest.table": "{topic}", **own})
    assert [each.table for each in planned] == ["orders", "`orders--raw`"]


def test_settings_that_do_not_suffice_end_the_job_with_one_line(tmp_path: Path) -> None:
    settings = tmp_path / "job.properties"
    settings.write_text(f"{TABLE}=/lake/{{topic}}\n{CHECKPOINT}=/c\n")
    assert run("--settings", settings, "--checkpoint", "", "--option", "subscribe=a,b", "--lane", "quick") == (
        2,
        "the lane is 'quick'; it may be auto, direct, spark\n",
    )


def test_a_malformed_file_ends_the_job_without_being_shown(tmp_path: Path) -> None:
    settings = tmp_path / "job.properties"
    settings.write_text("remote.storage.aws.secret.access.key=\\usecret\n")
    status, printed = run("--settings", settings)
    assert status == 2
    assert str(settings) in printed and "secret" not in printed


def test_wrong_options_end_the_job_before_any_query_starts() -> None:
    status, printed = run("--table", "t", "--checkpoint", "/c", "--option", "subscribe=a,b", "--lane", "quick")
    assert status == 2 and "'quick'" in printed and "auto, direct, spark" in printed
    status, printed = run("--table", "t", "--checkpoint", "/c", "--option", "subscribe=a,b")
    assert status == 2 and printed.startswith("option kafka.bootstrap.servers ")


def test_a_malformed_option_ends_the_job() -> None:
    assert run("--option", "subscribe") == (2, "--option needs name=value, got 'subscribe'\n")

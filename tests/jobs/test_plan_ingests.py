"""What `jobs/ingest_to_delta.py` makes of its settings, before any Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.submitted import run_here
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, LANE, TABLE, TRIGGER
from tiered_stream.errors import ConfigurationError
from tiered_stream.ingest.ingest_plan import Ingest, plan_ingests

PLACES = {TABLE: "bronze.orders", CHECKPOINT: "/checkpoints/orders"}
BY_TOPIC = {TABLE: "/lake/{topic}", CHECKPOINT: "/c/{topic}"}


def ingest(table: str, checkpoint: str, trigger: str = "availableNow", lane: str = "auto", **options: str) -> Ingest:
    return Ingest({name.replace("_", "."): value for name, value in options.items()}, table, checkpoint, trigger, lane)


@pytest.mark.parametrize(
    ("settings", "planned"),
    [
        ({**PLACES, "subscribe": "a,b", "kafka.client.id": "x"},
         [ingest(*PLACES.values(), subscribe="a,b", kafka_client_id="x")]),
        ({**PLACES, TRIGGER: "30 seconds", "assign": "{}"}, [ingest(*PLACES.values(), "30 seconds", assign="{}")]),
        ({TABLE: "/lake/{topic}", CHECKPOINT: "/c", "subscribePattern": "o.*"},
         [ingest("/lake/{topic}", "/c", subscribePattern="o.*")]),
        ({TABLE: "/lake/{topic}/raw_{topic}", CHECKPOINT: "/c/{topic}", "Subscribe": "a,, b ,a"},
         [ingest("/lake/a/raw_a", "/c/a", subscribe="a"), ingest("/lake/b/raw_b", "/c/b", subscribe="b")]),
        ({name.upper(): value for name, value in {**PLACES, LANE: "spark"}.items()},
         [ingest(*PLACES.values(), lane="spark")]),
        ({**BY_TOPIC, "subscribe": "a,b", "ingest.compression": "zstd", "ingest.topic.a.compression": "none",
          "ingest.topic.a.table": "/other/{topic}"},
         [ingest("/other/a", "/c/a", subscribe="a", ingest_compression="none"),
          ingest("/lake/b", "/c/b", subscribe="b", ingest_compression="zstd")]),
        ({**BY_TOPIC, TABLE: "{topic}", "subscribe": "orders,orders--raw"},
         [ingest("orders", "/c/orders", subscribe="orders"),
          ingest("`orders--raw`", "/c/orders--raw", subscribe="orders--raw")]),
    ],
)  # fmt: skip
def test_settings_describe_one_query_or_one_for_each_topic(settings: dict[str, str], planned: list[Ingest]) -> None:
    assert plan_ingests(settings) == planned


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
        plan_ingests({**PLACES, missing: ""})


@pytest.mark.parametrize(
    "given",
    [{"subscribePattern": "o.*"}, {TABLE: "/lake/all", "subscribe": "a"},
     {"subscribe": "a", "ingest.route": "a=/lake/other"}],
)  # fmt: skip
def test_a_query_for_each_topic_needs_topics_by_name_and_a_table_for_each(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=f"{CHECKPOINT}, .*subscribe"):
        plan_ingests({**BY_TOPIC, **given})


def test_topics_whose_queries_would_share_a_table_are_refused() -> None:
    read = {**BY_TOPIC, "subscribe": "orders,Orders"}
    assert len(plan_ingests(read)) == 2
    with pytest.raises(ConfigurationError, match="topics orders and Orders would share the table"):
        plan_ingests({**read, TABLE: "lake.{topic}"})


@pytest.mark.parametrize(
    ("first", "second"), [("/lake/all", "/lake/all"), ("/lake/all", "/lake/all/"), ("db.all", "db.All")]
)
def test_queries_for_one_table_have_different_names(first: str, second: str) -> None:
    read = {**BY_TOPIC, "subscribe": "a,b,c", "ingest.topic.a.table": first, "ingest.topic.b.table": second}
    planned = plan_ingests(read)
    assert [query.table for query in planned] == [first, second, "/lake/c"]
    assert len({query.name for query in planned}) == 3 and planned[2].name == "ingest /lake/c"
    with pytest.raises(ConfigurationError, match="topics a and b have different settings"):
        plan_ingests({**read, "ingest.topic.a.value.format": "string"})


def test_settings_that_do_not_suffice_end_the_job_with_one_line(tmp_path: Path) -> None:
    settings = tmp_path / "job.properties"
    settings.write_text(f"{TABLE}=/lake/{{topic}}\n{CHECKPOINT}=/c\n")
    assert run_here("--settings", settings, "--checkpoint", "", "--option", "subscribe=a,b", "--lane", "quick") == (
        2,
        "the lane is 'quick'; it may be auto, direct, spark\n",
    )


def test_a_malformed_file_ends_the_job_without_being_shown(tmp_path: Path) -> None:
    settings = tmp_path / "job.properties"
    settings.write_text("remote.storage.aws.secret.access.key=\\usecret\n")
    status, printed = run_here("--settings", settings)
    assert status == 2
    assert str(settings) in printed and "secret" not in printed


def test_wrong_options_end_the_job_before_any_query_starts() -> None:
    status, printed = run_here("--table", "t", "--checkpoint", "/c", "--option", "subscribe=a,b")
    assert status == 2 and printed.startswith("option kafka.bootstrap.servers ")
    assert run_here("--option", "subscribe") == (2, "--option needs name=value, got 'subscribe'\n")

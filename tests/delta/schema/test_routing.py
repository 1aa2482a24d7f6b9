"""Which table a topic's rows go to, and how tasks know it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.formats.scripted_registry import ScriptedRegistry
from tiered_stream.delta.landing.data_files_readers import FilesPartition, KnownRules, TasksWrite
from tiered_stream.delta.schema.routing import Route, Routing, TaskSettings
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage, table_spec, with_overrides
from tiered_stream.errors import ConfigurationError, TableError, UnknownSchemaError
from tiered_stream.formats.rows.row_choices import Envelope, Format
from tiered_stream.formats.rows.row_format import PartFormat, RowFormat, plain_rows
from tiered_stream.model import OffsetRange, Split, TopicPartition

BY_TOPIC = Route(".*", "/lake/{topic}/raw", "file:///lake/{topic}/raw")
BY_NAME = Route(".*", "bronze.{topic}", "s3://lake/bronze.db/{topic}", in_lower_case=True)
ROUTES = Route("a|b", "/lake/ab", "file:///lake/ab"), Route("a.*", "/lake/as", "file:///lake/as"), BY_TOPIC


def routing(*routes: Route, **overrides: dict[str, str]) -> Routing:
    shared = {"ingest.compression": "zstd"}
    topics = {topic: table_spec(with_overrides(shared, own)) for topic, own in overrides.items()}
    return Routing(table_spec(shared), routes or (BY_TOPIC,), topics)


@pytest.mark.parametrize(
    ("routes", "topic", "name", "key"),
    [
        (ROUTES, "a", "/lake/ab", "file:///lake/ab"),
        (ROUTES, "b", "/lake/ab", "file:///lake/ab"),
        (ROUTES, "ab", "/lake/as", "file:///lake/as"),
        (ROUTES, "xa.eu-1", "/lake/xa.eu-1/raw", "file:///lake/xa.eu-1/raw"),
        ([BY_NAME], "Orders", "bronze.Orders", "s3://lake/bronze.db/orders"),
        ([BY_NAME], "orders--raw", "bronze.`orders--raw`", "s3://lake/bronze.db/orders--raw"),
        ([BY_NAME], "silver.orders", "bronze.`silver.orders`", "s3://lake/bronze.db/silver.orders"),
    ],
)
def test_a_topic_goes_to_the_table_of_the_first_route_that_matches_its_whole_name(
    routes: Sequence[Route], topic: str, name: str, key: str
) -> None:
    target = routing(*routes).target(topic)
    assert (target.name, target.key, target.compression) == (name, key, "zstd")


def test_a_topics_own_settings_go_before_the_querys() -> None:
    found = routing(orders={"ingest.dayColumn": "day", "INGEST.compression": "none"})
    orders, others = found.target("orders"), found.target("Orders")
    assert (orders.day_column, orders.compression) == ("day", "none")
    assert orders.schema.names[-1] == "day"
    assert (others.day_column, others.compression) == (None, "zstd")


def test_a_table_for_dead_letters_is_neither_partitioned_nor_clustered_by_columns_of_its_rows() -> None:
    for layout in ({"ingest.dayColumn": "day"}, {"ingest.clusterBy": "customer"}):
        known = routing(orders={**layout, "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": "/lake/dead"})
        dead_letters = known.dead_letters(known.target("orders"))
        assert dead_letters is not None
        assert (dead_letters.day_column, dead_letters.cluster_by) == (None, ())


def test_what_is_changed_for_all_tables_holds_for_those_that_were_known_before() -> None:
    known = routing(orders={"ingest.compression": "none"})
    assert known.target("orders").tasks == 1
    changed = replace(known, spec=replace(known.spec, tasks=8))
    assert {changed.target(topic).tasks for topic in ("orders", "others")} == {8}


@pytest.mark.parametrize("topic", ["..", ".", "a/../../b", "", "a b", "é", "a\n", "x" * 250])
def test_a_topic_with_a_name_that_kafka_forbids_leads_nowhere(topic: str) -> None:
    with pytest.raises(TableError, match="name"):
        routing().target(topic)


OTHERS = Route("raw.*", "bronze.old_{topic}", "s3://lake/bronze.db/old_{topic}", in_lower_case=True)


def test_topics_that_a_catalog_would_send_to_one_table_are_refused() -> None:
    routing(BY_TOPIC).check_separate_tables(["Orders", "orders"])
    routing(BY_NAME).check_separate_tables(["orders", "payments"])
    with pytest.raises(ConfigurationError, match=r"topic orders and Orders would share the table bronze\.orders"):
        routing(BY_NAME).check_separate_tables(["Orders", "orders"])
    with pytest.raises(ConfigurationError, match=r"share the table bronze\.old_raw"):
        routing(OTHERS, BY_NAME).check_separate_tables(["old_raw", "raw"])
    Routing(TableSpec(""), (Route("o.*", "/l/o", "file:///l/o"),)).check_separate_tables(["o", "orders"])


def test_a_topic_with_the_name_of_the_table_for_dead_letters_is_refused() -> None:
    known = replace(routing(), dead_letter_folders={"/lake/dead/raw": "file:///lake/dead/raw"})
    known.check_separate_tables(["orders"])
    with pytest.raises(ConfigurationError, match="topic dead and the dead letters"):
        known.check_separate_tables(["orders", "dead"])


def test_a_table_for_rows_and_for_dead_letters_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"table /lake/ab .*ingest\.deadLetterTable"):
        replace(routing(*ROUTES), dead_letter_folders={"/lake/ab/": "file:///lake/ab"})


def test_a_topic_without_a_table_is_told() -> None:
    with pytest.raises(TableError, match=r"topic x: .*ingest\.table.*ingest\.route"):
        routing(Route("a", "/a", "file:///a")).target("x")


def test_a_malformed_setting_of_a_topic_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ingest\.compression: 'lzma' "):
        routing(orders={"ingest.compression": "lzma"}).target("orders")


def test_an_error_of_a_topics_schema_names_the_topic() -> None:
    heartbeat = '{"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}'
    with ScriptedRegistry() as registry:
        registry.versions["__debezium-heartbeat.x-value", "latest"] = {"schema": heartbeat}
        value = PartFormat(Format.AVRO, registered=True)
        how = RowFormat((), value=value, envelope=Envelope.DEBEZIUM, registry={"url": registry.url})
        known = replace(routing(), rows={"": how})
        advice = r"exclude it from the pattern, such as \(\?!__debezium-heartbeat\)"
        with pytest.raises(ConfigurationError, match=rf"^topic __debezium-heartbeat.x: .*no struct after.*{advice}"):
            known.target("__debezium-heartbeat.x")
        with pytest.raises(UnknownSchemaError, match=rf"^topic x.transaction: .*{advice}"):
            known.registered(["x.transaction"])


def test_tasks_know_what_the_driver_knows() -> None:
    storage = TableStorage("http://lake:9000", "eu-west-1", True, "id", "secret")
    own = {"Orders": TableSpec("", day_column="Day")}
    known = Routing(TableSpec("", storage, tasks=8), (BY_TOPIC,), own)
    options = TaskSettings(known).added_to({})
    told = TaskSettings.of({name.lower(): value for name, value in options.items()}).routing  # as Spark hands them over
    assert told.spec == known.spec
    for topic in ("Orders", "orders"):
        ours, theirs = known.target(topic), told.target(topic)
        assert (theirs.name, theirs.shared) == (ours.name, ours.shared)


def test_tables_that_were_looked_up_do_not_travel_to_the_tasks() -> None:
    known = routing()
    told = TaskSettings(known).added_to({})
    known.target("orders")
    assert TaskSettings(known).added_to({}) == told


def test_a_registry_is_asked_once_for_each_topic_and_a_partition_has_the_answer_without_a_password() -> None:
    with ScriptedRegistry() as registry:
        for subject in ("a-value", "b-value"):
            registry.versions[subject, "latest"] = {"schema": '"long"', "id": 1}
        login = {"url": registry.url, "basic.auth.user.info": "user:secret"}
        how = RowFormat((), value=PartFormat(Format.AVRO, registered=True), registry=login)
        known = replace(routing(), rows={"": how, "own": plain_rows(False)}, has_rules=True)
        splits = [Split(TopicPartition(topic, 0), OffsetRange(0, 9)) for topic in ("a", "b", "own")]
        write = TasksWrite(TaskSettings(known))
        for _ in range(2):
            (task,) = write.partitions(splits, KnownRules())
    assert isinstance(task, FilesPartition)
    assert sorted(registry.asked) == [f"/subjects/{topic}-value/versions/latest" for topic in ("a", "b")]
    assert {topic: rows.value.schema for topic, rows in task.rows.items()} == {"a": '"long"', "b": '"long"'}
    assert b"secret" not in pickle.dumps(task)

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tiered_stream.delta.schema.routing import Routing, TaskSettings
from tiered_stream.delta.settings.ingest_settings import (
    JOB_SETTINGS,
    ROUTE,
    TableSpec,
    TableStorage,
    check_names,
    settings_of_topics,
    shared_settings,
    table_spec,
    topic_overrides,
)
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.delta.write.file_systems import delta_storage_options, deltalake_arguments
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.given_options import GivenOptions

STORAGE = TableStorage("http://lake:9000", "eu-west-1", True, "id", "secret", "token", anonymous=True)


def test_settings_of_the_tables_storage_are_read() -> None:
    given = {"Ingest.Storage.s3.region": "us-west-2", "ingest.storage.s3.path.style.access.enabled": "TRUE"}
    assert table_spec(given).storage == TableStorage(s3_region="us-west-2", s3_path_style=True)
    assert table_spec({"remote.storage.s3.region": "us-west-2"}).storage == TableStorage()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ingest.storage.aws.access.key.id": "id"}, r"ingest\.storage\.aws\.access\.key\.id"),
        ({"ingest.storage.s3.regoin": "x"}, r"ingest\.storage\.s3\.regoin .*s3\.region"),
        ({"ingest.dayColumn": "day", "ingest.clusterBy": "offset"}, r"ingest\.dayColumn .*ingest\.clusterBy"),
        ({"ingest.clusterBy": "a,b,a"}, "ingest.clusterBy: .*columns"),
        ({"ingest.clusterBy": " , "}, "ingest.clusterBy: .*columns"),
        ({"ingest.commit": "sparks"}, r"ingest\.commit"),
    ],
)
def test_a_wrong_setting_of_a_table_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        table_spec(given)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ingest.targetFileSiez", "ingest.targetFileSize"),
        ("ingest.daycolum", "ingest.dayColumn"),
        ("ingets.dayColumn", "ingest.dayColumn"),
        ("ingestCompression", "ingest.compression"),
        ("ingest.storag.s3.region", "ingest.storage.s3.region"),
        ("ingest.tableProperties.delta.appendOnly", "ingest.tableProperty.…"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(name: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^setting {name} .* {nearest}$"):
        check_names({name: "1", "subscribe": "t"})


@pytest.mark.parametrize("name,nearest", [("startOffset", "startingOffsets"), ("mergeSchema", "")])
def test_a_job_has_no_unknown_setting_at_all(name: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^setting {name} .*{nearest}"):
        check_names({name: "x", "subscribe": "t"}, JOB_SETTINGS)


def test_options_of_the_source_and_names_like_nothing_are_left_to_it() -> None:
    names = ("startingOffset", "mergeSchema", "kafka.x", "INGEST.dayColumn", "ingest.storage.s3.region")
    check_names(dict.fromkeys(names, "x"))


AZURE = TableStorage(
    azure_account_name="mine", azure_tenant_id="me", azure_client_id="app", azure_authority_url="https://login",
    azure_token_file="/token", azure_managed_identity=True, azure_endpoint_url="http://emulator",
)  # fmt: skip


@pytest.mark.parametrize("storage", [STORAGE, AZURE, TableStorage(gcs_anonymous=True), TableStorage()])
def test_what_the_tasks_must_know_travels_as_one_option_that_spark_redacts(storage: TableStorage) -> None:
    routing = Routing(TableSpec("", storage, "day", 64 << 20, "zstd", tasks=8), ())
    settings = TaskSettings(routing, only="file:///t", transaction=("q", 3))
    options = settings.added_to({"subscribe": "t"})
    assert TaskSettings.of({name.lower(): value for name, value in options.items()}) == settings
    redacted = re.compile("(?i)secret|password|token|access[.]?key")  # spark.redaction.regex
    shown = {name: value for name, value in options.items() if not redacted.search(name)}
    assert shown == {"subscribe": "t", "includeHeaders": "true"}


def test_secrets_of_all_stores_are_not_shown() -> None:
    secrets = (
        "azure_account_key", "azure_sas_token", "azure_connection_string", "azure_client_secret",
        "gcs_credentials_json", "secret_access_key", "access_key_id", "session_token",
    )  # fmt: skip
    storage = TableStorage(**dict.fromkeys(secrets, "S"))
    assert "'S'" not in repr(TaskSettings(Routing(TableSpec("", storage), ())))


def test_table_properties_keep_their_case() -> None:
    settings = {"ingest.tableProperty.delta.appendOnly": "true", "ingest.compression": "zstd"}
    assert table_spec(settings).properties == {"delta.appendOnly": "true"}


def test_a_topics_own_settings_are_those_behind_its_name_which_may_have_dots() -> None:
    settings = {
        "ingest.topic.orders.eu.dayColumn": "day",
        "Ingest.Topic.orders.eu.COMPRESSION": "zstd",
        "ingest.topic.Orders.tableProperty.delta.appendOnly": "true",
        "ingest.topic.table.table": "/t",
        "ingest.topic.a.tableProperty.x.compression": "y",
        "ingest.compression": "none",
    }
    check_names(settings)
    assert topic_overrides(settings) == {
        "orders.eu": {"ingest.dayColumn": "day", "ingest.compression": "zstd"},
        "Orders": {"ingest.tableProperty.delta.appendOnly": "true"},
        "table": {"ingest.table": "/t"},
        "a": {"ingest.tableProperty.x.compression": "y"},
    }
    assert shared_settings(settings) == {"ingest.compression": "none"}


@pytest.mark.parametrize(
    "name",
    ["ingest.topic.orders.commit", "ingest.topic.orders.maxDeadLetters", "ingest.topic.dayColumn", "ingest.topic.",
     "ingest.topic.a."],
)  # fmt: skip
def test_what_a_topic_cannot_have_for_itself_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^setting {name} .*table, targetFileSize"):
        check_names({name: "x"})


@pytest.mark.parametrize(
    ("one", "other"),
    [("ingest.topic.a.keys", "ingest.topic.a.KEYS"), ("ingest.topic.a.table", "Ingest.Topic.a.table"),
     ("ingest.topic.a.tableProperty.x", "ingest.topic.a.TableProperty.x")],
)  # fmt: skip
def test_a_setting_of_a_topic_in_two_spellings_is_refused(one: str, other: str) -> None:
    with pytest.raises(ConfigurationError, match=f"topic a .*twice.* {other}"):
        topic_overrides({one: "x", other: "y"})
    of_two = {one: "x", other.replace(".a.", ".A."): "y", "ingest.topic.a.tableProperty.X": "z"}
    assert set(topic_overrides(of_two)) == {"a", "A"}


def test_topics_of_one_table_have_their_own_settings_in_place_of_the_others() -> None:
    settings = {
        "ingest.topic.a.COMPRESSION": "zstd", "ingest.topic.b.compression": "zstd", "ingest.compression": "none",
        "ingest.topic.a.table": "/t", "subscribe": "a,b",
    }  # fmt: skip
    assert settings_of_topics(settings, ["b", "a"]) == {"subscribe": "a,b", "ingest.compression": "zstd"}
    assert settings_of_topics(settings, []) == {"subscribe": "a,b", "ingest.compression": "none"}
    with pytest.raises(ConfigurationError, match=r"topics b and c .*ingest\.topic"):
        settings_of_topics(settings, ["b", "c"])


def test_routes_are_patterns_and_tables() -> None:
    given = {"ingest.route": "orders=bronze.orders, eu-.*=/lake/year=1/eu,"}
    assert GivenOptions(given).read(ROUTE) == (("orders", "bronze.orders"), ("eu-.*", "/lake/year=1/eu"))


@pytest.mark.parametrize("given", ["orders", "=t", "a=", "(=t", "a=t,b"])
def test_a_malformed_route_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="option ingest.route"):
        GivenOptions({"ingest.route": given}).read(ROUTE)


def test_deltalake_gets_what_was_given_and_no_more() -> None:
    given = delta_storage_options(STORAGE, "lake")
    assert given["aws_endpoint"] == "http://lake:9000/lake" and given["allow_http"] == "true"
    assert given["aws_skip_signature"] == "true" and "aws_session_token" not in given
    signed = delta_storage_options(replace(STORAGE, anonymous=False), "lake")
    assert signed["aws_skip_signature"] == "false" and signed["aws_session_token"] == "token"


def test_deltalake_gets_place_and_credentials_in_azures_and_googles_storage() -> None:
    azure = TableStorage(azure_account_key="key", azure_endpoint_url="http://emulator/mine")
    uri, given = deltalake_arguments(TableSpec("wasbs://lake@mine.blob.core.windows.net/a/t", azure))
    place = {"account_name": "mine", "endpoint": "http://emulator/mine", "access_key": "key", "allow_http": "true"}
    assert uri == "az://lake/a/t" and given.items() >= place.items()
    by_pod = replace(AZURE, azure_managed_identity=False)
    given = deltalake_arguments(TableSpec("abfss://lake@mine.dfs.core.windows.net/t", by_pod))[1]
    pod = {
        "client_id": "app", "tenant_id": "me", "authority_host": "https://login", "federated_token_file": "/token",
    }  # fmt: skip
    assert given.items() >= pod.items()
    uri, given = deltalake_arguments(TableSpec("gs://lake/t", TableStorage(gcs_anonymous=True)))
    place = {"base_url": "https://storage.googleapis.com", "skip_signature": "true", "allow_http": "false"}
    assert uri == "gs://lake/t" and given.items() >= place.items()
    assert deltalake_arguments(TableSpec("s3://lake/t", STORAGE)) == (
        "s3://lake/t",
        delta_storage_options(STORAGE, "lake"),
    )


def test_a_table_gets_all_columns_in_either_lane() -> None:
    given = {"subscribe": "t", "kafka.bootstrap.servers": "b:9092"}
    check_settings(given, "direct")
    for lane in ("direct", "spark"):
        with pytest.raises(ConfigurationError, match="option columns "):
            check_settings({**given, "Columns": "offset,value"}, lane)


def test_a_placeholder_that_only_a_broker_fills_in_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ingest\.storage\.secret\.key .*\$\{secrets:…\}"):
        check_names({"ingest.storage.secret.key": "${secrets:lake/credentials:secret}"})


def test_keys_of_a_single_topic_need_the_mode_that_merges() -> None:
    keys = {"ingest.topic.orders.keys": "id", "subscribe": "orders", "kafka.bootstrap.servers": "b:9092"}
    with pytest.raises(ConfigurationError, match=r"ingest\.keys .*ingest\.mode is append"):
        check_settings(keys, "auto")


@pytest.mark.parametrize(
    ("uri", "codec"),
    [("file:///lake", "snappy"), ("s3://lake/t", "zstd"), ("abfss://c@a/t", "zstd"), ("hdfs://n/t", "zstd")],
)
def test_files_are_compressed_more_where_a_network_carries_them(uri: str, codec: str) -> None:
    assert replace(table_spec({}), uri=uri).codec == codec
    assert replace(table_spec({"ingest.compression": "gzip"}), uri=uri).codec == "gzip"

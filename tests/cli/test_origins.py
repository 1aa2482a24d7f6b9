"""Errors and `doctor` name the settings that the user wrote, and where they were written."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from tests.rigs.stack.processes import free_ports
from tiered_stream import read_options
from tiered_stream.cli import app
from tiered_stream.errors import ConfigurationError, StorageBucketNotFoundError, StorageUnavailableError
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.parsing import StorageOptions, parse_storage_options
from tiered_stream.options.settings_files import (
    command_settings,
    file_settings,
    naming_lines,
    note_session_settings,
    origin_of,
    spark_settings,
    with_origins,
)
from tiered_stream.storage.aiven.encryption import load_key_ring
from tiered_stream.storage.open_store import open_service, open_store
from tiered_stream.storage.s3 import S3Bucket
from tiered_stream.storage.segment_places import Place, configured_place

OURS = "option remote.storage.uri", "remote.storage."
PASTED = "setting rsm.config.storage.s3.bucket.name", "rsm.config.storage."
AIVEN = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
FILE = r"""# the job's settings

kafka.bootstrap.servers=127.0.0.1:%d
subscribe=\
    orders
startingOffsets=soon
kafka.ssl.key.password=hunter2
rsm.config.storage.s3.bucket.name=my-tier
rsm.config.storage.aws.secret.access.key=hunter3
rsm.config.storage.aws.access.key.id=hunter4
remote.log.storage.manager.class.name=io.aiven.kafka.tieredstorage.RemoteStorageManager
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.properties"
    path.write_text(FILE % free_ports(1)[0])
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_the_line_of_each_setting_is_known_after_comments_and_continued_lines(file: Path) -> None:
    command_settings(file, ["kafka.client.rack=a"], {"subscribe": "other"})
    assert origin_of("kafka.bootstrap.servers") == f"{file}, line 3"
    assert origin_of("STARTINGOFFSETS") == f"{file}, line 6"
    assert origin_of("subscribe") == origin_of("kafka.client.rack") == "command line"
    assert origin_of("remote.storage.uri") == ""


def test_an_error_names_the_file_and_the_line_of_the_setting(file: Path) -> None:
    ended = run("plan", "--settings", str(file))
    assert ended.exit_code == 2
    assert "option startingOffsets: 'soon'" in ended.output
    assert ended.output.strip().endswith(f"(startingOffsets: {file}, line 6)")


def test_a_setting_is_named_only_where_its_whole_name_occurs(file: Path) -> None:
    command_settings(file, None, {})
    for text in ("mysubscribe is wrong", "subscribePattern is wrong", "kafka.bootstrap.servers.more is wrong"):
        assert with_origins(text) == text
    assert with_origins("correct subscribe.") == f"correct subscribe. (subscribe: {file}, line 4)"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"remote.storage.uri": "s3://my-tier", "remote.storage.layout": "aiven"}, OURS),
        ({"rsm.config.storage.s3.bucket.name": "my-tier"}, PASTED),
        ({"rsm.config.storage.s3.bucket.name": "b", "remote.storage.uri": "s3://c"}, OURS),
    ],
)
def test_errors_about_a_bucket_name_the_setting_that_named_it(given: dict[str, str], place: tuple[str, str]) -> None:
    pasted = {"remote.log.storage.manager.class.name": AIVEN} if "remote.storage.layout" not in given else {}
    service = open_service(parse_storage_options({**given, **pasted}))
    assert (service.use.place, service.use.prefix) == place


def test_errors_about_a_folder_name_the_setting_that_named_it(tmp_path: Path) -> None:
    given = {"rsm.config.storage.root": str(tmp_path / "gone"), "remote.log.storage.manager.class.name": AIVEN}
    with pytest.raises(StorageBucketNotFoundError, match=r"gone \(setting rsm\.config\.storage\.root\) "):
        list(open_store(parse_storage_options(given)).list(""))


CUSTOM = {
    "remote.log.storage.manager.impl.prefix": "Tier.Store.",
    "tier.store.storage.s3.bucket.name": "my-tier",
    "Tier.Store.key.prefix": "kafka/",
    "tier.store.encryption.key.pairs": "key1",
    "remote.log.storage.manager.class.name": AIVEN,
}


def custom() -> StorageOptions:
    return parse_storage_options(CUSTOM)


def test_errors_name_the_plugins_properties_by_the_users_own_prefix() -> None:
    use = open_service(custom()).use
    assert (use.place, use.prefix) == ("setting Tier.Store.storage.s3.bucket.name", "Tier.Store.storage.")
    with pytest.raises(ConfigurationError, match=r"^Tier\.Store\.encryption\.key\.pairs\.key1\.private\.key\.file "):
        load_key_ring(custom().rsm_config, custom().plugin_prefix)
    there = Place(StorageLayout.AIVEN, "s3://my-tier", "other/")
    assert there.correction(configured_place(custom())) == "Tier.Store.key.prefix=other/"


def test_doctor_shows_and_hides_properties_with_the_users_own_prefix(tmp_path: Path) -> None:
    file = tmp_path / "own.properties"
    lines = {**CUSTOM, "Tier.Store.storage.aws.secret.access.key": "hunter2", "subscribe": "a",
             "kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"}  # fmt: skip
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    said = findings("--settings", str(file))["effective settings"]
    assert f"Tier.Store.key.prefix=kafka/ ({file}, line 3)" in said
    assert f"Tier.Store.storage.aws.secret.access.key=(hidden) ({file}, line 6)" in said
    assert "remote.storage.uri=s3://my-tier (from Tier.Store.storage.s3.bucket.name)" in said
    assert "remote.storage.layout=aiven (from remote.log.storage.manager.class.name)" in said


def test_sparks_settings_have_origins_with_and_without_the_prefix_for_hadoop(tmp_path: Path) -> None:
    command_settings(None, None, {})
    file = tmp_path / "spark.conf"
    file.write_text("# Spark\nspark.hadoop.fs.s3a.endpoint http://one\nspark.sql.session.timeZone UTC\n")
    assert spark_settings(file, ["spark.master=local[1]"])["spark.hadoop.fs.s3a.endpoint"] == "http://one"
    assert origin_of("spark.master") == "--spark-conf"
    for name in ("fs.s3a.endpoint", "spark.hadoop.fs.s3a.endpoint"):
        assert with_origins(f"correct {name}") == f"correct {name} (spark.hadoop.fs.s3a.endpoint: {file}, line 2)"
    assert (
        with_origins("correct spark.master or fs.s3a.endpoint.region")
        == "correct spark.master or fs.s3a.endpoint.region"
    )


def test_a_session_of_spark_submit_has_the_origins_that_its_file_still_gives(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("spark.sql.session.timeZone=UTC\nspark.executor.cores=2\n")
    command_settings(None, None, {})
    session = {"spark.sql.session.timeZone": "UTC", "spark.executor.cores": "4", "spark.app.name": "job"}
    note_session_settings(session, file)
    assert origin_of("spark.sql.session.timeZone") == f"{file}, line 1"
    assert origin_of("spark.executor.cores") == origin_of("spark.app.name") == "Spark's configuration"
    command_settings(None, None, {})
    note_session_settings(session, tmp_path / "gone.conf")
    assert origin_of("spark.sql.session.timeZone") == "Spark's configuration"


def test_refused_credentials_of_the_environment_are_named_by_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    place = {"remote.storage.uri": "s3://my-tier", "remote.storage.layout": "aiven"}
    keys = {"remote.storage.aws.access.key.id": "id", "remote.storage.aws.secret.access.key": "hunter3"}
    for given, wanted in ((place, "check AWS_ACCESS_KEY_ID, AWS_"), (place | keys, "check remote.storage.aws.access.")):
        service = open_service(parse_storage_options(given))
        assert isinstance(service, S3Bucket)
        service.connect(1)
        assert service.access_hint().startswith(wanted)


def test_an_endpoint_of_the_environment_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    given = {"remote.storage.uri": "s3://my-tier", "remote.storage.layout": "aiven",
             "remote.fetch.request.timeout.ms": "2000"}  # fmt: skip
    with pytest.raises(StorageUnavailableError, match=r"\(.*AWS_ENDPOINT_URL"):
        list(open_store(parse_storage_options(given)).list(""))


def test_the_gateway_names_the_line_in_that_of_its_files_which_gives_the_setting(tmp_path: Path) -> None:
    one, two = tmp_path / "one.properties", tmp_path / "two.properties"
    one.write_text(
        "kafka.bootstrap.servers=127.0.0.1:1\ngateway.advertised.host=localhost\nremote.storage.uri=s3://a\n"
    )
    two.write_text("# the gateway's own\ngateway.bootstrap.port=no\n")
    with pytest.raises(ConfigurationError) as raised:
        GatewaySettings.parse(file_settings(one, two))
    assert with_origins(str(raised.value)).endswith(f"(gateway.bootstrap.port: {two}, line 2)")


def test_errors_of_a_program_name_the_lines_of_the_file_that_it_has_read(file: Path) -> None:
    options = read_options(file)
    with pytest.raises(ConfigurationError) as raised, naming_lines(options["remote.settings.file"]):
        raise ConfigurationError("option startingOffsets: 'soon' is malformed")
    assert str(raised.value) == f"option startingOffsets: 'soon' is malformed (startingOffsets: {file}, line 6)"
    file.unlink()
    with pytest.raises(ConfigurationError, match="malformed$"), naming_lines(str(file)):
        raise ConfigurationError("option startingOffsets: 'soon' is malformed")


def test_the_planner_of_a_plain_query_names_the_lines_of_the_settings_file(spark: SparkSession, file: Path) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.read.format("tiered_stream").options(**read_options(file)).load()
    assert f"(startingOffsets: {file}, line 6)" in str(raised.value)
    file.write_text(file.read_text().replace("soon", "earliest"))
    rows = spark.read.format("tiered_stream").options(**read_options(file), **FAILS_SOON).load()
    with pytest.raises(PySparkException) as raised:
        rows.count()
    assert f"(kafka.bootstrap.servers: {file}, line 3)" in str(raised.value)


FAILS_SOON = {"kafka.default.api.timeout.ms": "5000"}


def findings(*words: str) -> dict[str, str]:
    ended = run("doctor", "--json", *words)
    assert "hunter" not in ended.output
    return {each["check"]: each["found"] for each in orjson.loads(ended.stdout)["findings"]}


def test_doctor_names_the_line_of_a_setting_that_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.properties"
    file.write_text(f"""subscribe=a
kafka.bootstrap.servers=127.0.0.1:{free_ports(1)[0]}
kafka.security.protocol=SSL
kafka.ssl.truststore.location={tmp_path}/none.pem
kafka.ssl.truststore.type=PEM
""")
    found = findings("--settings", str(file))["settings"]
    assert f"(kafka.ssl.truststore.location: {file}, line 4)" in found


def test_doctor_lists_the_settings_with_their_origins_and_without_secrets(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter5")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter6@proxy:3128")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://me:{'hunter9' * 50}@collector")
    conf = tmp_path / "spark.conf"
    conf.write_text("spark.hadoop.fs.s3a.endpoint=http://me:hunter7@one\nspark.hadoop.fs.s3a.secret.key=hunter8\n")
    more = [f"kafka.own{number}={'x' * 100}" for number in range(100)]
    options = [text for each in ("startingOffsets=earliest", *more) for text in ("--option", each)]
    spark = ["--properties-file", str(conf), "--spark-conf", "spark.master=local[1]"]
    found = findings("--settings", str(file), *options, *spark)
    said = found["effective settings"]
    assert f"subscribe=orders ({file}, line 4)" in said
    assert "startingOffsets=earliest (command line)" in said
    assert f"kafka.ssl.key.password=(hidden) ({file}, line 7)" in said
    assert "remote.storage.uri=s3://my-tier (from rsm.config.storage.s3.bucket.name)" in said
    assert found["Spark's settings"] == (
        f"spark.hadoop.fs.s3a.endpoint=(hidden) ({conf}, line 1); "
        f"spark.hadoop.fs.s3a.secret.key=(hidden) ({conf}, line 2); "
        "spark.master=local[1] (--spark-conf)"
    )
    hidden = ("AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "OTEL_EXPORTER_OTLP_ENDPOINT")
    assert {"AWS_REGION=eu-west-1", *(f"{name}=(hidden)" for name in hidden)} <= set(
        found["environment variables"].split("; ")
    )

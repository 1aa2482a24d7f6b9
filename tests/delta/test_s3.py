"""Tables in S3: where they are is what Spark's session says, for both lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.delta import committing
from tests.delta.archive import ODD, copy_segments, everything, in_order, options
from tests.delta.clouds import in_s3
from tests.rigs.stack.customer_keys import KEY, CustomerKeyHandler
from tests.rigs.stack.http_front import HttpFront
from tests.rigs.stack.older_s3 import older
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.spark import configured
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream import land, verify
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import Landing, plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.errors import ConfigurationError, TableAccessError, TableError

# Hadoop keeps one file system a bucket and process, whatever is set later: each test has a bucket of its own.


def s3a(lake: VersityGateway, bucket: str, **changed: str) -> dict[str, str]:
    """How Spark's session is told of the lake; `changed` by the setting's name, `_` for `.`."""
    settings = s3a_settings(lake.endpoint, lake.access_key, lake.secret_key, bucket)
    return settings | {f"fs.s3a.bucket.{bucket}.{name.replace('_', '.')}": value for name, value in changed.items()}


def keys(gateway: VersityGateway, bucket: str, prefix: str) -> list[str]:
    listed = gateway.client().list_objects_v2(Bucket=bucket, Prefix=prefix)
    return [each["Key"] for each in listed.get("Contents", ())]


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    """Where the segments are: another server than the lake, with other keys."""
    folder = tmp_path_factory.mktemp("tier")
    with VersityGateway(folder / "versitygw", folder / "buckets", "tier-user", "tier-secret") as gateway:
        yield gateway


def segments(tier: VersityGateway, bucket: str) -> dict[str, str]:
    """The golden archive put into the tier's bucket of this name, and the options that read it there."""
    client = tier.client()
    client.create_bucket(Bucket=bucket)
    copy_segments(lambda key, data: client.put_object(Bucket=bucket, Key=key, Body=data))
    return options(given={**tier.options(), "remote.storage.uri": f"s3://{bucket}"})


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_table_and_segments_are_in_buckets_of_one_name_on_two_servers(
    spark: SparkSession, tmp_path: Path, lake: VersityGateway, tier: VersityGateway, lane: str
) -> None:
    bucket = f"same-name-{lane}"
    lake.client().create_bucket(Bucket=bucket)
    given = segments(tier, bucket) | {"maxOffsetsPerTrigger": "1500", "ingest.dayColumn": "day"}
    with configured(spark, s3a(lake, bucket)):
        table = f"s3a://{bucket}/bronze/orders"
        query = land(spark, options=given, table=table, checkpoint=str(tmp_path / "checkpoint"), lane=lane)
        query.awaitTermination()
        assert query.recentProgress[-1].batchId >= 3
        plan = query._jsq.explainInternal(True)
        # Spark itself finds the table that the lane has written.
        assert spark.read.format("delta").load(table).count() == everything(ODD).num_rows
    assert in_order(committing.table(in_s3(lake, f"s3://{bucket}/bronze/orders")).to_pyarrow_table()).equals(
        everything(ODD)
    )
    assert keys(tier, bucket, "bronze") == []
    assert not [key for key in keys(lake, bucket, "bronze/orders/day=") if key.endswith("/")]
    for secret in (lake.secret_key, tier.secret_key):
        assert secret not in plan


@pytest.mark.parametrize("commit", ["spark", "deltalake"])
def test_a_table_whose_objects_have_a_key_of_ones_own_is_landed_and_read(
    spark: SparkSession, tmp_path: Path, lake: VersityGateway, commit: str
) -> None:
    bucket = f"own-key-{commit}"
    lake.client().create_bucket(Bucket=bucket)
    front = HttpFront(free_ports(1)[0], lake.port, CustomerKeyHandler)
    encryption = {"encryption_algorithm": "SSE-C", "encryption_key": KEY, "endpoint": front.endpoint}
    table, given = f"s3a://{bucket}/orders", options(given={"ingest.commit": commit})
    with front, configured(spark, s3a(lake, bucket, **encryption)):
        landing = plan_query(spark, options=given, table=table, run=QueryRun(str(tmp_path / "checkpoint")))
        query = landing.start()
        query.awaitTermination()
        assert spark.read.format("delta").load(table).count() == everything(ODD).num_rows
    assert landing.lane is Lane.DIRECT
    assert KEY not in query._jsq.explainInternal(True)


@pytest.mark.slow
def test_a_server_without_newer_checksums_and_starts_of_listings_loses_nothing(
    spark: SparkSession, tmp_path: Path, lake: VersityGateway, tier: VersityGateway
) -> None:
    fronts = {server: HttpFront(free_ports(1)[0], server.port, older(server)) for server in (lake, tier)}
    lake.client().create_bucket(Bucket="older")
    given = segments(tier, "older") | {"maxOffsetsPerTrigger": "1500"}
    given["remote.storage.s3.endpoint.url"] = fronts[tier].endpoint
    with fronts[lake], fronts[tier], configured(spark, s3a(lake, "older", endpoint=fronts[lake].endpoint)):
        table = "s3a://older/orders"
        query = land(spark, options=given, table=table, checkpoint="s3a://older/checkpoint", lane="direct")
        query.awaitTermination()
        assert query.recentProgress[-1].batchId >= 3
        assert verify(spark, options=given, table=table).equal
        by_deltalake = given | {"ingest.commit": "deltalake"}
        query = land(spark, options=by_deltalake, table="s3a://older/other", checkpoint=str(tmp_path), lane="direct")
        with pytest.raises(StreamingQueryException, match=r"may ignore start-after .*: set ingest.commit=spark"):
            query.awaitTermination()
    assert in_order(committing.table(in_s3(lake, "s3://older/orders")).to_pyarrow_table()).equals(everything(ODD))


@pytest.mark.parametrize("lane", ["auto", "direct", "spark"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"secret_key": "a wrong secret"}, "SignatureDoesNotMatch|AccessDeniedException"),
        (
            {"aws_credentials_provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            "AccessDenied|Access Denied",
        ),
    ],
)
def test_wrong_credentials_are_said_by_both_lanes(
    spark: SparkSession, tmp_path: Path, lake: VersityGateway, lane: str, wrong: Mapping[str, str], said: str
) -> None:
    bucket = f"wrong-{'-'.join(wrong)}-{lane}".replace("_", "-")
    lake.client().create_bucket(Bucket=bucket)
    with configured(spark, s3a(lake, bucket, **wrong)), pytest.raises(TableError, match=said) as e:
        land(spark, options=options(), table=f"s3a://{bucket}/t", checkpoint=str(tmp_path), lane=lane)
    assert "a wrong secret" not in str(e.value) and "\n" not in str(e.value) and "\x1b" not in str(e.value)
    assert keys(lake, bucket, "") == []


def test_a_lane_that_the_store_refuses_is_not_left_for_the_other(
    spark: SparkSession, tmp_path: Path, lake: VersityGateway
) -> None:
    """A bucket that is not there, and an endpoint where nobody is."""
    (port,) = free_ports(1)
    for bucket, changed in (("no-such-bucket", {}), ("no-endpoint", {"endpoint": f"http://127.0.0.1:{port}"})):
        with configured(spark, s3a(lake, bucket, **changed)), pytest.raises(TableAccessError) as e:
            plan_query(spark, options=options(), table=f"s3a://{bucket}/t", run=QueryRun(str(tmp_path)))
        assert ("NoSuchBucket" if not changed else "Connection refused") in str(e.value)


def planned(
    spark: SparkSession, lake: VersityGateway, bucket: str, given: Mapping[str, str], **changed: str
) -> Landing:
    lake.client().create_bucket(Bucket=bucket)
    with configured(spark, s3a(lake, bucket, **changed)):
        return plan_query(spark, options=options(given=given), table=f"s3a://{bucket}/t", run=QueryRun("/not/yet"))


def test_what_tasks_cannot_do_is_left_to_spark_and_said(spark: SparkSession, lake: VersityGateway) -> None:
    landing = planned(spark, lake, "left-to-spark", {}, object_content_encoding="gzip")
    assert landing.lane is Lane.SPARK
    assert (
        landing.reason == "fs.s3a.object.content.encoding is set, which tasks that write files themselves do not follow"
    )


def test_keys_of_the_tables_own_go_before_those_of_the_session(spark: SparkSession, lake: VersityGateway) -> None:
    own = {"ingest.storage.aws.access.key.id": lake.access_key, "ingest.storage.aws.secret.access.key": lake.secret_key}
    # No such class: Spark itself could not make the table, nor commit to it.
    by_tasks = own | {"ingest.commit": "deltalake"}
    landing = planned(spark, lake, "own-keys", by_tasks, aws_credentials_provider="my.VaultCredentialsProvider")
    assert landing.lane is Lane.DIRECT and landing.opened.spec.storage.s3_endpoint_url == lake.endpoint
    other = {"ingest.storage.s3.endpoint.url": "http://127.0.0.1:1"}
    with pytest.raises(ConfigurationError, match=f"bucket other-store .*{lake.endpoint}"):
        planned(spark, lake, "other-store", other)


def test_keys_in_a_credential_file_are_found(spark: SparkSession, tmp_path: Path, lake: VersityGateway) -> None:
    bucket, store = "keys-in-a-file", f"jceks://file{quote(str(tmp_path))}/keys.jceks"
    jvm = spark._jvm
    assert jvm is not None
    shell = jvm.org.apache.hadoop.security.alias.CredentialShell()
    shell.setConf(jvm.org.apache.hadoop.conf.Configuration())
    for name, value in (("access.key", lake.access_key), ("secret.key", lake.secret_key)):
        words = ["create", f"fs.s3a.bucket.{bucket}.{name}", "-value", value, "-provider", store]
        arguments = spark.sparkContext._gateway.new_array(jvm.String, len(words))
        for at, word in enumerate(words):
            arguments[at] = word
        assert shell.run(arguments) == 0
    empty = {"access_key": "", "secret_key": ""}
    landing = planned(spark, lake, bucket, {}, **empty, security_credential_provider_path=store)
    assert landing.lane is Lane.DIRECT
    assert (landing.opened.spec.storage.access_key_id, landing.opened.spec.storage.secret_access_key) == (
        lake.access_key,
        lake.secret_key,
    )


def test_a_store_that_goes_away_is_said_by_the_query(spark: SparkSession, tmp_path: Path, lake: VersityGateway) -> None:
    lake.client().create_bucket(Bucket="goes-away")
    # As it comes, Hadoop tries again for minutes.
    with configured(spark, s3a(lake, "goes-away", retry_limit="1", attempts_maximum="1")):
        landing = plan_query(
            spark,
            options=options(),
            table="s3a://goes-away/t",
            run=QueryRun(str(tmp_path / "checkpoint")),
            lane="direct",
        )
        lake.stop()
        with pytest.raises(StreamingQueryException, match="s3a://goes-away/t cannot be opened by Spark"):
            landing.start().awaitTermination()

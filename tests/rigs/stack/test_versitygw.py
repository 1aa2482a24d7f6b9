"""Spark's own way to a table in S3, over a server with conditional puts."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from pyspark.sql import SparkSession

from tests.rigs.stack.built import check_module
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.versitygw import CHECKSUM, MODULE, VERSION, VersityGateway


def test_a_program_built_of_other_files_is_refused() -> None:
    built = f"versitygw: go1.26.8\n\tpath\t{MODULE}\n\tmod\tgithub.com/versity/versitygw\t{VERSION}\t{CHECKSUM}\n"
    check_module(built, "versitygw", VERSION, CHECKSUM)
    with pytest.raises(StackError, match="built of github.com/versity/versitygw v1.8.0 h1:other, not of"):
        check_module(built.replace(CHECKSUM, "h1:other"), "versitygw", VERSION, CHECKSUM)


def test_an_object_is_put_only_where_none_is(lake: VersityGateway) -> None:
    client = lake.client()
    client.create_bucket(Bucket="conditional")
    client.put_object(Bucket="conditional", Key="log/0.json", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket="conditional", Key="log/0.json", Body=b"second", IfNoneMatch="*")
    assert client.get_object(Bucket="conditional", Key="log/0.json")["Body"].read() == b"first"


def test_a_connection_is_kept_from_one_request_to_the_next(lake: VersityGateway) -> None:
    answer = lake.client().list_buckets()["ResponseMetadata"]["HTTPHeaders"]
    assert answer.get("connection") != "close"


def test_spark_writes_and_streams_a_delta_table_over_s3a(spark: SparkSession, lake: VersityGateway) -> None:
    bucket = "spark-writes"  # Hadoop keeps one file system a bucket: no other test has it
    lake.client().create_bucket(Bucket=bucket)
    settings = s3a_settings(lake.endpoint, lake.access_key, lake.secret_key, bucket)
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        table = f"s3a://{bucket}/bronze/orders"
        for start in (0, 10):
            spark.range(start, start + 10).write.format("delta").mode("append").save(table)
        copy, checkpoint = f"s3a://{bucket}/silver/orders", f"s3a://{bucket}/checkpoints/orders"
        stream = spark.readStream.format("delta").load(table).writeStream.format("delta")
        stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(copy).awaitTermination()
        rows = spark.read.format("delta").load(copy).orderBy("id").collect()
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert [row.id for row in rows] == list(range(20))
    listed = lake.client().list_objects_v2(Bucket=bucket, Prefix="bronze/orders/_delta_log/0")["Contents"]
    assert [each["Key"][-10:] for each in listed if each["Key"].endswith(".json")] == ["00000.json", "00001.json"]

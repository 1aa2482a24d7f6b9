"""Landing and verifying at AWS's own hosts: segments and table there, with Spark, its S3A and its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.archives import COMMITTED, PLAIN, archive_options, consumed
from tests.rigs.cloud.aws import Aws
from tests.rigs.stack.spark import configured
from tests.storage.test_aws_hosts import archive_in, pasted
from tiered_stream import land, verify

pytestmark = pytest.mark.slow

ENDPOINT, REGION = "endpoint", "endpoint.region"
SETUPS = {
    "eu-south-1": ("eu-south-1", {REGION: "eu-south-1"}),
    "il-central-1": ("il-central-1", {REGION: "il-central-1"}),
    "us-east-1": ("us-east-1", {REGION: "us-east-1"}),
    "eu-west-1": ("eu-west-1", {ENDPOINT: "s3.eu-west-1.amazonaws.com"}),
    "cn-north-1": ("cn-north-1", {REGION: "cn-north-1"}),
    "us-gov-west-1": ("us-gov-west-1", {REGION: "us-gov-west-1"}),
    "with.dots": ("eu-west-1", {REGION: "eu-west-1"}),
    "dual-stack": ("eu-west-1", {ENDPOINT: "s3.dualstack.eu-west-1.amazonaws.com"}),
    "fips": ("us-west-2", {"endpoint.fips": "true", REGION: "us-west-2"}),
    "interface": ("eu-west-1", {ENDPOINT: "https://bucket.vpce-1a2b-3c4d.s3.eu-west-1.vpce.amazonaws.com"}),
}
"""Region and S3A's settings, by the name of the table's bucket."""


def s3a(bucket: str, given: Mapping[str, str]) -> dict[str, str]:
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in given.items()}


@pytest.mark.parametrize("bucket", SETUPS)
def test_an_archive_is_landed_and_verified(
    aws: Aws, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bucket: str
) -> None:
    region, given = SETUPS[bucket]
    archive_in(aws, aws.bucket(f"tier-{region}-{bucket.replace('.', '-')}", region))
    aws.bucket(bucket, region)
    writer, reader = aws.user("writer", region), aws.user("reader", region)
    options = archive_options(PLAIN, storage=pasted(f"tier-{region}-{bucket.replace('.', '-')}", region)) | {
        "remote.storage.aws.access.key.id": reader.key_id,
        "remote.storage.aws.secret.access.key": reader.secret,
    }
    keys = {"access.key": writer.key_id, "secret.key": writer.secret}
    with configured(spark, s3a(bucket, given | keys)):
        table = f"s3a://{bucket}/bronze/all"
        land(
            spark, options=options, table=table, checkpoint=f"s3a://{bucket}/checkpoint", lane="direct"
        ).awaitTermination()
        rows = sum(map(len, consumed(PLAIN, COMMITTED).values()))
        assert spark.read.format("delta").load(table).count() == rows
        assert verify(spark, options=options, table=table).equal
    seen = {(each.identity, each.region) for each in aws.requests if each.status < 300}
    assert seen == {("user/reader", region), ("user/writer", region)}

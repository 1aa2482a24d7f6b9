"""A table in S3, written to and committed without any jar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.landing.archive import ODD, everything, in_order, options
from tests.stack.s3_client import REGION
from tests.stack.s3proxy import S3Proxy
from tiered_stream import land
from tiered_stream.errors import ConfigurationError
from tiered_stream.landing.storage import delta_storage_options
from tiered_stream.landing.target import table_storage
from tiered_stream.options import StorageOptions

pytestmark = pytest.mark.stack


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[S3Proxy]:
    proxy = S3Proxy(tmp_path / "s3proxy", tmp_path / "buckets")
    proxy.start()
    proxy.client().create_bucket(Bucket="lake")
    yield proxy
    proxy.stop()


def settings(proxy: S3Proxy) -> dict[str, str]:
    return {
        "ingest.storage.s3.endpoint.url": proxy.endpoint,
        "ingest.storage.s3.region": REGION,
        "ingest.storage.s3.path.style.access.enabled": "true",
        "ingest.storage.aws.access.key.id": proxy.access_key,
        "ingest.storage.aws.secret.access.key": proxy.secret_key,
    }


def test_a_table_in_a_bucket_is_made_and_landed_in(spark: SparkSession, tmp_path: Path, proxy: S3Proxy) -> None:
    given = settings(proxy) | {"maxOffsetsPerTrigger": "1500", "ingest.dayColumn": "day"}
    query = land(
        spark,
        options=options(given=given),
        table="s3a://lake/bronze/orders",
        checkpoint=str(tmp_path / "checkpoint"),
        lane="direct",
    )
    query.awaitTermination()
    storage = delta_storage_options(table_storage(given, StorageOptions()))
    table = DeltaTable("s3://lake/bronze/orders", storage_options=storage)
    assert in_order(table.to_pyarrow_table()).equals(everything(ODD))
    assert table.version() >= 4


def test_wrong_credentials_are_told_and_not_shown(spark: SparkSession, tmp_path: Path, proxy: S3Proxy) -> None:
    wrong = settings(proxy) | {"ingest.storage.aws.secret.access.key": "very secret"}
    with pytest.raises(
        ConfigurationError, match="the direct lane cannot write to s3://lake/t: the table s3://lake/t"
    ) as e:
        land(spark, options=options(given=wrong), table="s3://lake/t", checkpoint=str(tmp_path), lane="direct")
    assert "very secret" not in str(e.value)

"""Segments in each of three object stores, landed into a table in each of the three."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.delta.archive import ODD, copy_segments, everything, in_order, options
from tests.delta.clouds import azure, google, in_s3
from tests.delta.committing import table
from tests.rigs.stack.azurite import Azurite
from tests.rigs.stack.fake_gcs import FakeGcs
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.spark import configured
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream import land
from tiered_stream.storage.cloud_endpoints import SEGMENTS
from tiered_stream.storage.open_store import open_writable

BUCKET = "three-by-three"


@pytest.mark.slow
def test_segments_of_each_store_are_landed_in_each_store(
    spark: SparkSession, tmp_path: Path, lake: VersityGateway, azurite: Azurite, fake_gcs: FakeGcs
) -> None:
    clouds = {"azure": azure(azurite), "gcs": google(fake_gcs)}
    lake.client().create_bucket(Bucket=BUCKET)
    copy_segments(lambda key, data: lake.client().put_object(Bucket=BUCKET, Key=key, Body=data))
    access = {"s3": {**lake.options(), "remote.storage.uri": f"s3://{BUCKET}"}}
    places = {"s3": f"s3a://{BUCKET}"}
    for name, cloud in clouds.items():
        cloud.create(BUCKET)
        uri = places[name] = f"{cloud.scheme}://{BUCKET}"
        copy_segments(open_writable(cloud.storage.at(uri), SEGMENTS).put)
        own = cloud.settings()
        access[name] = {"remote.storage.uri": uri} | {each.replace("ingest", "remote", 1): own[each] for each in own}
    expected = everything(ODD)
    with configured(spark, s3a_settings(lake.endpoint, lake.access_key, lake.secret_key, BUCKET)):
        for source, reading in access.items():
            for target, place in places.items():
                to = clouds[target].settings() if target in clouds else {}
                path = f"tables/{source}"
                query = land(
                    spark, options=options(given={**reading, **to}), table=f"{place}/{path}",
                    checkpoint=str(tmp_path / f"{source}-{target}"), lane="direct",
                )  # fmt: skip
                query.awaitTermination()
                cloud_files = clouds[target].files(BUCKET, path) if target in clouds else None
                files = cloud_files or in_s3(lake, f"s3://{BUCKET}/{path}")
                assert in_order(table(files).to_pyarrow_table()).equals(expected), (source, target)

"""Tables in S3 at AWS's own hosts: data files, commits and reads of the log are one identity's, at one host."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delta.committing import written
from tests.delta.requirements.test_s3a import s3a
from tests.rigs.cloud.aws import Aws
from tiered_stream.delta.commit.commit_attempts import BatchCommit
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.delta.write.file_systems import open_folder

CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
ENDPOINT, REGION = "fs.s3a.endpoint", "fs.s3a.endpoint.region"


def land_twice(files: TableSpec) -> int:
    """Two batches into a new table, and the number of rows that a reader of its files finds."""
    create_table(files, table_schema(include_headers=False, day_column=None), {})
    table = DeltalakeTable(files)
    for batch in range(2):
        table.prepare()
        table.begin().commit(BatchCommit("query", batch, written(files, 10, 10 * batch)))
    folder = open_folder(files.uri, files.storage)
    paths = table.begin().paths()
    return sum(pq.read_metadata(pa.PythonFile(folder.open_input_file(path), "r")).num_rows for path in paths)


@pytest.mark.parametrize(
    "region,bucket,host,given",
    [
        ("eu-south-1", "lake", "lake.s3.eu-south-1.amazonaws.com", {REGION: "eu-south-1"}),
        ("il-central-1", "lake", "lake.s3.il-central-1.amazonaws.com", {}),
        ("us-east-1", "lake", "lake.s3.us-east-1.amazonaws.com", {}),
        ("eu-west-1", "lake", "lake.s3.eu-west-1.amazonaws.com", {}),
        ("eu-west-1", "pond", "pond.s3.eu-west-1.amazonaws.com", {ENDPOINT: "s3.eu-west-1.amazonaws.com"}),
        ("cn-north-1", "lake", "lake.s3.cn-north-1.amazonaws.com.cn", {REGION: "cn-north-1"}),
        ("us-gov-west-1", "lake", "lake.s3.us-gov-west-1.amazonaws.com", {REGION: "us-gov-west-1"}),
        ("eu-south-1", "my.lake", "s3.eu-south-1.amazonaws.com", {REGION: "eu-south-1"}),
        ("eu-west-1", "lake", "lake.s3.dualstack.eu-west-1.amazonaws.com",
         {ENDPOINT: "s3.dualstack.eu-west-1.amazonaws.com"}),
        ("us-west-2", "lake", "lake.s3-fips.us-west-2.amazonaws.com",
         {"fs.s3a.endpoint.fips": "true", REGION: "us-west-2"}),
        ("eu-west-1", "lake", "lake.bucket.vpce-1a2b-3c4d.s3.eu-west-1.vpce.amazonaws.com",
         {ENDPOINT: "https://bucket.vpce-1a2b-3c4d.s3.eu-west-1.vpce.amazonaws.com"}),
        ("eu-west-1", "access point", "writer-123456789012.s3-accesspoint.eu-west-1.amazonaws.com", {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("keys", ["keys", "chain"])
def test_a_table_is_landed_and_read_at_one_host_by_one_identity(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, region: str, bucket: str, host: str, given: Mapping[str, str], keys: str
) -> None:
    name = "lake" if bucket == "access point" else bucket
    place = aws.bucket(name, region)
    if bucket == "access point":
        given = {f"fs.s3a.bucket.{name}.accesspoint.arn": aws.access_point("writer", place)}
    key = aws.user("writer", region) if keys == "keys" else aws.role("writer", region)
    if keys == "keys":
        given = {**given, "fs.s3a.access.key": key.key_id, "fs.s3a.secret.key": key.secret}
    else:
        given = {**given, "fs.s3a.aws.credentials.provider": CHAIN}
        for variable, value in key.environment().items():
            monkeypatch.setenv(variable, value)
    storage, why_not = s3a(given, bucket=name).find(TableStorage())
    assert why_not is None
    assert land_twice(TableSpec(f"s3://{name}/bronze/orders", storage)) == 20
    # A bucket whose region nobody names is asked for its region at another host first.
    requests = [each for each in aws.requests if each.method != "HEAD" or each.host == host]
    assert {each.host for each in requests} == {host}
    assert {(each.identity, each.region) for each in requests} == {(key.identity, region)}
    assert {each.method for each in requests} >= {"PUT", "GET"}
    assert not [each for each in requests if each.status >= 400 and each.status != 404]

"""An S3 server with conditional puts."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.rigs.stack.errors import StackError
from tests.rigs.stack.versitygw import PROGRAM, VersityGateway


def test_a_program_built_of_other_files_is_refused() -> None:
    module = f"{PROGRAM.module}\t{PROGRAM.version}\t{PROGRAM.checksum}"
    lines = f"versitygw: go1.26.8\n\tpath\t{PROGRAM.module}\n\tmod\t{module}\n"
    PROGRAM.check(lines)
    with pytest.raises(StackError, match=f"built of {PROGRAM.module} v1.8.0 h1:other, not of"):
        PROGRAM.check(lines.replace(PROGRAM.checksum, "h1:other"))


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

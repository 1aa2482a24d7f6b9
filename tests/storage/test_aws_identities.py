"""Objects in S3 are read by the identity that AWS's chain of credentials gives, as long as the reading takes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.rigs.cloud.aws import Aws
from tests.rigs.cloud.origins import CHAIN
from tests.rigs.stack.processes import wait_until
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

REGION = "eu-west-1"


def opened(aws: Aws, monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> ObjectStore:
    aws.home = REGION
    aws.put(aws.bucket("lake", REGION), "tier/key", b"data")
    CHAIN[source](aws, folder).use(monkeypatch)
    return open_store(StorageOptions(uri="s3://lake/tier", s3_region=REGION))


# The other origins give credentials for at least 15 minutes.
@pytest.mark.parametrize("source", ["task of ECS", "instance of EC2", "profile with `credential_process`"])
def test_credentials_that_expire_soon_are_renewed(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    aws.lifetime = 2
    store = opened(aws, monkeypatch, tmp_path, source)
    assert store.get("key", ByteRange(0, 1)) == b"d"
    ends = max(key.expires for key in aws.keys.values() if key.token)
    wait_until(lambda: time.time() > ends, "the end of the credentials")
    assert store.get("key", ByteRange(1, 3)) == b"at"

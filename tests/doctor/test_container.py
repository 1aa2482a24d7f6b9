"""Findings of a bucket in Google's storage; Azure's containers are listed by the same request of the store."""

from __future__ import annotations

import pytest

from tests.storage.clouds import CLOUDS, answer
from tests.storage.scripted_http import ScriptedHttp, error
from tiered_stream.doctor.cloud_bucket import list_container
from tiered_stream.errors import StorageBucketNotFoundError


@pytest.mark.parametrize(
    ("response", "listable", "found", "fix"),
    [
        (answer(200, CLOUDS["gcs"].keys), True, "gs://bucket/p/ can be listed", ""),
        (answer(200, b"<ListBucketResult></ListBucketResult>"), True, "gs://bucket/p/ has no objects", "key prefix"),
        (error(403, "AccessDenied"), False, "403", "Storage Object Viewer"),
    ],
)
def test_a_bucket_is_listed_or_the_fix_is_named(response: bytes, listable: bool, found: str, fix: str) -> None:
    with ScriptedHttp([response]) as server:
        result = list_container(CLOUDS["gcs"].options(server.url))
    assert (result.value, bool(result.fix)) == (listable, bool(fix))
    assert found in result.description and fix in result.fix


def test_a_missing_bucket_is_an_error() -> None:
    with ScriptedHttp([error(404, "NoSuchBucket")]) as server, pytest.raises(StorageBucketNotFoundError):
        list_container(CLOUDS["gcs"].options(server.url))

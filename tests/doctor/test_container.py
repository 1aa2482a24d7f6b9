"""Findings of a bucket in Google's storage; Azure's containers are listed by the same request of the store."""

from __future__ import annotations

import pytest

from tests.storage.clouds import CLOUDS, answer
from tests.storage.scripted_http import ScriptedHttp, error
from tiered_stream.doctor.cloud_bucket import list_container
from tiered_stream.errors import StorageBucketNotFoundError


def test_a_bucket_with_objects_can_be_listed() -> None:
    with ScriptedHttp([answer(200, CLOUDS["gcs"].keys)]) as server:
        result = list_container(CLOUDS["gcs"].options(server.url))
    assert (result.value, result.description, result.fix) == (True, "gs://bucket/p/ can be listed", "")


def test_a_bucket_without_objects_is_a_warning() -> None:
    with ScriptedHttp([answer(200, b"<ListBucketResult></ListBucketResult>")]) as server:
        result = list_container(CLOUDS["gcs"].options(server.url))
    assert result.value and result.description == "gs://bucket/p/ has no objects" and "key prefix" in result.fix


def test_a_refused_list_names_the_roles_and_is_no_reason_to_stop() -> None:
    with ScriptedHttp([error(403, "AccessDenied")]) as server:
        result = list_container(CLOUDS["gcs"].options(server.url))
    assert not result.value and "403" in result.description and "Storage Object Viewer" in result.fix


def test_a_missing_bucket_is_an_error() -> None:
    with ScriptedHttp([error(404, "NoSuchBucket")]) as server, pytest.raises(StorageBucketNotFoundError):
        list_container(CLOUDS["gcs"].options(server.url))

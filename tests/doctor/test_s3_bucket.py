"""What a bucket's answer means. The answers are AWS's; those of real services are in `test_doctor`."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from tests.storage import scripted_http
from tests.storage.scripted_http import ScriptedHttp
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.doctor.clock import check_clock
from tiered_stream.doctor.finding import FaultError
from tiered_stream.doctor.s3_bucket import (
    BucketResponse,
    check_listing,
    list_one_key,
    write_object,
)
from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError, StorageError
from tiered_stream.options.parsing import StorageOptions

BUCKET = StorageOptions(uri="s3://tier/prefix", access_key_id="id", secret_access_key="secret")


def answer(status: int = 200, code: str = "", region: str | None = None, ahead: float | None = 0.0) -> BucketResponse:
    return BucketResponse("https://s3.amazonaws.com", status, code, "us-east-1", region, ahead)


@pytest.mark.parametrize(
    ("given", "mend"),
    [
        (answer(400, "AuthorizationHeaderMalformed", "eu-west-1"), "set remote.storage.s3.region=eu-west-1"),
        (answer(301, "PermanentRedirect"), "set remote.storage.s3.region=the region of the bucket"),
    ],
)
def test_another_region_is_a_fault_with_its_mend(given: BucketResponse, mend: str) -> None:
    with pytest.raises(FaultError) as raised:
        check_listing(BUCKET, given)
    assert mend in raised.value.fix


@pytest.mark.parametrize(
    ("given", "says", "mend"),
    [
        (answer(404, "404"), "404 404", "correct the endpoint"),
        (answer(404, "NoSuchAccessPoint"), "404 NoSuchAccessPoint", "access point"),
        (answer(503, "SlowDown"), "503 SlowDown", "status page"),
    ],
)
def test_a_server_without_such_a_place_or_in_trouble_is_a_fault_with_advice(
    given: BucketResponse, says: str, mend: str
) -> None:
    with pytest.raises(FaultError, match=says) as raised:
        check_listing(BUCKET, given)
    assert mend in raised.value.fix


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (answer(404, "NoSuchBucket"), StorageBucketNotFoundError, r"\(option remote\.storage\.uri\).*correct its name"),
        (answer(404, "XAdminUserNotFound"), StorageAccessError, "correct remote.storage.aws.access.key.id;"),
        (answer(403, "SignatureDoesNotMatch"), StorageAccessError, "correct remote.storage.aws.secret.access.key;"),
        (answer(400, "ExpiredToken"), StorageAccessError, "ExpiredToken; check remote.storage.aws"),
        (answer(403, "ExpiredToken"), StorageAccessError, "ExpiredToken; check remote.storage.aws"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_the_error_of_its_store(
    given: BucketResponse, kind: type[StorageError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        check_listing(BUCKET, given)


def test_a_bucket_that_may_not_be_listed_is_a_warning() -> None:
    seen = check_listing(BUCKET, answer(403, "AccessDenied"))
    assert seen.value is False
    assert "s3:ListBucket" in seen.fix and "arn:aws:s3:::tier" in seen.fix


def test_a_bucket_elsewhere_that_answers_all_the_same_is_a_warning() -> None:
    seen = check_listing(BUCKET, answer(region="eu-west-1"))
    assert (seen.value, seen.fix) == (True, "set remote.storage.s3.region=eu-west-1")


KEYS = ("us-east-1", True, "id", "secret")


@pytest.mark.parametrize("ahead", [-3600, 400])
def test_the_clock_and_the_region_are_those_of_the_services_answer(ahead: int) -> None:
    head = {"Date": formatdate(time.time() - ahead, usegmt=True), "x_amz_bucket_region": "eu-west-1"}
    with ScriptedHttp([scripted_http.answer(200, b"<ListBucketResult/>", **head)]) as server:
        listed = list_one_key(StorageOptions(server.url, *KEYS, uri="s3://tier")).value
    assert (listed.seconds_ahead, listed.region) == (pytest.approx(ahead, abs=60), "eu-west-1")
    seen = check_clock(listed)
    assert seen.fix and ("ahead of" if ahead > 0 else "behind") in seen.description


@pytest.mark.parametrize(("second", "is_honoured"), [(200, False), (409, True), (412, True)])
def test_a_trial_object_shows_if_the_condition_of_a_put_is_honoured(second: int, is_honoured: bool) -> None:
    with ScriptedHttp(map(scripted_http.answer, (200, second, 204))) as server:
        files = TableSpec("s3://lake/orders", TableStorage(server.url, *KEYS))
        assert write_object(files, ".tried") == is_honoured
    asked = [request.split(b" HTTP")[0] for request in server.requests]
    assert asked == [b"%s /lake/orders/.tried" % method for method in (b"PUT", b"PUT", b"DELETE")]
    assert b"if-none-match: *" in server.requests[1].lower()

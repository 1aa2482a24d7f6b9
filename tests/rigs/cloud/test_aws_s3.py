"""S3 at its own host names keeps AWS's rules, by boto3, which follows them, and by bare requests."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import boto3
import certifi
import pytest
import urllib3
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.rigs.cloud.aws import Aws, Credentials
from tests.rigs.cloud.front import RefusedError, Request, Seen
from tests.rigs.cloud.sigv4 import EMPTY, Claim, chunk_signature, signature

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

REGION = "eu-south-1"
HOST = f"lake.s3.{REGION}.amazonaws.com"


def client(key: Credentials, region: str = REGION, endpoint: str | None = None, **config: object) -> S3Client:
    return boto3.client(
        "s3", region_name=region, aws_access_key_id=key.key_id, aws_secret_access_key=key.secret,
        aws_session_token=key.token or None, endpoint_url=endpoint,
        config=Config(retries={"total_max_attempts": 1}, **config),
    )  # fmt: skip


def bare(url: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    """Return status, body and headers of the response, without any retry or redirect."""
    with urllib3.PoolManager(ca_certs=certifi.where()) as pool:
        response = pool.request(method, url, headers=headers, redirect=False, retries=False)
    return response.status, response.data.decode(), {name.lower(): value for name, value in response.headers.items()}


def refusal(aws: Aws, key: Credentials, **config: object) -> tuple[int, str]:
    """Return status and code of the response to a GET of an object of the bucket `lake`."""
    with pytest.raises(ClientError):
        client(key, **config).get_object(Bucket="lake", Key="key")
    return aws.requests[-1].status, aws.requests[-1].code


def test_an_object_is_at_the_host_of_its_bucket(aws: Aws) -> None:
    aws.bucket("lake", REGION)
    s3 = client(aws.role("reader"))
    s3.put_object(Bucket="lake", Key="a b/ä+1", Body=b"data")  # in chunks with a checksum at the end
    s3.copy_object(Bucket="lake", Key="a b/copy", CopySource={"Bucket": "lake", "Key": "a b/ä+1"})
    assert s3.get_object(Bucket="lake", Key="a b/copy", Range="bytes=1-2")["Body"].read() == b"at"
    listed = s3.list_objects_v2(Bucket="lake", Prefix="a b/", MaxKeys=2)
    assert (listed["Name"], [each["Key"] for each in listed["Contents"]]) == ("lake", ["a b/copy", "a b/ä+1"])
    assert s3.head_bucket(Bucket="lake")["BucketRegion"] == REGION
    assert {(each.host, each.identity, each.region) for each in aws.requests} == {(HOST, "role/reader", REGION)}
    assert {each.status for each in aws.requests} == {200, 206}
    assert HOST in aws.lookups
    assert s3.get_bucket_location(Bucket="lake")["LocationConstraint"] == REGION


@pytest.mark.parametrize(
    ("region", "host", "new", "status", "code"),
    [
        ("eu-west-1", "lake.s3.us-west-2.amazonaws.com", False, 301, "PermanentRedirect"),
        ("eu-west-1", "lake.s3.amazonaws.com", True, 307, "TemporaryRedirect"),
        ("eu-west-1", "lake.s3.amazonaws.com", False, 403, "AccessDenied"),
        ("us-east-1", "lake.s3.amazonaws.com", True, 403, "AccessDenied"),
        (REGION, "lake.s3.amazonaws.com", False, 400, "IllegalLocationConstraintException"),
        (REGION, "lake.s3.us-west-2.amazonaws.com", False, 400, "IllegalLocationConstraintException"),
        ("us-west-2", HOST, False, 400, "IllegalLocationConstraintException"),
        ("cn-north-1", "lake.s3.amazonaws.com", False, 404, "NoSuchBucket"),
    ],
)
def test_a_host_of_another_region_says_so_before_it_looks_at_the_signature(
    aws: Aws, region: str, host: str, new: bool, status: int, code: str
) -> None:
    aws.bucket("lake", region, new=new)
    aws.redirect_headers = frozenset({"location", "x-amz-bucket-region"})
    found, body, headers = bare(f"https://{host}/a%20b?versionId=1")
    assert (found, f"<Code>{code}</Code>" in body) == (status, True)
    if status in (301, 307):
        assert f"<Endpoint>lake.s3.{region}.amazonaws.com</Endpoint>" in body
        assert headers["location"] == f"https://lake.s3.{region}.amazonaws.com/a%20b?versionId=1"
    shown = headers.get("x-amz-bucket-region")
    assert shown == (region if status in (301, 307) else None)
    found, body, headers = bare(f"https://{host}", "HEAD")
    assert (found, body) == (status, "")
    assert headers.get("x-amz-bucket-region") == (region if status in (301, 307, 400) else None)


def test_a_signature_holds_for_a_known_key_and_its_secret(aws: Aws) -> None:
    aws.bucket("lake", REGION)
    user, role = aws.user("reader"), aws.role("reader")
    assert refusal(aws, user) == (404, "")
    assert refusal(aws, replace(user, secret="wrong")) == (403, "SignatureDoesNotMatch")
    assert refusal(aws, replace(user, key_id="AKIAUNKNOWN")) == (403, "InvalidAccessKeyId")
    assert refusal(aws, aws.user("reader", "us-gov-west-1")) == (403, "InvalidAccessKeyId")
    assert refusal(aws, replace(role, token="")) == (403, "InvalidAccessKeyId")
    assert refusal(aws, replace(role, token="wrong")) == (400, "InvalidToken")
    assert refusal(aws, aws.role("reader", seconds=-1)) == (400, "ExpiredToken")


def test_a_signature_holds_in_the_region_of_the_host(aws: Aws) -> None:
    aws.put(aws.bucket("lake", REGION), "key", b"data")
    elsewhere = client(aws.user("reader"), "us-east-1", f"https://s3.{REGION}.amazonaws.com")
    elsewhere.get_object(Bucket="lake", Key="key")  # boto3 takes the region from the response
    refused, sent = aws.requests[0], aws.requests[-1]
    assert (refused.status, refused.code) == (400, "AuthorizationHeaderMalformed")
    assert (sent.status, sent.region, sent.path) == (200, REGION, "/lake/key")


def test_a_signed_url_holds_for_its_time_host_and_headers(aws: Aws) -> None:
    aws.put(aws.bucket("lake", REGION), "key", b"data")
    endpoint = f"https://s3.{REGION}.amazonaws.com"
    s3 = client(aws.role("reader"), endpoint=endpoint, signature_version="s3v4", s3={"addressing_style": "virtual"})
    url, late = (
        s3.generate_presigned_url("get_object", {"Bucket": "lake", "Key": "key"}, ExpiresIn=seconds)
        for seconds in (60, -1)
    )
    assert bare(url)[:2] == (200, "data")
    assert aws.requests[-1] == Seen(HOST, "GET", "/key", 200, "", "role/reader", REGION)
    assert bare(url.replace("/key", "/other"))[0] == 403
    assert "Request has expired" in bare(late)[1]
    assert "AuthorizationQueryParametersError" in bare(url.replace(f"%2F{REGION}%2F", "%2Fus-east-1%2F"))[1]
    assert "<HeadersNotSigned>x-amz-checksum-mode<" in bare(url, **{"x-amz-checksum-mode": "ENABLED"})[1]
    assert bare(url, "HEAD")[0] == 403
    assert aws.requests[-1].code == "SignatureDoesNotMatch"


def test_rules_of_buckets_and_grants_are_kept(aws: Aws) -> None:
    aws.put(aws.bucket("lake", REGION, requester_pays=True), "key", b"data")
    s3 = client(aws.role("reader"))
    assert refusal(aws, aws.role("reader")) == (403, "AccessDenied")
    assert s3.get_object(Bucket="lake", Key="key", RequestPayer="requester")["Body"].read() == b"data"
    aws.denied.add(("role/reader", "s3:GetObject"))
    with pytest.raises(ClientError, match=r"not authorized to perform: s3:GetObject on resource.*:::lake/key"):
        s3.get_object(Bucket="lake", Key="key", RequestPayer="requester")
    aws.faults.append(RefusedError(503, "SlowDown", "Please reduce your request rate.", {"Retry-After": "1"}))
    status, _, headers = bare(f"https://{HOST}/key")
    assert (status, headers["retry-after"]) == (503, "1")
    aws.bucket("plain", REGION)
    s3.meta.events.register("before-sign.s3.GetObject", _ask_for_encryption)
    with pytest.raises(ClientError, match="InvalidArgument"):
        s3.get_object(Bucket="plain", Key="key")


def _ask_for_encryption(request, **_: object) -> None:
    request.headers["x-amz-server-side-encryption"] = "aws:kms"


def test_no_certificate_has_the_host_of_a_bucket_with_dots(aws: Aws) -> None:
    aws.bucket("lake.house", REGION)
    with pytest.raises(urllib3.exceptions.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        bare(f"https://lake.house.s3.{REGION}.amazonaws.com/key")
    client(aws.role("reader")).head_bucket(Bucket="lake.house")
    assert [(each.host, each.path) for each in aws.requests] == [(f"s3.{REGION}.amazonaws.com", "/lake.house")]


@pytest.mark.parametrize(
    "host",
    ["s3-fips.eu-south-1.amazonaws.com", "s3.cn-north-1.amazonaws.com", "s3.xx-north-1.amazonaws.com", "pypi.org"],
)
def test_a_host_that_aws_lacks_has_no_address(aws: Aws, host: str) -> None:
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo(host, 443)
    assert host in aws.lookups


SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
MIDNIGHT = datetime(2013, 5, 24, tzinfo=UTC)
EXAMPLE = Claim("AKIAIOSFODNN7EXAMPLE", "20130524", "us-east-1", "s3", (), "", MIDNIGHT, "", None)


def test_the_examples_of_awss_documentation_have_their_signatures() -> None:
    """The examples are of sig-v4-header-based-auth.html and sigv4-streaming.html."""
    headers = {
        "host": "examplebucket.s3.amazonaws.com", "range": "bytes=0-9", "x-amz-content-sha256": EMPTY,
        "x-amz-date": "20130524T000000Z",
    }  # fmt: skip
    claim = replace(EXAMPLE, signed_headers=tuple(headers))
    assert signature(Request("GET", "/test.txt", "", headers), claim, SECRET, EMPTY) == (
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    previous = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    for chunk, expected in (
        (b"a" * 65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (b"a" * 1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (b"", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ):
        assert chunk_signature(claim, SECRET, previous, chunk) == expected
        previous = expected

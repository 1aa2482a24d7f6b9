from __future__ import annotations

import base64
import logging
import re
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

import obstore
import pytest

from tests.storage.clouds import CLOUDS
from tests.storage.conftest import s3_options
from tests.storage.scripted_http import ScriptedHttp, answer, error, part
from tiered_stream.data_limits import DEFAULT_LIMITS
from tiered_stream.errors import ConfigurationError, StorageAccessError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import parse_storage_options
from tiered_stream.storage.open_store import open_service, open_store
from tiered_stream.storage.s3 import S3Bucket

if TYPE_CHECKING:
    from tests.rigs.stack.s3proxy import S3Proxy

SECRET = "the-secret-that-nobody-may-see"
S3 = CLOUDS["s3"]


@pytest.mark.stack
def test_a_missing_bucket_names_the_bucket_and_the_option(s3proxy: S3Proxy) -> None:
    store = open_store(s3_options(s3proxy, "s3://no-such-bucket"))
    with pytest.raises(StorageObjectNotFoundError, match=r"bucket no-such-bucket \(option remote.storage.uri\)"):
        store.get("key", ByteRange(0, 1))
    with pytest.raises(StorageObjectNotFoundError, match=r"bucket no-such-bucket \(option remote.storage.uri\)"):
        list(store.list(""))


@pytest.mark.stack
@pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
def test_wrong_credentials_name_the_options_and_not_the_secret(s3proxy: S3Proxy, wrong: str) -> None:
    store = open_store(s3_options(s3proxy, "s3://contract", **{wrong: SECRET}))
    with pytest.raises(StorageAccessError, match="contract/key.*403.*remote.storage.aws.secret.access.key") as caught:
        store.get("key", ByteRange(0, 1))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert s3proxy.endpoint in str(caught.value)


def test_no_credentials_anywhere_name_the_options_and_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    store = S3.store("http://127.0.0.1:1", access_key_id=None, secret_access_key=None)
    with pytest.raises(StorageAccessError, match=r"s3://bucket.*access\.key\.id.*chain"):
        store.get("key", DEFAULT_LIMITS.index)


OBJECT = r"grant s3:GetObject on arn:aws:s3:::bucket/p/t-1\.log, and kms:Decrypt.*Without s3:ListBucket on arn:aws"


@pytest.mark.parametrize(
    ("status", "code", "names", "lists"),
    [
        *((400, code, code, False) for code in ("ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed")),
        (404, "XAdminUserNotFound", r"404 XAdminUserNotFound.*remote\.storage\.aws\.access\.key\.id", False),
        (403, "AccessDenied", OBJECT, False),
        (403, "AccessDenied", "grant s3:ListBucket on arn:aws:s3:::bucket;", True),
    ],
)
def test_a_refusal_is_a_matter_of_access_and_names_the_fix(status: int, code: str, names: str, lists: bool) -> None:
    with ScriptedHttp([error(status, code)]) as server, pytest.raises(StorageAccessError, match=names):
        store = S3.store(server.url)
        list(store.list("t-")) if lists else store.get("t-1.log", ByteRange(0, 5))


@pytest.mark.parametrize("quote", ["", "&quot;", '"'])
def test_the_permission_that_the_service_names_is_the_advice(quote: str) -> None:
    key = "arn:aws:kms:eu-west-1:123456789012:key/1234-abcd"
    said = f"User: arn:aws:iam::123456789012:user/x is not authorized to perform: kms:Decrypt on resource: {quote}{key}"
    body = f"<Error><Code>AccessDenied</Code><Message>{said}{quote} because</Message></Error>".encode()
    with ScriptedHttp([answer(403, body)]) as server, pytest.raises(StorageAccessError) as raised:
        S3.store(server.url).get("t-1.log", ByteRange(0, 5))
    assert f"grant kms:Decrypt on {key};" in str(raised.value)
    assert "s3:GetObject" not in str(raised.value)


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_wrong_credentials_are_no_missing_permission(code: str) -> None:
    with ScriptedHttp([error(403, code)]) as server, pytest.raises(StorageAccessError) as raised:
        S3.store(server.url).get("t-1.log", ByteRange(0, 5))
    assert "grant" not in str(raised.value)


def test_neither_credentials_nor_signatures_are_logged_when_everything_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = f"{SECRET}-token"
    with ScriptedHttp([error(500, "InternalError"), part(b"01234"), error(403, "AccessDenied")]) as server:
        store = S3.store(server.url, access_key_id="the-key-id", session_token=token)
        store.get("key", ByteRange(0, 5))
        with pytest.raises(StorageAccessError):
            store.get("key", ByteRange(0, 5))
        signed = store.signed_url("key", 60)
    logging.getLogger("botocore.auth").debug("a line of the user's own botocore")
    assert signed is not None and "the-key-id" in signed and token.encode() in server.requests[0]
    assert "user's own botocore" in caplog.text
    assert not [each for each in ("the-key-id", SECRET, "Signature=", "x-amz-") if each in caplog.text]


@pytest.mark.parametrize(
    "others,message",
    [
        ({"uri": "s3://"}, "'' is not the name of a bucket"),
        ({"uri": "s3://a b"}, "'a b' is not the name of a bucket"),
        ({"uri": "s3://tier--euw1-az1--x-s3"}, "is a directory bucket"),
        ({"uri": "s3://arn:aws:s3::123456789012:accesspoint/mine.mrap"}, "is not the ARN of an access point in one"),
        ({"uri": "s3://arn:aws:s3-object-lambda:eu-west-1:123456789012:accesspoint/a"}, "is not the ARN of an access"),
        ({"secret_access_key": None}, "go together"),
        ({"s3_endpoint_url": "nonsense"}, "no S3 client"),
    ],
)
def test_what_no_client_can_be_made_of_is_a_configuration_error(others: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        S3.store("http://127.0.0.1:1", **others)


@pytest.mark.parametrize("pays", [True, False])
def test_the_requester_pays_if_an_option_says_so(pays: bool) -> None:
    with ScriptedHttp([part(b"data")]) as server:
        S3.store(server.url, s3_requester_pays=pays).get("key", ByteRange(0, 4))
        assert (b"x-amz-request-payer: requester" in server.requests[0].lower()) is pays


KEY = base64.b64encode(b"k" * 32).decode()
ACCESS_POINT = "arn:aws:s3:eu-west-1:123456789012:accesspoint/reader"


def test_the_key_of_the_objects_goes_with_each_request_and_with_no_url() -> None:
    with ScriptedHttp([part(b"data")]) as server:
        store = S3.store(server.url, s3_customer_key=KEY)
        store.get("key", ByteRange(0, 4))
        headers = server.requests[0].lower()
        assert f"x-amz-server-side-encryption-customer-key: {KEY}".lower().encode() in headers
        assert b"x-amz-server-side-encryption-customer-algorithm: aes256" in headers
        assert store.signed_url("key", 60) is None


@pytest.mark.parametrize("key", ["k", base64.b64encode(b"short").decode()])
def test_a_key_of_another_length_is_refused_without_the_key(key: str) -> None:
    with pytest.raises(ConfigurationError, match=r"s3\.customer\.key: .*32 bytes") as caught:
        parse_storage_options({"remote.storage.uri": "s3://bucket", "remote.storage.s3.customer.key": key})
    assert f"'{key}'" not in str(caught.value)


AWS = {"s3_endpoint_url": None, "s3_path_style": False, "s3_region": "us-west-2"}


@pytest.mark.parametrize(
    "bucket,given,variable,endpoint",
    [
        ("lake", {}, "AWS_USE_FIPS_ENDPOINT", "lake.s3-fips.us-west-2"),
        ("lake", {"s3_fips": True}, "", "lake.s3-fips.us-west-2"),
        ("lake", {}, "AWS_USE_DUALSTACK_ENDPOINT", "lake.s3.dualstack.us-west-2"),
        (ACCESS_POINT, {}, "", "reader-123456789012.s3-accesspoint.eu-west-1"),
        (ACCESS_POINT, {}, "AWS_USE_FIPS_ENDPOINT", "reader-123456789012.s3-accesspoint-fips.eu-west-1"),
        ("lake", {"s3_access_point": ACCESS_POINT}, "", "reader-123456789012.s3-accesspoint.eu-west-1"),
        ("reader-abc123-s3alias", {}, "", "reader-abc123-s3alias.s3.us-west-2"),
        ("lake", {"s3_region": "eu-south-1"}, "", "lake.s3.eu-south-1"),
        ("lake", {"s3_region": "us-east-1"}, "", "lake.s3.us-east-1"),
        ("my.lake", {"s3_region": "il-central-1"}, "", "s3.il-central-1"),
    ],
)
def test_requests_go_where_awss_rules_say(
    monkeypatch: pytest.MonkeyPatch, bucket: str, given: dict[str, object], variable: str, endpoint: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, "true")
    options = S3.options("", **{**AWS, **given}, uri=f"s3://{bucket}/p")
    service = open_service(options)
    assert service.endpoint == f"https://{endpoint}.amazonaws.com" + ("/my.lake" if bucket == "my.lake" else "")
    assert open_store(options).describe("key") == f"s3://{bucket}/p/key"


OTHER_REGION = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>us-east-1</Region></Error>"


def test_the_region_that_a_service_names_is_used_from_then_on() -> None:
    with ScriptedHttp([answer(400, OTHER_REGION), part(b"data"), part(b"data")]) as server:
        store = S3.store(server.url)
        assert [store.get("key", ByteRange(0, 4)) for _ in range(2)] == [b"data"] * 2
    regions = [re.search(rb"Credential=[^/]+/\d+/([a-z0-9-]+)/s3", request)[1] for request in server.requests]  # type: ignore[index]
    assert regions == [b"eu-west-1", b"us-east-1", b"us-east-1"]


def test_a_request_that_was_sent_before_the_region_was_known_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [answer(400, OTHER_REGION), part(b"later"), answer(400, OTHER_REGION), part(b"early")]
    get: Callable[..., object] = obstore.get

    def get_after_another(*arguments: object, **named: object) -> object:
        monkeypatch.setattr(obstore, "get", get)
        assert store.get("later", ByteRange(0, 5)) == b"later"
        return get(*arguments, **named)

    with ScriptedHttp(script) as server:
        store = S3.store(server.url)
        monkeypatch.setattr(obstore, "get", get_after_another)
        assert store.get("early", ByteRange(0, 5)) == b"early"
    keys = [re.search(rb"(early|later) HTTP", request)[1] for request in server.requests]  # type: ignore[index]
    assert keys == [b"later", b"later", b"early", b"early"]


def test_a_client_that_was_made_before_the_region_was_known_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [answer(400, OTHER_REGION), part(b"later"), answer(400, OTHER_REGION), part(b"early"), part(b"third")]
    connect = S3Bucket.connect

    def connect_before_another(bucket: S3Bucket, seconds: float, **use: bool) -> object:
        monkeypatch.setattr(S3Bucket, "connect", connect)
        client = connect(bucket, seconds, **use)
        assert store.get("later", ByteRange(0, 5)) == b"later"
        return client

    with ScriptedHttp(script) as server:
        store = S3.store(server.url)
        monkeypatch.setattr(S3Bucket, "connect", connect_before_another)
        assert store.get("early", ByteRange(0, 5)) == b"early"
        assert store.get("third", ByteRange(0, 5)) == b"third"
    regions = [re.search(rb"Credential=[^/]+/\d+/([a-z0-9-]+)/s3", request)[1] for request in server.requests]  # type: ignore[index]
    assert regions == [b"eu-west-1", b"us-east-1", b"eu-west-1", b"us-east-1", b"us-east-1"]

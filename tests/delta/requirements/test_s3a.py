"""What Hadoop's `fs.s3a.*` settings come to, and what `ingest.storage.*` on top of them does."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.delta.requirements.made_hadoop import made_hadoop
from tiered_stream.delta.requirements.hadoop_settings import NoCredentialsError, NotForTasksError
from tiered_stream.delta.requirements.s3a import S3aStore
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage, table_storage
from tiered_stream.delta.write.file_systems import delta_storage_options, deltalake_arguments
from tiered_stream.errors import ConfigurationError, StorageAccessError, TableAccessError
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.open_store import open_service
from tiered_stream.storage.s3_client import S3Session

KEYS = {"fs.s3a.access.key": "id", "fs.s3a.secret.key": "secret"}
PROVIDER = "fs.s3a.aws.credentials.provider"
HADOOP, V1, V2 = "org.apache.hadoop.fs.s3a", "com.amazonaws.auth", "software.amazon.awssdk.auth.credentials"
SIMPLE, TEMPORARY = f"{HADOOP}.SimpleAWSCredentialsProvider", f"{HADOOP}.TemporaryAWSCredentialsProvider"
MACHINE = f"{HADOOP}.auth.IAMInstanceCredentialsProvider"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "env-id", "AWS_SECRET_ACCESS_KEY": "env-secret", "AWS_SESSION_TOKEN": "env-token"}
STATIC = {"access_key_id": "id", "secret_access_key": "secret"}


@pytest.fixture(autouse=True)
def _aws_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS names no bucket's region, unless a test says otherwise."""
    monkeypatch.setattr(S3Session, "find_region", lambda session: "")


def s3a(
    given: Mapping[str, str],
    *,
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    has_connector: bool = True,
    bucket: str = "lake",
) -> S3aStore:
    """The settings of a bucket; `files` are Hadoop's credential files."""
    classes = None if has_connector else ()
    return S3aStore(made_hadoop(given, files=files, environment=environment, classes=classes), f"s3://{bucket}/t")


@pytest.mark.parametrize(
    ("given", "endpoint", "region"),
    [
        ({}, None, None),
        ({"fs.s3a.endpoint": ""}, None, None),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, None, None),
        ({"fs.s3a.endpoint": "s3.amazonaws.com", "fs.s3a.endpoint.region": "eu-west-1"}, None, "eu-west-1"),
        ({"fs.s3a.endpoint": "https://s3.eu-central-1.amazonaws.com"}, None, "eu-central-1"),
        ({"fs.s3a.endpoint": "s3-eu-west-1.amazonaws.com"}, None, "eu-west-1"),
        ({"fs.s3a.endpoint": "s3.cn-north-1.amazonaws.com.cn"}, None, "cn-north-1"),
        (
            {"fs.s3a.endpoint": "https://bucket.vpce-1-2.s3.us-east-1.vpce.amazonaws.com"},
            "https://bucket.vpce-1-2.s3.us-east-1.vpce.amazonaws.com",
            "us-east-1",
        ),
        ({"fs.s3a.endpoint": "lake:9000"}, "https://lake:9000", "us-east-2"),
        ({"fs.s3a.endpoint": "lake:9000", "fs.s3a.connection.ssl.enabled": "false"}, "http://lake:9000", "us-east-2"),
        ({"fs.s3a.endpoint": "http://lake:9000/", "fs.s3a.endpoint.region": "r1"}, "http://lake:9000", "r1"),
        ({"fs.s3a.endpoint": "http://all", "fs.s3a.bucket.lake.endpoint": "http://one"}, "http://one", "us-east-2"),
        ({"fs.s3a.endpoint": "http://all", "fs.s3a.bucket.other.endpoint": "http://one"}, "http://all", "us-east-2"),
        ({"fs.s3a.endpoint.region": "sdk"}, None, None),
    ],
)
def test_endpoint_and_region_are_those_that_s3a_takes(
    given: Mapping[str, str], endpoint: str | None, region: str | None
) -> None:
    assert (s3a(given).endpoint_url(), s3a(given).region()) == (endpoint, region)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {}),
        (KEYS, STATIC),
        ({**KEYS, "fs.s3a.session.token": "token"}, {**STATIC, "session_token": "token"}),
        ({**KEYS, "fs.s3a.session.token": "token", PROVIDER: SIMPLE}, STATIC),
        ({**KEYS, "fs.s3a.bucket.lake.access.key": "own"}, {**STATIC, "access_key_id": "own"}),
        ({**KEYS, PROVIDER: f"\n  {TEMPORARY},\n  {SIMPLE}\n"}, STATIC),
        ({**KEYS, PROVIDER: f"{HADOOP}.AnonymousAWSCredentialsProvider"}, {"anonymous": True}),
        ({**KEYS, PROVIDER: f"{V1}.AnonymousAWSCredentials,{SIMPLE}"}, {"anonymous": True}),
        ({**KEYS, PROVIDER: f"{V1}.InstanceProfileCredentialsProvider"}, {}),
        ({**KEYS, PROVIDER: f"{V2}.DefaultCredentialsProvider"}, {}),
        ({**KEYS, PROVIDER: f"{HADOOP}.auth.ProfileAWSCredentialsProvider"}, {}),
        ({**KEYS, PROVIDER: f"{V2}.WebIdentityTokenFileCredentialsProvider"}, {}),
        ({**KEYS, PROVIDER: "my.Keys", f"{PROVIDER}.mapping": f"a.B={MACHINE}, my.Keys={SIMPLE}"}, STATIC),
        ({**KEYS, PROVIDER: f"{SIMPLE},my.Unknown"}, STATIC),
    ],
)
def test_credentials_are_those_of_the_first_provider_that_has_any(
    given: Mapping[str, str], found: Mapping[str, object]
) -> None:
    assert s3a(given).credentials() == found


@pytest.mark.parametrize(
    "provider", [f"{V1}.EnvironmentVariableCredentialsProvider", f"{V2}.EnvironmentVariableCredentialsProvider"]
)
def test_the_environment_is_that_of_the_drivers_jvm(provider: str) -> None:
    found = s3a({PROVIDER: f"{TEMPORARY},{provider}"}, environment=ENVIRONMENT).credentials()
    assert found == {"access_key_id": "env-id", "secret_access_key": "env-secret", "session_token": "env-token"}
    assert s3a({}, environment=ENVIRONMENT).credentials() == found


@pytest.mark.parametrize("variable", ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE"])
def test_tasks_do_not_take_another_identity_than_the_machines_role(variable: str) -> None:
    for given in ({}, {PROVIDER: MACHINE}):
        with pytest.raises(NotForTasksError, match=f"takes the machine's role, but {variable} is in the driver's"):
            s3a(given, environment={variable: "set"}).credentials()


@pytest.mark.parametrize(
    "provider", [f"{V1}.WebIdentityTokenCredentialsProvider", f"{V2}.WebIdentityTokenFileCredentialsProvider"]
)
def test_tasks_take_the_role_of_a_pods_service_account(provider: str) -> None:
    assert s3a({PROVIDER: provider}, environment={"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}).credentials() == {}


def test_keys_may_be_in_credential_files() -> None:
    files = {"fs.s3a.access.key": "id", "fs.s3a.secret.key": "all", "fs.s3a.bucket.lake.secret.key": "secret"}
    assert s3a({}, files=files).credentials() == STATIC


def test_a_token_of_the_job_without_keys_does_not_go_with_the_sessions_keys() -> None:
    session = s3a({**KEYS, "fs.s3a.endpoint.region": "r1"})
    storage, _ = session.find(table_storage({"ingest.storage.aws.session.token": "of-the-job"}))
    assert (storage.access_key_id, storage.session_token) == ("id", None)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({PROVIDER: "my.Unknown"}, "my.Unknown is known to Spark alone"),
        ({PROVIDER: f"{HADOOP}.auth.AssumedRoleCredentialProvider"}, "AssumedRoleCredentialProvider is known to Spark"),
        (
            {PROVIDER: f"{HADOOP}.auth.ProfileAWSCredentialsProvider", "fs.s3a.auth.profile.name": "p"},
            "has a profile of its own",
        ),
        ({PROVIDER: MACHINE}, "takes the machine's role, but AWS_ACCESS_KEY_ID is in the driver's environment"),
        ({**KEYS, "fs.s3a.encryption.algorithm": "CSE-KMS"}, "fs.s3a.encryption.algorithm is CSE-KMS"),
        (
            {**KEYS, "fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.context": "e30="},
            "fs.s3a.encryption.context is set",
        ),
        ({**KEYS, "fs.s3a.server-side-encryption-algorithm": "SSE-C"}, "fs.s3a.encryption.key must be 32 bytes"),
        ({**KEYS, "fs.s3a.accesspoint.required": "true"}, "fs.s3a.accesspoint.required is set, but the bucket has no"),
        (
            {**KEYS, "fs.s3a.bucket.lake.accesspoint.arn": "arn:aws:s3::123456789012:accesspoint/mine.mrap"},
            "fs.s3a.bucket.lake.accesspoint.arn: 'arn:aws:s3::123456789012:accesspoint/mine.mrap' is not the ARN",
        ),
        ({**KEYS, "fs.s3a.endpoint.fips": "true"}, "fs.s3a.endpoint.fips is set together with fs.s3a.endpoint"),
        ({**KEYS, "fs.s3a.bucket.lake.proxy.host": "proxy"}, "fs.s3a.proxy.host is set"),
        ({**KEYS, "fs.s3a.bucket.lake.acl.default": "private"}, "fs.s3a.acl.default is private"),
        ({**KEYS, "fs.s3a.create.storage.class": "new"}, "fs.s3a.create.storage.class is new"),
        ({**KEYS, "fs.s3a.object.content.encoding": "gzip"}, "fs.s3a.object.content.encoding is set"),
        ({**KEYS, "fs.s3a.client.s3.custom.headers": "x=y"}, "fs.s3a.client.s3.custom.headers is set"),
        ({**KEYS, "fs.s3a.create.header.x-amz-tag": "y"}, "fs.s3a.create.header.x-amz-tag is set"),
        ({**KEYS, "fs.s3a.create.checksum.algorithm": "SHA256"}, "fs.s3a.create.checksum.algorithm is set"),
        ({**KEYS, "fs.s3a.s3.client.factory.impl": "my.Factory"}, "fs.s3a.s3.client.factory.impl is set"),
        ({**KEYS, "fs.s3a.impl": "my.FileSystem"}, "fs.s3a.impl is set"),
        ({**KEYS, "fs.s3a.bucket.lake.object.tagging": "a=b"}, "object.tagging is set, which is not known here"),
    ],
)
def test_what_tasks_cannot_do_is_said(given: Mapping[str, str], reason: str) -> None:
    storage, why_not = s3a({"fs.s3a.endpoint": "http://lake", **given}, environment=ENVIRONMENT).find(TableStorage())
    assert why_not is not None and reason in why_not
    assert storage.access_key_id is None


def test_a_directory_bucket_is_left_to_spark() -> None:
    session = s3a(KEYS, bucket="lake--euw1-az1--x-s3")
    why_not = session.find(table_storage({"ingest.storage.s3.region": "eu-west-1"}))[1]
    assert why_not is not None and "lake--euw1-az1--x-s3" in why_not


def test_settings_that_ask_for_nothing_are_no_hindrance() -> None:
    given = {
        "fs.s3a.proxy.host": "", "fs.s3a.http.signer.enabled": "False", "fs.s3a.create.checksum.algorithm": "crc32c",
        "fs.s3a.bucket.other.http.signer.enabled": "true", "fs.s3a.retry.limit": "3", "fs.s3a.of.a.new.reader": "x",
        "fs.s3a.impl": f"{HADOOP}.S3AFileSystem",
    }  # fmt: skip
    s3a(given).check_supported()
    with pytest.raises(NotForTasksError, match="http.signer"):
        s3a({"fs.s3a.http.signer.enabled": "true"}).check_supported()


def test_a_bucket_has_no_settings_of_a_bucket_whose_name_goes_on_after_a_dot() -> None:
    given = {**KEYS, "fs.s3a.bucket.lake.eu.encryption.algorithm": "SSE-KMS", "fs.s3a.bucket.lake.eu.proxy.host": "p"}
    s3a(given).check_supported()
    assert {"encryption.algorithm", "proxy.host"} <= set(s3a(given, bucket="lake.eu").own_names())


def test_acl_storage_class_and_encryption_go_with_the_tasks_uploads_as_s3_calls_them() -> None:
    given = {
        "fs.s3a.acl.default": "Private", "fs.s3a.bucket.lake.acl.default": "BucketOwnerFullControl",
        "fs.s3a.create.storage.class": "standard_ia", "fs.s3a.encryption.algorithm": "SSE-S3",
    }  # fmt: skip
    storage, why_not = s3a({**LAKE, **given}).find(TableStorage())
    assert why_not is None
    assert (storage.acl, storage.storage_class, storage.encryption) == (
        "bucket-owner-full-control", "STANDARD_IA", "AES256",
    )  # fmt: skip


@pytest.mark.parametrize("algorithm,name", [("SSE-KMS", "aws:kms"), ("dsse-kms", "aws:kms:dsse")])
@pytest.mark.parametrize("setting", ["fs.s3a.encryption.key", "fs.s3a.bucket.lake.server-side-encryption.key", None])
def test_encryption_by_kms_goes_with_the_uploads_and_the_commits(
    algorithm: str, name: str, setting: str | None
) -> None:
    given = {"fs.s3a.encryption.algorithm": algorithm, **({setting: "arn:aws:kms:r1:1:key/k"} if setting else {})}
    storage, why_not = s3a({**LAKE, **given}).find(TableStorage())
    assert why_not is None
    key = {"SSEKMSKeyId": "arn:aws:kms:r1:1:key/k"} if setting else {}
    assert storage.put_object_arguments() == {"ServerSideEncryption": name, **key}
    options = delta_storage_options(storage, "lake")
    assert options["aws_server_side_encryption"] == name
    assert options.get("aws_sse_kms_key_id") == key.get("SSEKMSKeyId")


CUSTOMER_KEY = b64encode(b"k" * 32).decode()


def test_a_key_of_ones_own_and_the_payer_go_with_all_requests() -> None:
    given = {
        "fs.s3a.encryption.algorithm": "SSE-C", "fs.s3a.bucket.lake.encryption.key": CUSTOMER_KEY,
        "fs.s3a.requester.pays.enabled": "true",
    }  # fmt: skip
    storage, why_not = s3a({**LAKE, **given}).find(TableStorage())
    assert (why_not, storage.s3_customer_key, storage.s3_requester_pays) == (None, CUSTOMER_KEY, True)
    assert CUSTOMER_KEY not in repr(storage)
    assert storage.put_object_arguments() == {
        "SSECustomerAlgorithm": "AES256", "SSECustomerKey": b"k" * 32, "RequestPayer": "requester",
    }  # fmt: skip
    options = delta_storage_options(storage, "lake")
    assert (options["aws_server_side_encryption"], options["aws_sse_customer_key_base64"]) == ("sse-c", CUSTOMER_KEY)
    assert options["aws_request_payer"] == "true"


ACCESS_POINT = "arn:aws:s3:eu-west-1:123456789012:accesspoint/writer"


@pytest.mark.parametrize(
    "given,url",
    [
        ({"fs.s3a.bucket.lake.accesspoint.arn": ACCESS_POINT}, "writer-123456789012.s3-accesspoint.eu-west-1"),
        (
            {"fs.s3a.bucket.lake.accesspoint.arn": ACCESS_POINT, "fs.s3a.endpoint": "http://all"},
            "writer-123456789012.s3-accesspoint.eu-west-1",
        ),
        ({"fs.s3a.endpoint.fips": "true", "fs.s3a.endpoint.region": "us-west-2"}, "lake.s3-fips.us-west-2"),
        ({"fs.s3a.accesspoint.arn": ACCESS_POINT, "fs.s3a.endpoint.region": "eu-west-1"}, "lake.s3.eu-west-1"),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, "lake.s3.eu-west-1"),
        ({"fs.s3a.endpoint": "s3.dualstack.eu-west-1.amazonaws.com"}, "lake.s3.dualstack.eu-west-1"),
        ({"fs.s3a.endpoint": "s3-fips.us-west-2.amazonaws.com"}, "lake.s3-fips.us-west-2"),
        ({"fs.s3a.endpoint": "bucket.vpce-1a-2b.s3.eu-west-1.vpce.amazonaws.com"},
         "lake.bucket.vpce-1a-2b.s3.eu-west-1.vpce"),
    ],
)  # fmt: skip
def test_hosts_and_regions_are_those_that_s3a_uses(given: Mapping[str, str], url: str) -> None:
    storage, why_not = s3a({**KEYS, **given}).find(TableStorage())
    assert why_not is None
    options = deltalake_arguments(TableSpec("s3://lake/table", storage))[1]
    assert options["aws_endpoint"] == options["aws_endpoint_url_s3"] == f"https://{url}.amazonaws.com"
    assert options["aws_virtual_hosted_style_request"] == "true"
    assert options["aws_region"] == ("us-west-2" if "fips" in url else "eu-west-1")
    assert open_service(storage.at("s3://lake/table"), TABLES).endpoint == f"https://{url}.amazonaws.com"


def test_a_key_for_kms_without_an_algorithm_asks_for_nothing() -> None:
    storage, why_not = s3a({**LAKE, "fs.s3a.encryption.key": "k"}).find(TableStorage())
    assert (why_not, storage.put_object_arguments()) == (None, {})


def test_a_session_without_credentials_is_refused() -> None:
    session = s3a({"fs.s3a.access.key": "id", PROVIDER: f"{TEMPORARY},{SIMPLE}"})
    with pytest.raises(NoCredentialsError, match="bucket lake: "):
        session.credentials()
    with pytest.raises(ConfigurationError, match=r"fs\.s3a\.access\.key .*fs\.s3a\.secret\.key"):
        session.find(table_storage({"ingest.storage.s3.region": "r"}))


LAKE = {
    "fs.s3a.endpoint": "http://lake:9000",
    "fs.s3a.endpoint.region": "r1",
    "fs.s3a.path.style.access": "true",
    **KEYS,
}
OWN = "ingest.storage."


def test_the_table_is_where_the_session_says() -> None:
    segments = {"remote.storage.s3.endpoint.url": "http://tier", "remote.storage.aws.access.key.id": "other"}
    expected = TableStorage("http://lake:9000", "r1", True, "id", "secret")
    assert s3a(LAKE).find(table_storage(segments)) == (expected, None)


def test_what_is_given_for_the_table_goes_before_the_session() -> None:
    keys = {f"{OWN}aws.access.key.id": "own", f"{OWN}aws.secret.access.key": "own secret"}
    given = {f"{OWN}s3.endpoint.url": "http://LAKE:9000", f"{OWN}s3.region": "r2", **keys}
    expected = TableStorage("http://LAKE:9000", "r2", True, "own", "own secret")
    assert s3a({**LAKE, "fs.s3a.session.token": "token"}).find(table_storage(given)) == (expected, None)
    # It is the way out for credentials that tasks cannot get by themselves.
    assert s3a({**LAKE, PROVIDER: "my.Unknown"}).find(table_storage(keys))[1] is None


@pytest.mark.parametrize(
    "endpoint", ["http://tier:9000", "https://lake:9000", "http://lake", "https://s3.amazonaws.com"]
)
def test_two_stores_for_one_table_are_refused(endpoint: str) -> None:
    settings = {f"{OWN}s3.endpoint.url": endpoint}
    if endpoint.startswith("https://lake"):
        assert s3a(LAKE).find(table_storage(settings))[1] is None  # the same port: one of the two just fails
        return
    with pytest.raises(ConfigurationError, match="bucket lake .*http://lake:9000"):
        s3a(LAKE).find(table_storage(settings))


def test_a_session_that_reaches_no_bucket_at_all_contradicts_nobody() -> None:
    settings = {f"{OWN}s3.endpoint.url": "http://tier:9000"}
    assert s3a({}, has_connector=False).find(table_storage(settings))[0].s3_endpoint_url == "http://tier:9000"
    with pytest.raises(ConfigurationError, match=r"bucket lake .*https://s3\.amazonaws\.com"):
        s3a({}).find(table_storage(settings))


def test_without_any_setting_both_lanes_go_to_aws_and_the_region_is_the_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(S3Session, "find_region", lambda session: "eu-north-1")
    assert s3a({}).find(TableStorage()) == (TableStorage(s3_region="eu-north-1", s3_path_style=False), None)


@pytest.mark.parametrize(
    ("given", "own", "region"),
    [
        ({"fs.s3a.endpoint.region": "eu-west-1"}, None, "eu-south-1"),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, None, "eu-south-1"),
        ({"fs.s3a.endpoint.region": "eu-west-1"}, "us-east-1", "us-east-1"),
        ({"fs.s3a.endpoint.region": "eu-west-1", "fs.s3a.cross.region.access.enabled": "false"}, None, "eu-west-1"),
        ({"fs.s3a.endpoint.region": "r1", "fs.s3a.endpoint": "lake:9000"}, None, "r1"),
    ],
)
def test_tasks_go_to_the_region_of_the_bucket_as_s3a_does(
    monkeypatch: pytest.MonkeyPatch, given: Mapping[str, str], own: str | None, region: str
) -> None:
    monkeypatch.setattr(S3Session, "find_region", lambda session: "eu-south-1")
    assert s3a({**KEYS, **given}).find(TableStorage(s3_region=own))[0].s3_region == region


def test_a_session_with_a_region_needs_no_credentials_to_be_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(session: S3Session) -> str:
        raise StorageAccessError("no credentials")

    monkeypatch.setattr(S3Session, "find_region", refuse)
    assert s3a({"fs.s3a.endpoint.region": "eu-west-1"}).find(TableStorage())[0].s3_region == "eu-west-1"
    with pytest.raises(StorageAccessError):
        s3a({}).find(TableStorage())


def test_a_bucket_that_aws_does_not_know_is_said() -> None:
    with pytest.raises(TableAccessError, match=r"region .*bucket lake .*fs\.s3a\.endpoint\.region"):
        s3a({}).find(TableStorage())


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url"])
def test_an_endpoint_that_only_awss_configuration_names_leads_to_the_spark_lane(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    if variable == "endpoint_url":
        (tmp_path / "config").write_text("[default]\nendpoint_url = http://elsewhere:9000\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    else:
        monkeypatch.setenv(variable, "http://elsewhere:9000")
    why_not = s3a({**KEYS, "fs.s3a.endpoint.region": "eu-west-1"}).find(TableStorage())[1]
    assert why_not is not None and "http://elsewhere:9000" in why_not and "fs.s3a.endpoint" in why_not
    storage, why_not = s3a(LAKE).find(TableStorage())
    assert why_not is None
    options = delta_storage_options(storage, "lake")
    assert options["aws_endpoint"] == options["aws_endpoint_url_s3"] == "http://lake:9000/lake"


def test_a_store_that_tasks_cannot_write_to_keeps_its_place_for_reads_of_the_log() -> None:
    given = {
        "fs.s3a.endpoint": "http://lake:9000", "fs.s3a.path.style.access": "true", "fs.s3a.proxy.host": "proxy",
        "fs.s3a.encryption.algorithm": "SSE-C", "fs.s3a.encryption.key": b64encode(bytes(32)).decode(),
    }  # fmt: skip
    own = TableStorage(access_key_id="own", secret_access_key="secret")
    found, why_not = s3a({**KEYS, **given}).find(own)
    assert why_not is not None and "fs.s3a.proxy.host" in why_not
    assert (found.s3_endpoint_url, found.s3_path_style, found.access_key_id) == ("http://lake:9000", True, "own")
    assert found.s3_customer_key == s3a(given).object_settings()["s3_customer_key"] is not None


def test_a_store_behind_an_access_point_that_is_refused_is_not_reached_by_it() -> None:
    found, why_not = s3a({**KEYS, "fs.s3a.bucket.lake.accesspoint.arn": "arn:aws:s3::1:accesspoint/x.mrap"}).find(
        TableStorage()
    )
    assert why_not is not None and found.s3_access_point is None

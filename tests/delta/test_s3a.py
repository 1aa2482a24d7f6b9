"""What Hadoop's `fs.s3a.*` settings come to, and what `ingest.storage.*` on top of them does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import pytest

from tiered_stream.delta.ingest_settings import TableStorage
from tiered_stream.delta.s3a import Credentials, NoCredentialsError, NotForTasksError, S3aSettings, find_storage
from tiered_stream.errors import ConfigurationError, TableAccessError

KEYS = {"fs.s3a.access.key": "id", "fs.s3a.secret.key": "secret"}
PROVIDER = "fs.s3a.aws.credentials.provider"
HADOOP, V1, V2 = "org.apache.hadoop.fs.s3a", "com.amazonaws.auth", "software.amazon.awssdk.auth.credentials"
SIMPLE, TEMPORARY = f"{HADOOP}.SimpleAWSCredentialsProvider", f"{HADOOP}.TemporaryAWSCredentialsProvider"
MACHINE = f"{HADOOP}.auth.IAMInstanceCredentialsProvider"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "env-id", "AWS_SECRET_ACCESS_KEY": "env-secret", "AWS_SESSION_TOKEN": "env-token"}
STATIC = Credentials("id", "secret")
CHAIN = Credentials()


def s3a(
    given: Mapping[str, str],
    *,
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    has_connector: bool = True,
) -> S3aSettings:
    """The settings of the bucket `lake`; `files` are Hadoop's credential files."""
    passwords = {**given, **(files or {})}
    return S3aSettings("lake", given.get, passwords.get, (environment or {}).get, has_connector)


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
        ({}, CHAIN),
        (KEYS, STATIC),
        ({**KEYS, "fs.s3a.session.token": "token"}, Credentials("id", "secret", "token")),
        ({**KEYS, "fs.s3a.session.token": "token", PROVIDER: SIMPLE}, STATIC),
        ({**KEYS, "fs.s3a.bucket.lake.access.key": "own"}, Credentials("own", "secret")),
        ({**KEYS, PROVIDER: f"\n  {TEMPORARY},\n  {SIMPLE}\n"}, STATIC),
        ({**KEYS, PROVIDER: f"{HADOOP}.AnonymousAWSCredentialsProvider"}, Credentials(anonymous=True)),
        ({**KEYS, PROVIDER: f"{V1}.AnonymousAWSCredentials,{SIMPLE}"}, Credentials(anonymous=True)),
        ({**KEYS, PROVIDER: f"{V1}.InstanceProfileCredentialsProvider"}, CHAIN),
        ({**KEYS, PROVIDER: f"{V2}.DefaultCredentialsProvider"}, CHAIN),
        ({**KEYS, PROVIDER: f"{HADOOP}.auth.ProfileAWSCredentialsProvider"}, CHAIN),
        ({**KEYS, PROVIDER: f"{V2}.WebIdentityTokenFileCredentialsProvider"}, CHAIN),
        ({**KEYS, PROVIDER: "my.Keys", f"{PROVIDER}.mapping": f"a.B={MACHINE}, my.Keys={SIMPLE}"}, STATIC),
        ({**KEYS, PROVIDER: f"{SIMPLE},my.Unknown"}, STATIC),
    ],
)
def test_credentials_are_those_of_the_first_provider_that_has_any(given: Mapping[str, str], found: Credentials) -> None:
    assert s3a(given).credentials() == found


@pytest.mark.parametrize(
    "provider", [f"{V1}.EnvironmentVariableCredentialsProvider", f"{V2}.EnvironmentVariableCredentialsProvider"]
)
def test_the_environment_is_that_of_the_drivers_jvm(provider: str) -> None:
    found = s3a({PROVIDER: f"{TEMPORARY},{provider}"}, environment=ENVIRONMENT).credentials()
    assert found == Credentials("env-id", "env-secret", "env-token")
    assert s3a({}, environment=ENVIRONMENT).credentials() == found


def test_keys_may_be_in_credential_files() -> None:
    files = {"fs.s3a.access.key": "id", "fs.s3a.secret.key": "all", "fs.s3a.bucket.lake.secret.key": "secret"}
    assert s3a({}, files=files).credentials() == STATIC


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
        ({**KEYS, "fs.s3a.encryption.algorithm": "SSE-KMS"}, "fs.s3a.encryption.algorithm is set"),
        ({**KEYS, "fs.s3a.bucket.lake.proxy.host": "proxy"}, "fs.s3a.proxy.host is set"),
    ],
)
def test_what_tasks_cannot_do_is_said(given: Mapping[str, str], reason: str) -> None:
    storage, why_not = find_storage({}, s3a({"fs.s3a.endpoint": "http://lake", **given}, environment=ENVIRONMENT))
    assert why_not is not None and reason in why_not
    assert storage.access_key_id is None


def test_settings_that_ask_for_nothing_are_no_hindrance() -> None:
    given = {"fs.s3a.encryption.algorithm": "SSE-S3", "fs.s3a.proxy.host": "", "fs.s3a.requester.pays.enabled": "false"}
    s3a(given).check_followed()
    with pytest.raises(NotForTasksError, match="requester.pays"):
        s3a({"fs.s3a.requester.pays.enabled": "true"}).check_followed()


def test_a_session_without_credentials_is_refused() -> None:
    session = s3a({"fs.s3a.access.key": "id", PROVIDER: f"{TEMPORARY},{SIMPLE}"})
    with pytest.raises(NoCredentialsError, match="no credentials for the bucket lake: "):
        session.credentials()
    with pytest.raises(ConfigurationError, match="set fs.s3a.access.key and fs.s3a.secret.key"):
        find_storage({"ingest.storage.s3.region": "r"}, session)


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
    assert find_storage(segments, s3a(LAKE)) == (expected, None)


def test_what_is_given_for_the_table_goes_before_the_session() -> None:
    keys = {f"{OWN}aws.access.key.id": "own", f"{OWN}aws.secret.access.key": "own secret"}
    given = {f"{OWN}s3.endpoint.url": "http://LAKE:9000", f"{OWN}s3.region": "r2", **keys}
    expected = TableStorage("http://LAKE:9000", "r2", True, "own", "own secret")
    assert find_storage(given, s3a({**LAKE, "fs.s3a.session.token": "token"})) == (expected, None)
    # It is the way out for credentials that tasks cannot get by themselves.
    assert find_storage(keys, s3a({**LAKE, PROVIDER: "my.Unknown"}))[1] is None


@pytest.mark.parametrize(
    "endpoint", ["http://tier:9000", "https://lake:9000", "http://lake", "https://s3.amazonaws.com"]
)
def test_two_stores_for_one_table_are_refused(endpoint: str) -> None:
    settings = {f"{OWN}s3.endpoint.url": endpoint}
    if endpoint.startswith("https://lake"):
        assert find_storage(settings, s3a(LAKE))[1] is None  # the same port: one of the two just fails
        return
    with pytest.raises(ConfigurationError, match="Spark's session reaches the bucket lake at http://lake:9000: set "):
        find_storage(settings, s3a(LAKE))


def test_a_session_that_reaches_no_bucket_at_all_contradicts_nobody() -> None:
    settings = {f"{OWN}s3.endpoint.url": "http://tier:9000"}
    assert find_storage(settings, s3a({}, has_connector=False)) == (TableStorage("http://tier:9000"), None)
    with pytest.raises(ConfigurationError, match="reaches the bucket lake at AWS"):
        find_storage(settings, s3a({}))


def test_without_any_setting_both_lanes_go_to_aws_and_the_region_is_the_buckets() -> None:
    assert find_storage({}, s3a({}), region_of={"lake": "eu-north-1"}.__getitem__) == (
        TableStorage(s3_region="eu-north-1"),
        None,
    )


def test_a_bucket_that_aws_does_not_know_is_said() -> None:
    def unknown(bucket: str) -> NoReturn:
        raise OSError(f"Bucket '{bucket}' not found")

    with pytest.raises(TableAccessError, match="region of the bucket lake cannot be found: Bucket 'lake' not found"):
        find_storage({}, s3a({}), region_of=unknown)

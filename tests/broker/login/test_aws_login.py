from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.msk import SaslMechanismAwsMskIam

from tests.broker.certificates import CertificateAuthority
from tests.broker.msk_broker import msk_broker
from tests.broker.sts_server import StsServer, refused, unknown_to_aws
from tests.local_http import Answer
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import metadata_request
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login import aws_login
from tiered_stream.broker.login.aws_login import AssumedRole, AwsIdentity, AwsLogin, region_of
from tiered_stream.broker.login.sasl import sasl_settings
from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    TieredStreamError,
)

MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
ROLE = "arn:aws:iam::123456789012:role/reader"
AS_ROLE = f'awsRoleArn="{ROLE}" awsMaxRetries=0'
MSK = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One that knows nobody at AWS; the folder is for its settings."""
    unknown_to_aws(monkeypatch, tmp_path)
    monkeypatch.setattr(aws_login, "_FIRST_WAIT_SECONDS", 0)
    return tmp_path


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[StsServer]:
    with StsServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own identity."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret")


def login(options: str = "") -> AwsLogin:
    given = {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f"{MODULE} required {options};"}
    found: AwsLogin = sasl_settings(ConfigValues(given), "SASL_SSL")["sasl_oauth_token_provider"]
    return found


def message(options: str = "", host: str = MSK) -> dict[str, str]:
    """What is sent to the broker."""
    found = login(options)
    found.renewal().result()
    sent: dict[str, str] = json.loads(found.message(host))
    return sent


def fails(kind: type[TieredStreamError], options: str = "", host: str = MSK) -> str:
    with pytest.raises(kind) as raised:
        message(options, host)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
    return str(raised.value)


@pytest.mark.usefixtures("known")
def test_the_machines_identity_signs_for_the_brokers_host_and_region() -> None:
    sent = message()

    assert sent["host"] == MSK
    assert sent["x-amz-credential"].startswith("OWN/")
    assert "/eu-west-1/kafka-cluster/" in sent["x-amz-credential"]
    assert "x-amz-security-token" not in sent


def test_a_role_logs_in_instead_of_the_machine(sts: StsServer, known: None) -> None:
    sent = message(f'{AS_ROLE} awsRoleSessionName="nightly" awsRoleExternalId="hunter2-id"')

    assert sent["x-amz-credential"].startswith("KEY1/")
    assert sent["x-amz-security-token"] == "hunter2token1"
    (asked,) = sts.asked
    assert (asked["RoleArn"], asked["RoleSessionName"], asked["ExternalId"]) == (ROLE, "nightly", "hunter2-id")
    assert "Credential=OWN/" in asked["authorization"]


def test_a_role_has_the_same_session_name_whenever_it_is_assumed(sts: StsServer, known: None) -> None:
    """Brokers refuse to renew a session under another principal."""
    found = login(AS_ROLE)
    for _ in range(2):
        found.renewal().result()

    assert {asked["RoleSessionName"] for asked in sts.asked} == {"aws-msk-iam-auth"}
    assert len(sts.asked) == 2


def test_a_role_may_be_assumed_by_keys_of_its_own(sts: StsServer, known: None) -> None:
    message(
        f"{AS_ROLE} awsRoleAccessKeyId=OTHER awsRoleSecretAccessKey=hunter2 awsRoleSessionToken=t awsRoleExternalId=e2"
    )

    (asked,) = sts.asked
    assert "Credential=OTHER/" in asked["authorization"]
    assert asked["ExternalId"] == "e2"


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("options", "region"),
    [("awsStsRegion=eu-central-1", "eu-central-1"), ("", "aws-global"), ("awsStsRegion=aws-global", "aws-global")],
)
def test_the_role_is_assumed_at_the_sts_of_the_region_that_is_given(sts: StsServer, options: str, region: str) -> None:
    message(f"{AS_ROLE} {options}")

    assert f"/{region}/sts/" in sts.asked[0]["authorization"]


def test_a_profile_logs_in_instead_of_the_machine(machine: Path, known: None) -> None:
    (machine / "credentials").write_text("[other]\naws_access_key_id = PROFILE\naws_secret_access_key = x\n")

    assert message("awsProfileName=other")["x-amz-credential"].startswith("PROFILE/")


def test_a_profile_or_role_that_cannot_be_had_is_an_error_and_nobody_else_logs_in(sts: StsServer, known: None) -> None:
    assert "awsProfileName = 'gone'" in fails(ConfigurationError, "awsProfileName=gone")
    sts.answers = [refused(403, "AccessDenied")]
    said = fails(BrokerAuthorizationError, AS_ROLE)
    assert f"awsRoleArn = '{ROLE}': " in said and "AssumeRole: AccessDenied" in said
    assert len(sts.asked) == 1


def test_no_credentials_are_an_error_that_says_where_they_may_be() -> None:
    assert "no credentials" in fails(ConfigurationError, "awsMaxRetries=1")


def test_who_hands_out_credentials_is_asked_again_as_often_as_the_options_say(sts: StsServer, known: None) -> None:
    # botocore asks twice itself.
    busy = [refused(400, "ThrottlingException"), refused(503, "ServiceUnavailable")]
    sts.answers = busy * 2
    assert message(f"awsRoleArn={ROLE} awsMaxRetries=2 awsMaxBackOffTimeMs=1")["x-amz-credential"].startswith("KEY5/")
    sts.answers = [refused(503, "ServiceUnavailable")] * 4
    said = fails(BrokerUnavailableError, f"awsRoleArn={ROLE} awsMaxRetries=1")
    assert "AssumeRole" in said and "ServiceUnavailable" in said


def test_what_is_no_answer_of_sts_is_not_shown(sts: StsServer, known: None) -> None:
    sts.answers = [Answer(200, b"<hunter2"), Answer(200, b"<a>hunter2</a>")]
    for _ in range(2):
        fails(TieredStreamError, AS_ROLE)


def test_sts_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch, known: None) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")

    assert "EndpointConnectionError" in fails(BrokerUnavailableError, AS_ROLE)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("environment", "region"),
    [
        ({"AWS_REGION": "eu-north-1"}, "eu-north-1"),
        ({"AWS_DEFAULT_REGION": "eu-north-1"}, "eu-north-1"),
        ({"AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "us-east-2"}, "eu-north-1"),
    ],
)
def test_a_broker_whose_name_has_no_region_is_in_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], region: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert f"/{region}/" in message(host="kafka.example.com")["x-amz-credential"]
    assert "/eu-west-1/" in message()["x-amz-credential"]


@pytest.mark.usefixtures("known")
def test_a_region_that_nobody_names_is_an_error_that_says_what_to_set() -> None:
    said = fails(ConfigurationError, host="kafka.example.com")
    assert "'kafka.example.com'" in said and "AWS_REGION" in said


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (MSK, "eu-west-1"),
        ("boot-x1.c1.kafka-serverless.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("b-1.c.x.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("B-1.C.X.C2.KAFKA.US-GOV-WEST-1.AMAZONAWS.COM", "us-gov-west-1"),
        ("b-1.us-east-1.x.c2.kafka.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
        ("broker-eu-central-1.example.com", "eu-central-1"),
        ("kafka.example.com", None),
        ("us-east-10.example.com", None),
        ("10.0.0.1", None),
    ],
)
def test_the_region_is_the_last_one_in_the_brokers_name(host: str, region: str | None) -> None:
    assert region_of(host) == region


def test_credentials_are_asked_for_once_and_not_by_each_connection(sts: StsServer, known: None) -> None:
    now = [1000.0]
    role = AssumedRole(ROLE, "session", external_id=None, sts_region=None, fips=False, keys=None)
    found = AwsLogin(AwsIdentity(role=role))
    found._clock = lambda: now[0]
    found.renewal().result()
    for _ in range(3):
        found.message(MSK)
    assert len(sts.asked) == 1
    now[0] += 3000
    sent = found.message(MSK)
    found.renewal().result()
    assert json.loads(sent)["x-amz-credential"].startswith("KEY1/")
    assert not json.loads(found.message(MSK))["x-amz-credential"].startswith("KEY1/")
    now[0] += 3601
    with pytest.raises(BrokerUnavailableError, match="credentials ended"):
        found.message(MSK)


def test_credentials_that_change_in_a_file_are_seen(machine: Path) -> None:
    (machine / "credentials").write_text("[default]\naws_access_key_id = ONE\naws_secret_access_key = x\n")
    found = login()
    found.renewal().result()
    (machine / "credentials").write_text("[default]\naws_access_key_id = TWO\naws_secret_access_key = x\n")
    found.renewal().result()

    assert json.loads(found.message(MSK))["x-amz-credential"].startswith("TWO/")


def test_kafka_python_asks_ours_for_our_connections_and_its_own_for_others(known: None) -> None:
    found = login()
    found.renewal().result()
    ours = get_sasl_mechanism("AWS_MSK_IAM")(host=MSK, sasl_oauth_token_provider=found, security_protocol="SASL_SSL")
    assert json.loads(ours.auth_bytes())["host"] == MSK
    ours.receive(b'{"version": "2020_10_22", "request-id": "1"}')
    assert ours.is_done() and ours.is_authenticated()

    theirs = get_sasl_mechanism("AWS_MSK_IAM")(host=MSK, sasl_oauth_token_provider=None, security_protocol="SASL_SSL")
    assert isinstance(theirs, SaslMechanismAwsMskIam)


def at(address: str, folder: Path) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM", "bootstrap.servers": address,
        "sasl.jaas.config": f"{MODULE} required {AS_ROLE};", "ssl.truststore.location": str(folder / "trust.pem"),
        "ssl.truststore.type": "PEM", "default.api.timeout.ms": "60000",
    }  # fmt: skip


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    authority = CertificateAuthority()
    authority.write(tmp_path / "trust.pem")
    return authority.issue("broker").write(tmp_path / "broker.pem")


def test_each_connection_logs_in_with_the_credentials_that_are_held(
    sts: StsServer, known: None, identity: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with msk_broker(identity) as (address, logins), BrokerClient(at(address, identity.parent)) as client:
        for _ in range(3):
            client.ask_any_broker(lambda: metadata_request(()))
    sent = [json.loads(each) for each in logins]
    assert len(sent) == 3 and len(sts.asked) == 1
    assert {(each["host"], each["x-amz-credential"].split("/")[0]) for each in sent} == {("127.0.0.1", "KEY1")}


def test_a_login_that_the_broker_refuses_is_told_with_what_it_says(
    sts: StsServer, known: None, identity: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with (
        msk_broker(identity, refusal="[1]: Access denied") as (address, _),
        BrokerClient(at(address, identity.parent)) as client,
        pytest.raises(BrokerAuthorizationError, match=r"Access denied.*kafka\.sasl"),
    ):
        client.ask_any_broker(lambda: metadata_request(()))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("surplus=hunter2", "IAMLoginModule has no option surplus: remove it"),
        (f"awsRoleARN={ROLE}", "no option awsRoleARN (awsRoleArn?)"),
        ("awsRoleArn=reader", "awsRoleArn = 'reader' is no role, arn:aws:iam::"),
        (f"awsRoleArn={ROLE} awsProfileName=x", "awsProfileName and awsRoleArn are both given"),
        ("awsProfileName=' '", "awsProfileName is empty"),
        ("awsRoleSessionName=x", "awsRoleSessionName is for awsRoleArn, which is missing"),
        ("awsRoleExternalId=hunter2", "awsRoleExternalId is for awsRoleArn"),
        ("awsStsRegion=eu-west-1", "awsStsRegion is for awsRoleArn"),
        (f"awsRoleArn={ROLE} awsRoleAccessKeyId=x", "go together"),
        (f"awsRoleArn={ROLE} awsRoleSessionToken=hunter2", "go together"),
        (f"awsRoleArn={ROLE} awsShouldUseFips=true", "awsShouldUseFips needs awsStsRegion"),
        (f"awsRoleArn={ROLE} awsRoleSessionName='a b'", "awsRoleSessionName = 'a b': must be 2 to 64"),
        (f"awsRoleArn={ROLE} awsRoleExternalId=x", "awsRoleExternalId must have from 2"),
        ("awsAddDefaultProviders=true", "no other identity logs in instead"),
        ("awsAddDefaultProviders=maybe", "must be true or false"),
        ("awsMskRegionProvider=a.B", "Java's classes do not run here. Remove it and set AWS_REGION"),
        ("awsMaxRetries=-1", "kafka.sasl.jaas.config: awsMaxRetries = '-1': must be at least 0"),
        ("awsMaxBackOffTimeMs=x", "awsMaxBackOffTimeMs = 'x': must be a whole number"),
    ],
)
def test_an_option_that_would_change_who_logs_in_is_honoured_or_refused(options: str, said: str) -> None:
    assert said in fails(ConfigurationError, options)


def test_an_option_without_effect_is_named(caplog: pytest.LogCaptureFixture, known: None) -> None:
    login("awsDebugCreds=true awsAddDefaultProviders=false")

    assert caplog.messages == ["kafka.sasl.jaas.config: awsDebugCreds has no effect: credentials are never logged"]


def test_no_secret_is_in_a_repr(sts: StsServer, known: None) -> None:
    found = login(f"{AS_ROLE} awsRoleAccessKeyId=a awsRoleSecretAccessKey=hunter2 awsRoleExternalId=hunter2")
    found.renewal().result()

    assert "hunter2" not in repr(found) + repr(found.current()) + repr(vars(found)["_current"])

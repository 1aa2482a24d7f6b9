"""Each origin of credentials gives boto3 the credentials of its role, at AWS's own hosts."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError, NoCredentialsError

from tests.rigs.cloud.aws import Aws
from tests.rigs.cloud.front import METADATA, POD, TASK
from tests.rigs.cloud.origins import CHAIN, role_arn

REGION = "eu-south-1"
ASKED = {
    "environment": [],
    "profile with keys": [],
    "profile that assumes a role": [(f"sts.{REGION}.amazonaws.com", "POST", "/AssumeRole", "user/caller")],
    "web identity (IRSA)": [(f"sts.{REGION}.amazonaws.com", "POST", "/AssumeRoleWithWebIdentity", "")],
    "task of ECS": [(TASK, "GET", "/v2/credentials/1", "")],
    "pod of EKS": [(POD, "GET", "/v1/credentials", "")],
    "instance of EC2": [
        (METADATA, "PUT", "/latest/api/token", ""),
        (METADATA, "GET", "/latest/meta-data/iam/security-credentials/", ""),
        (METADATA, "GET", "/latest/meta-data/iam/security-credentials/reader", ""),
    ],
    "profile of single sign-on": [(f"portal.sso.{REGION}.amazonaws.com", "GET", "/federation/credentials", "")],
    "profile with `credential_process`": [(TASK, "GET", "/v2/credentials/1", "")],
}


@pytest.fixture(autouse=True)
def home(aws: Aws) -> None:
    aws.home = REGION


def use(aws: Aws, monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    CHAIN[source](aws, folder).use(monkeypatch)


@pytest.mark.parametrize("source", CHAIN)
def test_credentials_of_each_origin_are_accepted(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    aws.bucket("lake", REGION)
    use(aws, monkeypatch, tmp_path, source)
    boto3.Session().client("s3", region_name=REGION).list_objects_v2(Bucket="lake")
    *asked, listed = aws.requests
    assert [(each.host, each.method, each.path, each.identity) for each in asked] == ASKED[source]
    assert listed.identity == ("user/reader" if source in ("environment", "profile with keys") else "role/reader")
    assert {each.status for each in aws.requests} == {200}


@pytest.mark.parametrize(
    "source", [each for each in CHAIN if each != "environment" and not each.startswith("profile with")]
)
def test_credentials_that_expire_are_asked_for_again(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    aws.lifetime = 60  # less than the time before its end at which boto3 asks again
    use(aws, monkeypatch, tmp_path, source)
    credentials = boto3.Session(region_name=REGION).get_credentials()
    assert isinstance(credentials, RefreshableCredentials)
    keys = {credentials.get_frozen_credentials().access_key for _ in range(2)}
    assert keys <= aws.keys.keys()
    asked = len(aws.requests)
    credentials.get_frozen_credentials()
    # On an instance, boto3 keeps what is about to expire for a while.
    assert len(aws.requests) > asked or source == "instance of EC2"


@pytest.mark.parametrize("status", [0, 400, 403, 404, 500])
def test_an_instance_may_give_no_credentials(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    use(aws, monkeypatch, tmp_path, "instance of EC2")
    aws.metadata_status = status
    with pytest.raises(NoCredentialsError):
        boto3.Session().client("s3", region_name=REGION).list_buckets()
    assert {each.host for each in aws.requests} == {METADATA}


def test_a_role_is_refused_without_its_token_or_grant(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(aws, monkeypatch, tmp_path, "web identity (IRSA)")
    aws.tokens.clear()
    once = Config(retries={"total_max_attempts": 1})
    with pytest.raises(ClientError, match="InvalidIdentityToken"):
        boto3.Session().client("s3", region_name=REGION, config=once).list_buckets()
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE")
    CHAIN["environment"](aws, tmp_path).use(monkeypatch)
    sts = boto3.Session().client("sts", region_name=REGION)
    assert sts.get_caller_identity()["Arn"].endswith(":user/reader")
    aws.denied.add(("user/reader", "sts:AssumeRole"))
    with pytest.raises(ClientError, match="AccessDenied.* not authorized to perform: sts:AssumeRole"):
        sts.assume_role(RoleArn=role_arn(aws), RoleSessionName="session")

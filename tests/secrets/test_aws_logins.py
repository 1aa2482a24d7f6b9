"""Every way to AWS credentials for AWS_MSK_IAM, with everything logged at debug level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.sts_server import StsServer, unknown_to_aws
from tests.secrets.canaries import Canaries

MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
ROLE = "arn:aws:iam::123456789012:role/reader"
AS_ROLE = f'awsRoleArn="{ROLE}" awsMaxRetries=0'
MSK = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"
EVERY_LOGIN = f"""
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.sasl import sasl_settings
for options in sys.stdin.read().splitlines():
    given = {{"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f"{MODULE} required {{options}};"}}
    login = sasl_settings(ConfigValues(given), "SASL_SSL")["sasl_oauth_token_provider"]
    try:
        login.renewal().result()
        logging.getLogger("program").info("%r %s", login.current(), len(login.message({MSK!r})))
    except Exception as error:
        logging.getLogger("program").exception("refused")
logging.getLogger("botocore.endpoint").debug("what others do is still logged")
"""


def test_nothing_that_aws_asks_or_answers_is_logged_at_any_level(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a new process, in which botocore's modules are loaded, and their loggers made, by the login itself."""
    unknown_to_aws(monkeypatch, tmp_path)
    canaries = Canaries()
    web, mounted = canaries.of("web identity token"), tmp_path / "web-identity"
    mounted.write_text(web)
    with StsServer(canaries.of("what STS gives")) as sts:
        (tmp_path / "config").write_text(
            f"[profile web]\nrole_arn = {ROLE}\nweb_identity_token_file = {mounted}\n"
            f"[profile program]\ncredential_process = sh -c 'echo {canaries.of('printed')} >&2; exit 1'\n"
        )
        environment = {
            **os.environ, "AWS_ENDPOINT_URL_STS": sts.url, "AWS_ACCESS_KEY_ID": canaries.of("access key"),
            "AWS_SECRET_ACCESS_KEY": canaries.of("secret key"), "AWS_SESSION_TOKEN": canaries.of("session token"),
        }  # fmt: skip
        of_role = f"awsRoleAccessKeyId=A awsRoleSecretAccessKey={canaries.of('key for the role')}"
        external = f"awsRoleExternalId={canaries.of('external id')}"
        asked = [
            "",
            AS_ROLE,
            f"{AS_ROLE} {of_role} {external}",
            "awsProfileName=web",
            "awsProfileName=program awsMaxRetries=0",
        ]
        done = subprocess.run(
            [sys.executable, "-c", EVERY_LOGIN], input="\n".join(asked).encode(), env=environment,
            capture_output=True, check=True,
        )  # fmt: skip
        assert [form["Action"] for form in sts.asked] == ["AssumeRole", "AssumeRole", "AssumeRoleWithWebIdentity"]
    assert canaries.found_in(done.stderr) == set()
    assert done.stderr.count(b"INFO:program:AwsCredentials") == 4
    assert b"awsProfileName = 'program': AWS's chain got no credentials: CredentialRetrievalError" in done.stderr
    assert b"what others do is still logged" in done.stderr

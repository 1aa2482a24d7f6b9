"""Origins of credentials in AWS's chain: each function here makes one, for the role `reader` or the user `reader`.

It returns the variables of an environment in which AWS's clients find these credentials, and no others. Its files are
in `folder`. https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from hashlib import sha1
from pathlib import Path

from tests.rigs.cloud.aws import ACCOUNT, Aws
from tests.rigs.cloud.aws_hosts import partition_of
from tests.rigs.cloud.front import METADATA, POD, TASK

Environment = dict[str, str]
_START_URL = "https://company.awsapps.com/start"


def environment(aws: Aws, _folder: Path) -> Environment:
    return aws.user("reader", aws.home).environment()


def profile(aws: Aws, folder: Path) -> Environment:
    """A profile with keys of the user."""
    key = aws.user("reader", aws.home)
    return write_profiles(
        folder, {"profile own": {"aws_access_key_id": key.key_id, "aws_secret_access_key": key.secret}}
    )


def assumed_role(aws: Aws, folder: Path) -> Environment:
    """A profile whose role the user `caller` assumes."""
    caller = aws.user("caller", aws.home)
    keys = {"aws_access_key_id": caller.key_id, "aws_secret_access_key": caller.secret}
    role = {"role_arn": role_arn(aws), "source_profile": "caller", "region": aws.home}
    return write_profiles(folder, {"profile caller": keys, "profile own": role})


def web_identity(aws: Aws, folder: Path) -> Environment:
    """A service account of EKS."""
    return {
        "AWS_ROLE_ARN": role_arn(aws),
        "AWS_WEB_IDENTITY_TOKEN_FILE": _token(aws, folder),
        "AWS_REGION": aws.home,
        "AWS_DEFAULT_REGION": aws.home,
    }


def task(aws: Aws, _folder: Path) -> Environment:
    """A task of ECS."""
    aws.roles[TASK] = "reader"
    return {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/1"}


def pod(aws: Aws, folder: Path) -> Environment:
    """A pod of EKS with Pod Identity."""
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{POD}/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": _token(aws, folder),
    }


def instance(aws: Aws, _folder: Path) -> Environment:
    """An instance of EC2."""
    aws.roles[METADATA] = "reader"
    return {}


def single_sign_on(aws: Aws, folder: Path) -> Environment:
    """A profile of IAM Identity Center, after `aws sso login`."""
    # In the home folder of the namespaces, because boto3 determines this folder when it is imported.
    cached = Path.home() / ".aws/sso/cache" / f"{sha1(_START_URL.encode()).hexdigest()}.json"
    cached.parent.mkdir(parents=True, exist_ok=True)
    token = Path(_token(aws, folder)).read_text()
    cached.write_text(json.dumps({"accessToken": token, "expiresAt": "2100-01-01T00:00:00Z", "startUrl": _START_URL}))
    profile = {
        "sso_start_url": _START_URL, "sso_region": aws.home, "sso_account_id": ACCOUNT, "sso_role_name": "reader",
    }  # fmt: skip
    return write_profiles(folder, {"profile own": profile})


def process(aws: Aws, folder: Path) -> Environment:
    """A profile with a program that prints credentials: here, of the task."""
    aws.roles[TASK] = "reader"
    script = folder / "credentials.py"
    script.write_text(
        "import json, urllib.request\n"
        f"with urllib.request.urlopen('http://{TASK}/v2/credentials/1') as response:\n"
        "    found = json.load(response)\n"
        "print(json.dumps({**found, 'Version': 1, 'SessionToken': found['Token']}))\n"
    )
    return write_profiles(folder, {"profile own": {"credential_process": shlex.join([sys.executable, str(script)])}})


SOURCES: Mapping[str, Callable[[Aws, Path], Environment]] = {
    "environment": environment,
    "profile": profile,
    "assumed role": assumed_role,
    "web identity": web_identity,
    "task": task,
    "pod": pod,
    "instance": instance,
    "single sign-on": single_sign_on,
    "process": process,
}


def role_arn(aws: Aws, name: str = "reader") -> str:
    return f"arn:{partition_of(aws.home)}:iam::{ACCOUNT}:role/{name}"


def _token(aws: Aws, folder: Path) -> str:
    aws.tokens["token-of-reader"] = "reader"
    (folder / "token").write_text("token-of-reader")
    return str(folder / "token")


def write_profiles(folder: Path, profiles: Mapping[str, Mapping[str, str]]) -> Environment:
    """Write the profiles, and return variables that choose the profile `own`."""
    lines = (
        line
        for name, settings in profiles.items()
        for line in (f"[{name}]", *(f"{key} = {value}" for key, value in settings.items()))
    )
    (folder / "config").write_text("\n".join(lines))
    return {"AWS_CONFIG_FILE": str(folder / "config"), "AWS_PROFILE": "own"}

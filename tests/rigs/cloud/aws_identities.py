"""Services that give out AWS credentials: metadata of instances, tasks and pods, STS, and single sign-on."""

from __future__ import annotations

import re
import secrets
import time
from urllib.parse import parse_qsl

from tests.rigs.cloud.aws import ACCOUNT, Aws, Credentials, sha256
from tests.rigs.cloud.aws_hosts import Host
from tests.rigs.cloud.front import METADATA, POD, TASK, Answer, Elements, RefusedError, Request, json_answer, xml

_ROLE = re.compile(rf"arn:(?P<partition>[a-z-]+):iam::{ACCOUNT}:role/(?P<name>[\w+=,.@-]+)")
_SESSIONS = "/latest/api/token"
_CREDENTIALS = "/latest/meta-data/iam/security-credentials/"


def metadata(aws: Aws, request: Request) -> Answer:
    """Answer a request to a link-local address. A status of 0 stands for no response.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
    https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-iam-roles.html
    https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html
    """
    if request.address == METADATA and aws.metadata_status is not None:
        return aws.metadata_status, {}, b""
    if request.address == METADATA:
        return _instance(aws, request)
    if request.address == TASK and TASK in aws.roles and request.method == "GET":
        return _document(aws.role(aws.roles[TASK], aws.home, aws.lifetime))
    if request.address == POD:
        role = aws.tokens.get(request.headers.get("authorization", ""))
        return (401, {}, b"") if role is None else _document(aws.role(role, aws.home, aws.lifetime))
    return 404, {}, b""


def _instance(aws: Aws, request: Request) -> Answer:
    """Answer as IMDSv2, which refuses a request without the token of a session."""
    ttl = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds")
    if (request.method, request.path) == ("PUT", _SESSIONS):
        if ttl is None or not 1 <= int(ttl) <= 21600:
            return 400, {}, b""
        token = secrets.token_urlsafe(40)
        aws.sessions[token] = time.time() + int(ttl)
        return 200, {"x-aws-ec2-metadata-token-ttl-seconds": ttl}, token.encode()
    if aws.sessions.get(request.headers.get("x-aws-ec2-metadata-token", ""), 0) < time.time():
        return 401, {}, b""
    role = aws.roles.get(METADATA, "")
    if role and request.path == _CREDENTIALS:
        return 200, {}, role.encode()
    if role and request.path == _CREDENTIALS + role:
        return _document(aws.role(role, aws.home, aws.lifetime))
    if request.path == "/latest/meta-data/placement/availability-zone":
        return 200, {}, f"{aws.home}a".encode()
    return 404, {}, b""


def _document(key: Credentials) -> Answer:
    document = {
        "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key.key_id, "SecretAccessKey": key.secret,
        "Token": key.token, "Expiration": key.expiration, "LastUpdated": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return json_answer(document)


def security_tokens(aws: Aws, host: Host, request: Request, seen: dict[str, str]) -> Answer:
    """Answer as STS: AssumeRole by a signature, and AssumeRoleWithWebIdentity by a token.

    https://docs.aws.amazon.com/STS/latest/APIReference/welcome.html
    """
    given = dict(parse_qsl(request.body.decode() or request.query))
    action = given.get("Action", "")
    seen["path"] = f"/{action}"
    role = _ROLE.fullmatch(given.get("RoleArn", ""))
    if action == "AssumeRoleWithWebIdentity":
        if role is None or aws.tokens.get(given.get("WebIdentityToken", "")) != role["name"]:
            raise RefusedError(400, "InvalidIdentityToken", "No OpenIDConnect provider found in your account")
    else:
        claim, caller = aws.authenticate(request, "sts", host.region, sha256(request.body))
        seen |= {"identity": caller.identity, "region": claim.region}
        if role is None or action != "AssumeRole":
            raise RefusedError(400, "ValidationError", "The role's ARN or the action is not known")
        aws.check_allowed(caller, "sts:AssumeRole", role[0])
    key = aws.role(role["name"], host.region, aws.lifetime)
    found = {"AccessKeyId": key.key_id, "SecretAccessKey": key.secret, "SessionToken": key.token}
    user = {"AssumedRoleId": "AROA:session", "Arn": f"{role[0]}/session"}
    return _response(action, {"Credentials": found | {"Expiration": key.expiration}, "AssumedRoleUser": user})


def _response(action: str, result: Elements) -> Answer:
    return 200, {"Content-Type": "text/xml"}, xml({f"{action}Response": {f"{action}Result": result}}).encode()


def single_sign_on(aws: Aws, host: Host, request: Request, seen: dict[str, str]) -> Answer:
    """Answer as the portal of IAM Identity Center: GetRoleCredentials.

    https://docs.aws.amazon.com/singlesignon/latest/PortalAPIReference/API_GetRoleCredentials.html
    """
    given = request.parameters()
    role = aws.tokens.get(request.headers.get("x-amz-sso_bearer_token", ""))
    if role is None or role != given.get("role_name") or given.get("account_id") != ACCOUNT:
        return 401, {"x-amzn-errortype": "UnauthorizedException"}, b'{"message": "Session token not found or invalid"}'
    key = aws.role(role, host.region, aws.lifetime)
    found = {"accessKeyId": key.key_id, "secretAccessKey": key.secret, "sessionToken": key.token}
    return json_answer({"roleCredentials": found | {"expiration": int(key.expires * 1000)}})

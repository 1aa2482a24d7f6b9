"""AWS as its clients see it, in the namespaces of `namespace.py`: buckets in regions, and who may sign requests.

    aws.bucket("lake", "eu-south-1")
    credentials = aws.role("tier-reader")

`requests` records who signed what at which host. The objects are in the folders of an S3 server, which no test asks.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.rigs.cloud.aws_hosts import GLOBAL, parse_host, partition_of
from tests.rigs.cloud.front import PRIVATE, PUBLIC, Answer, Cloud, RefusedError, Request
from tests.rigs.cloud.sigv4 import Claim, MalformedError, claim_of, signature
from tests.rigs.stack.versitygw import VersityGateway

ACCOUNT = "123456789012"
_SKEW = 15 * 60


@dataclass(frozen=True)
class Credentials:
    """A key of an identity such as `user/NAME` or `role/NAME`; `token` is empty for a key that never expires."""

    identity: str
    partition: str
    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires: float = float("inf")

    @property
    def expiration(self) -> str:
        return datetime.fromtimestamp(self.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def environment(self) -> dict[str, str]:
        """Return the variables with which AWS's clients use the key."""
        given = {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": self.secret}
        return given | ({"AWS_SESSION_TOKEN": self.token} if self.token else {})


@dataclass
class Bucket:
    """A bucket; `new`: the global host still redirects to its region. `folder` is its name at the server behind."""

    name: str
    region: str
    new: bool = False
    requester_pays: bool = False
    folder: str = ""


class Aws(Cloud):
    """State of AWS: everything that a test changes is gone after `reset`."""

    def __init__(self, folder: Path) -> None:
        self.store = VersityGateway(folder / "versitygw", folder / "buckets")
        self.store.start()
        self.backend_port = self.store.port
        self._client = self.store.client()
        super().__init__()

    def stop(self) -> None:
        self.store.stop()

    def address_of(self, host: str) -> str | None:
        found = None if host in self.missing else parse_host(host)
        return None if found is None else PRIVATE if "interface" in found.kind else PUBLIC

    def certificate_names(self, host: str) -> tuple[str, ...]:
        found = parse_host(host)
        assert found is not None
        return found.certificate_names

    def answer(self, request: Request, seen: dict[str, str]) -> Answer:
        from tests.rigs.cloud.aws_identities import metadata, security_tokens, single_sign_on
        from tests.rigs.cloud.aws_s3 import S3Request

        host = parse_host(request.host)
        if host is None:
            return metadata(self, request)
        if host.service == "s3":
            return S3Request(self, host, request, seen).answer()
        return (security_tokens if host.service == "sts" else single_sign_on)(self, host, request, seen)

    def refusal(self, request: Request, refused: RefusedError) -> bytes:
        error = super().refusal(request, refused)
        return b"<ErrorResponse>%b</ErrorResponse>" % error if request.host.startswith("sts") else error

    def reset(self) -> None:
        super().reset()
        self.buckets: dict[tuple[str, str], Bucket] = {}
        self.access_points: dict[tuple[str, str], Bucket] = {}
        self.keys: dict[str, Credentials] = {}
        self.sessions: dict[str, float] = {}
        """End of the sessions of the instance's metadata service, by token."""
        self.denied: set[tuple[str, ...]] = set()
        """Identities and actions that are not authorized: `("role/reader", "s3:ListBucket")`, or in one bucket with its
        name as the third member."""
        self.missing: set[str] = set()
        """Hosts that have no address."""
        self.faults: list[RefusedError] = []
        """Responses to the next requests to S3."""
        self.roles: dict[str, str] = {}
        """Names of the roles whose credentials the services at `METADATA` and `TASK` give out."""
        self.tokens: dict[str, str] = {}
        """Names of roles by the tokens that get their credentials: of pods, web identities and SSO."""
        self.home = GLOBAL
        """Region of the instance."""
        self.redirect_headers = frozenset({"x-amz-bucket-region"})
        """Headers of a permanent redirect in addition to its body; it may also have `location`."""

    def bucket(self, name: str, region: str, *, new: bool = False, requester_pays: bool = False) -> Bucket:
        """Create an empty bucket."""
        bucket = Bucket(name, region, new, requester_pays, f"{len(self.buckets)}-{secrets.token_hex(4)}-{name}")
        self._client.create_bucket(Bucket=bucket.folder)
        self.buckets[partition_of(region), name] = bucket
        return bucket

    def access_point(self, name: str, bucket: Bucket) -> str:
        """Create an access point in the bucket's region, and return its ARN."""
        self.access_points[bucket.region, f"{name}-{ACCOUNT}"] = bucket
        return f"arn:{partition_of(bucket.region)}:s3:{bucket.region}:{ACCOUNT}:accesspoint/{name}"

    def put(self, bucket: Bucket, key: str, data: bytes) -> None:
        """Store an object, without a request to AWS."""
        self._client.put_object(Bucket=bucket.folder, Key=key, Body=data)

    def user(self, name: str, region: str = "us-east-1") -> Credentials:
        """Return a key of a user in the region's partition."""
        return self._issued(f"user/{name}", region, "AKIA", "", float("inf"))

    def role(self, name: str, region: str = "us-east-1", seconds: float = 3600) -> Credentials:
        """Return a temporary key of a role in the region's partition."""
        return self._issued(f"role/{name}", region, "ASIA", secrets.token_urlsafe(300), time.time() + seconds)

    def _issued(self, identity: str, region: str, prefix: str, token: str, expires: float) -> Credentials:
        key_id = prefix + secrets.token_hex(8).upper()
        key = Credentials(identity, partition_of(region), key_id, secrets.token_urlsafe(30), token, expires)
        self.keys[key_id] = key
        return key

    def authenticate(self, request: Request, service: str, region: str, payload_hash: str) -> tuple[Claim, Credentials]:
        """Check a request's signature as the region's service does, and return what it says and whose key it has.

        https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html has the codes.

        Raises:
            RefusedError: the request is not signed, or its signature or key does not hold.
        """
        try:
            claim = claim_of(request)
        except MalformedError as error:
            raise RefusedError(400, "AuthorizationHeaderMalformed", str(error)) from None
        if claim is None:
            raise RefusedError(403, "AccessDenied", "Access Denied")
        self._check_scope(claim, service, region)
        _check_headers(request, claim)
        key = self.keys.get(claim.key_id)
        if key is None or key.partition != partition_of(region) or (key.token and not claim.token):
            message = "The AWS Access Key Id you provided does not exist in our records."
            raise RefusedError(403, "InvalidAccessKeyId", message, AWSAccessKeyId=claim.key_id)
        if key.token != claim.token:
            raise RefusedError(400, "InvalidToken", "The provided token is malformed or otherwise invalid.")
        if key.expires < time.time():
            raise RefusedError(400, "ExpiredToken", "The provided token has expired.")
        if signature(request, claim, key.secret, payload_hash) != claim.signature:
            message = "The request signature we calculated does not match the signature you provided."
            raise RefusedError(403, "SignatureDoesNotMatch", message, AWSAccessKeyId=claim.key_id)
        return claim, key

    def _check_scope(self, claim: Claim, service: str, region: str) -> None:
        where = "header" if claim.expires is None else "query"
        code = {"header": "AuthorizationHeaderMalformed", "query": "AuthorizationQueryParametersError"}[where]
        if claim.region != region:
            message = (
                f"The authorization {where} is malformed; the region '{claim.region}' is wrong; expecting '{region}'"
            )
            raise RefusedError(400, code, message, Region=region)
        if claim.service != service:
            raise RefusedError(400, code, f"incorrect service {claim.service}. This endpoint belongs to {service}.")

    def check_allowed(self, key: Credentials, action: str, resource: str) -> None:
        """Raises RefusedError: `denied` has the identity and the action."""
        bucket = resource.rpartition(":")[2].partition("/")[0]
        if {(key.identity, action), (key.identity, action, bucket)} & self.denied:
            kind, _, name = key.identity.partition("/")
            user = f"sts::{ACCOUNT}:assumed-role/{name}/session" if kind == "role" else f"iam::{ACCOUNT}:user/{name}"
            message = (
                f'User: arn:{key.partition}:{user} is not authorized to perform: {action} on resource: "{resource}" '
                f"because no identity-based policy allows the {action} action"
            )
            raise RefusedError(403, "AccessDenied", message)


def _check_headers(request: Request, claim: Claim) -> None:
    """Check the time, and that all headers are signed which must be.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html: `host` and every `x-amz-` header.
    """
    bare = [name for name in request.headers if name.startswith("x-amz-") or name == "host"]
    if unsigned := [name for name in bare if name not in claim.signed_headers]:
        message = "There were headers present in the request which were not signed"
        raise RefusedError(403, "AccessDenied", message, HeadersNotSigned=", ".join(unsigned))
    age = time.time() - claim.time.timestamp()
    if claim.expires is not None and age > claim.expires:
        raise RefusedError(403, "AccessDenied", "Request has expired")
    if age < -_SKEW or (claim.expires is None and age > _SKEW):
        message = "The difference between the request time and the current time is too large."
        raise RefusedError(403, "RequestTimeTooSkewed", message)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

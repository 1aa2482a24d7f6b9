"""S3's rules for a request, before it reaches the objects in the server behind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from tests.rigs.cloud.aws import Aws, Bucket, sha256
from tests.rigs.cloud.aws_hosts import GLOBAL, Host, domain_of, is_new, partition_of
from tests.rigs.cloud.front import Answer, RefusedError, Request
from tests.rigs.cloud.sigv4 import ALGORITHM, TIME_FORMAT, UNSIGNED, Claim, chunk_signature, signature
from tests.rigs.stack.s3_client import REGION

_STREAMING = "STREAMING-"
_HERE = (
    "host", "authorization", "expect", "connection", "content-length", "transfer-encoding", "x-amz-date",
    "x-amz-security-token", "x-amz-content-sha256", "x-amz-request-payer", "x-amz-expected-bucket-owner",
    "x-amz-decoded-content-length", "x-amz-trailer", "accept-encoding",
)  # fmt: skip
"""Headers that are for AWS, and not for the server behind."""


class S3Request:
    """One request to S3; `seen` gets the identity and the region of its signature."""

    def __init__(self, aws: Aws, host: Host, request: Request, seen: dict[str, str]) -> None:
        self._aws, self._host, self._request, self._seen = aws, host, request, seen
        self._body = request.body
        path = unquote(request.path).lstrip("/")
        self._name, self._key = (host.name, path) if host.name else path.partition("/")[::2]

    def answer(self) -> Answer:
        """Return the response.

        Raises:
            RefusedError: the request breaks a rule.
        """
        if self._aws.faults:
            raise self._aws.faults.pop(0)
        bucket = self._find_bucket()
        region = self._host.region if bucket is None else self._check_region(bucket)
        self._authenticate(region, bucket)
        if bucket is not None and "location" in self._request.parameters() and not self._key:
            place = "" if bucket.region == GLOBAL else bucket.region
            return 200, {}, f"<LocationConstraint>{place}</LocationConstraint>".encode()
        answer = self._forward(bucket)
        if bucket is not None and not self._key:
            answer[1]["x-amz-bucket-region"] = bucket.region
        return answer

    def _find_bucket(self) -> Bucket | None:
        """Return the bucket that the host or the path names; None: it names none, as for ListBuckets."""
        if not self._name:
            return None
        if "access point" in self._host.kind:
            bucket = self._aws.access_points.get((self._host.region, self._name))
            code = "NoSuchAccessPoint"
        else:
            bucket = self._aws.buckets.get((partition_of(self._host.region), self._name))
            code = "NoSuchBucket"
        if bucket is None:
            raise RefusedError(404, code, "The specified bucket does not exist", BucketName=self._name)
        return bucket

    def _check_region(self, bucket: Bucket) -> str:
        """Return the region that the request has arrived in, which must be the bucket's.

        The name server leads from the global host to a bucket's region some time after it was created, but never to a
        region that is new: https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html.
        S3 refuses other regions before it looks at the signature.
        """
        is_global = "global" in self._host.kind
        here = self._host.region if not is_global or bucket.new or is_new(bucket.region) else bucket.region
        if here == bucket.region:
            return here
        named = {"x-amz-bucket-region": bucket.region}
        if is_new(here) or is_new(bucket.region):
            place = "unspecified" if bucket.region == GLOBAL else bucket.region
            message = f"The {place} location constraint is incompatible for the region specific endpoint."
            headers = named if self._request.method == "HEAD" else {}
            raise RefusedError(400, "IllegalLocationConstraintException", message, headers)
        endpoint = f"{bucket.name}.s3.{bucket.region}.{domain_of(bucket.region)}"
        named["location"] = f"https://{endpoint}/{quote(self._key)}" + (
            f"?{self._request.query}" * bool(self._request.query)
        )
        if is_global and bucket.new:  # https://docs.aws.amazon.com/AmazonS3/latest/API/RESTRedirect.html
            message = "Please re-send this request to the specified temporary endpoint."
            raise RefusedError(307, "TemporaryRedirect", message, named, Endpoint=endpoint, Bucket=bucket.name)
        shown = {name: value for name, value in named.items() if name in self._aws.redirect_headers}
        message = "The bucket you are attempting to access must be addressed using the specified endpoint."
        raise RefusedError(301, "PermanentRedirect", message, shown, Endpoint=endpoint, Bucket=bucket.name)

    def _authenticate(self, region: str, bucket: Bucket | None) -> None:
        request, headers = self._request, self._request.headers
        payload = headers.get("x-amz-content-sha256")
        if payload is None and "authorization" in headers:
            raise RefusedError(400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
        claim, key = self._aws.authenticate(request, "s3", region, payload or UNSIGNED)
        self._seen |= {"identity": key.identity, "region": claim.region}
        if payload and payload.startswith(_STREAMING):
            self._body, trailers = _decoded(self._body, claim, key.secret, payload)
            self._trailers = trailers
        elif payload not in (None, UNSIGNED, sha256(self._body)):
            message = "The provided 'x-amz-content-sha256' header does not match what was computed."
            raise RefusedError(400, "XAmzContentSHA256Mismatch", message)
        if bucket is not None:
            self._check_rules(bucket)
            resource = f"arn:{key.partition}:s3:::{bucket.name}" + (f"/{self._key}" if self._key else "")
            self._aws.check_allowed(key, self._action(), resource)

    def _check_rules(self, bucket: Bucket) -> None:
        request, headers = self._request, self._request.headers
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/ObjectsinRequesterPaysBuckets.html
        payer = headers.get("x-amz-request-payer") or request.parameters().get("x-amz-request-payer")
        if bucket.requester_pays and payer != "requester":
            raise RefusedError(403, "AccessDenied", "Access Denied")
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html, Encryption
        if request.method in ("GET", "HEAD") and "x-amz-server-side-encryption" in headers:
            raise RefusedError(400, "InvalidArgument", "x-amz-server-side-encryption header is not supported")

    def _action(self) -> str:
        if not self._key and self._request.method in ("GET", "HEAD"):
            return "s3:GetBucketLocation" if "location" in self._request.parameters() else "s3:ListBucket"
        verbs = {"GET": "Get", "HEAD": "Get", "DELETE": "Delete"}
        return f"s3:{verbs.get(self._request.method, 'Put')}Object"

    _trailers: Mapping[str, str] = {}

    def _forward(self, bucket: Bucket | None) -> Answer:
        """Send the request to the server behind, signed by its own key."""
        store, now = self._aws.store, datetime.now(UTC)
        kept = {name: value for name, value in self._request.headers.items() if name not in _HERE}
        if "aws-chunked" in kept.get("content-encoding", ""):
            kept["content-encoding"] = kept["content-encoding"].replace("aws-chunked", "").strip(", ")
        if bucket is not None and (source := kept.get("x-amz-copy-source")):
            name, _, key = source.lstrip("/").partition("/")
            kept["x-amz-copy-source"] = f"{self._aws.buckets[partition_of(bucket.region), name].folder}/{key}"
        headers = {
            **{name: value for name, value in kept.items() if value}, **self._trailers,
            "host": f"127.0.0.1:{store.port}", "x-amz-date": now.strftime(TIME_FORMAT),
            "x-amz-content-sha256": sha256(self._body),
        }  # fmt: skip
        path = f"/{bucket.folder}/{quote(self._key)}" if bucket else "/"
        query = "&".join(each for each in self._request.query.split("&") if not each.startswith("X-Amz-"))
        signed = tuple(sorted(name for name in headers if name.startswith("x-amz-") or name == "host"))
        claim = Claim(store.access_key, f"{now:%Y%m%d}", REGION, "s3", signed, "", now, "", None)
        request = Request(self._request.method, path, query, headers)
        own = signature(request, claim, store.secret_key, headers["x-amz-content-sha256"])
        credential, names = f"{store.access_key}/{claim.scope}", ";".join(signed)
        headers["authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={own}"
        assert self._request.ask is not None
        response, content = self._request.ask(request.method, f"{path}?{query}" if query else path, self._body, headers)
        return response.status, dict(response.getheaders()), self._with_own_name(content, bucket)

    def _with_own_name(self, content: bytes, bucket: Bucket | None) -> bytes:
        """Return a response with the bucket's name instead of its folder's."""
        is_object = self._request.method == "GET" and self._key
        return content if bucket is None or is_object else content.replace(bucket.folder.encode(), bucket.name.encode())


def _decoded(body: bytes, claim: Claim, secret: str, kind: str) -> tuple[bytes, dict[str, str]]:
    """Return the content and the trailers of a body in chunks.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html and `…-streaming-trailers.html`
    """
    previous, content, signed = claim.signature, [], ALGORITHM in kind
    while True:
        line, _, body = body.partition(b"\r\n")
        size, _, extension = line.decode().partition(";chunk-signature=")
        chunk, body = body[: int(size, 16)], body[int(size, 16) :]
        if signed:
            previous = chunk_signature(claim, secret, previous, chunk)
            if previous != extension:
                raise RefusedError(403, "SignatureDoesNotMatch", "The signature of a chunk does not match.")
        if not chunk:
            break
        content.append(chunk)
        body = body.removeprefix(b"\r\n")
    trailers = (line.partition(":") for line in body.decode().split("\r\n") if ":" in line)
    return b"".join(content), {name.lower(): value.strip() for name, _, value in trailers if "signature" not in name}

"""An S3 bucket (and prefix in it) as an object store (`s3://bucket/prefix`); the only module that imports boto3."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

import boto3
import botocore.loaders
import botocore.session
from botocore import exceptions as aws
from botocore.config import Config

from tiered_stream.errors import (
    ConfigurationError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageConnectTimeoutError,
    StorageError,
    StorageObjectNotFoundError,
    StorageReadTimeoutError,
    StorageUnavailableError,
    TieredStreamError,
)
from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import S3Access, StorageOptions
from tiered_stream.process.logs import muted
from tiered_stream.storage.object_store import (
    ATTEMPTS,
    SLOW_DOWN,
    ObjectStore,
    too_short,
)
from tiered_stream.storage.request_time import RequestTime, RequestTimeouts
from tiered_stream.storage.s3_connections import S3Connections
from tiered_stream.storage.s3_ranges import RangedGets, SentRequest, ranged_gets

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.loaders import Loader
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_USER_AGENT = f"tiered_stream Botocore/{botocore.__version__}"
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
LOGGERS_WITH_SECRETS = ("botocore", "urllib3")
"""Loggers whose debug lines contain signatures, tokens and signed URLs; code that uses a client mutes them."""
_CREDENTIALS_HINT = (
    "check remote.storage.aws.access.key.id, remote.storage.aws.secret.access.key and "
    "remote.storage.aws.session.token, or where they are not given the AWS credential chain (environment, profile, "
    "instance or pod role)"
)
_LISTING_HINT = "to list it, grant s3:ListBucket on arn:aws:s3:::{bucket}; else "
# AWS answers 403 with most of these codes, but 400 to an expired or malformed token or a wrong region.
_ACCESS_CODES = frozenset((
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken",
    "InvalidAccessKeyId", "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch",
))  # fmt: skip
_NO_CREDENTIALS = (
    aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError, aws.TokenRetrievalError,
    aws.NoAuthTokenError, aws.SSOError,
)  # fmt: skip
_TIMEOUTS = (aws.ConnectTimeoutError, aws.ReadTimeoutError)
_BROKEN = (aws.ResponseStreamingError, aws.IncompleteReadError)
"""Errors in a response's body, which botocore's own retries do not cover."""


class S3Store(ObjectStore):
    """Object store over the objects of `bucket` whose keys begin with `prefix` and a slash.

    If `prefix` is empty, it is a store over all objects of the bucket.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        prefix: str,
        connections: S3Connections,
        request_time: RequestTime,
        build_ranges: Callable[[AWSPreparedRequest, str], RangedGets | None],
    ) -> None:
        """Register event handlers of `client` that count, time-limit and send its requests.

        Args:
            connections: connections over which the client's requests are sent.
            request_time: time limit of the client's requests.
            build_ranges: builds ranged GETs, which cost less CPU than the client's GETs. It is called with a GET that
                the client has sent, and the object's key. It returns None if it cannot sign as the client does.
        """
        self._client = client
        self._connections = connections
        self._time = request_time
        self._build_ranges = build_ranges
        self._ranges: RangedGets | None = None
        self._sent: SentRequest | None = SentRequest()
        self._bucket = bucket
        self._root = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._busy = _BusyAnswers()
        client.meta.events.register_first("needs-retry.s3", self._busy.count)
        client.meta.events.register_first("needs-retry.s3", partial(_raise_if_not_repeated, request_time))
        client.meta.events.register("before-send.s3.GetObject", self._sent.note)
        client.meta.events.register_last("before-send.s3", partial(_send, connections))  # type: ignore[arg-type]

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        if isinstance(extent, ByteRange) and not extent:
            return b""
        with self._mapped_errors(key):
            if isinstance(extent, ByteRange) and (data := self._get_range(key, extent)) is not None:
                return data
            broken = 0
            while True:
                try:
                    return self._get_once(key, extent)
                except _TIMEOUTS:
                    if not self._time.repeats_after_timeout():
                        raise
                except _BROKEN:
                    broken += 1
                    if broken == ATTEMPTS or self._time.is_over:
                        raise

    def size(self, key: str) -> int:
        with self._mapped_errors(key):
            return self._client.head_object(Bucket=self._bucket, Key=self._root + key)["ContentLength"]

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        paginator = self._client.get_paginator("list_objects_v2")
        pages = iter(
            paginator.paginate(Bucket=self._bucket, Prefix=self._root + prefix, StartAfter=self._root + after)
            if after
            else paginator.paginate(Bucket=self._bucket, Prefix=self._root + prefix)
        )
        while True:
            with self._mapped_errors(prefix, _LISTING_HINT.format(bucket=self._bucket)):
                page = next(pages, None)
                if page is None:
                    return
                keys = [entry["Key"].removeprefix(self._root) for entry in page.get("Contents", ())]
            yield from keys

    def describe(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._root}{key}"

    def signed_url(self, key: str, seconds: int) -> str | None:
        with self._mapped_errors(key):
            return self._client.generate_presigned_url(
                "get_object", Params={"Bucket": self._bucket, "Key": self._root + key}, ExpiresIn=seconds
            )

    def busy_answers(self) -> int:
        return self._busy.counted

    def close(self) -> None:
        self._client.close()
        self._connections.close()

    def _get_range(self, key: str, byte_range: ByteRange) -> bytes | None:
        """Return the bytes `byte_range` of the object, by a ranged GET without the client.

        Return None if the client must send the request: ranged GETs are not usable, or this one failed.
        """
        try:
            if self._ranges is None or not self._ranges.accepted:
                return None
            return self._ranges.get(self._root + key, byte_range, self._busy.add)
        except _TIMEOUTS:
            if not self._time.repeats_after_timeout():
                raise
            return None
        except aws.BotoCoreError:
            return None

    def _get_once(self, key: str, extent: ByteRange | Limit) -> bytes:
        if isinstance(extent, Limit):
            response = self._client.get_object(Bucket=self._bucket, Key=self._root + key)
        else:
            header = f"bytes={extent.start}-{extent.end - 1}"
            try:
                response = self._client.get_object(Bucket=self._bucket, Key=self._root + key, Range=header)
            except aws.ClientError as error:
                if _status(error) == 416:
                    raise too_short(self.describe(key), extent, self.size(key)) from error
                raise
        with closing(response["Body"]) as body:
            self._check_length(key, extent, response)
            # Without a size, `read` copies the body from the socket into one bytes object, without a second copy.
            data = body.read()
        if self._ranges is not None and isinstance(extent, ByteRange):
            self._ranges.given_to_client(self._root + key)
        self._learn_from_sent(key)
        return data

    def _learn_from_sent(self, key: str) -> None:
        """Build the ranged GETs from the client's first GET that succeeded; later calls do nothing."""
        sent, self._sent = self._sent, None
        if sent is not None and sent.request is not None:
            self._ranges = self._build_ranges(sent.request, self._root + key)

    def _check_length(self, key: str, extent: ByteRange | Limit, response: GetObjectOutputTypeDef) -> None:
        """Check a response's length before its body is read.

        Raises:
            StorageError: the response has no length, or another range than `extent`.
            CorruptDataError: the object ends before the range `extent` does.
            DataLimitError: the object has more bytes than the limit `extent`.
        """
        length = response.get("ContentLength")
        # A chunked response can have any length, whatever its Content-Length header says.
        if length is None or "transfer-encoding" in response["ResponseMetadata"]["HTTPHeaders"]:
            raise StorageError(f"{self._endpoint} did not give the length of {self.describe(key)}")
        if isinstance(extent, Limit):
            extent.check(length, f"the bytes of {self.describe(key)}")
            return
        content_range = response.get("ContentRange", "")
        if not content_range.startswith(f"bytes {extent.start}-"):
            raise StorageError(f"{self._endpoint} does not honour ranges: for {self.describe(key)}, {extent}")
        if length < len(extent):
            raise too_short(self.describe(key), extent, extent.start + length)
        if length > len(extent):
            raise StorageError(f"{self._endpoint} gave {length} bytes of {self.describe(key)}, not those of {extent}")

    @property
    def _endpoint(self) -> str:
        return self._client.meta.endpoint_url

    @contextmanager
    def _mapped_errors(self, key: str, access_hint: str = "") -> Iterator[None]:
        """Raise our errors in place of botocore's, and start the time limit of a GET.

        Args:
            access_hint: part of the message for refused access that comes before the advice about credentials.
        """
        name = self.describe(key)
        self._time.begin()
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                yield
        except (TieredStreamError, MemoryError):  # a lack of memory in this process is not the service's fault
            raise
        except aws.ClientError as error:
            raise self._refused(error, name, access_hint) from error
        except aws.ConnectTimeoutError as error:
            raise StorageConnectTimeoutError(
                f"no connection to {self._endpoint} within kafka.fetch.remote.connect.timeout.ms, for {name}"
            ) from error
        except aws.ReadTimeoutError as error:
            raise StorageReadTimeoutError(
                f"{name}, asked for at {self._endpoint}, {self._time.describe_timeout()}"
            ) from error
        except _NO_CREDENTIALS as error:
            raise StorageAccessError(f"no credentials for {name}: {_CREDENTIALS_HINT}") from error
        except (aws.ConnectionError, aws.HTTPClientError, aws.IncompleteReadError) as error:
            raise StorageUnavailableError(
                f"{self._endpoint} (option remote.storage.s3.endpoint.url) could not be reached for {name}: {error}"
            ) from error
        except aws.BotoCoreError as error:
            raise StorageError(f"{name} could not be read from {self._endpoint}: {error}") from error
        except Exception as error:  # botocore does not catch all errors of its parsers for responses
            raise StorageError(
                f"{self._endpoint} (option remote.storage.s3.endpoint.url) does not answer as S3 does, asked for "
                f"{name}: {type(error).__name__}"
            ) from error

    def _refused(self, error: aws.ClientError, name: str, access_hint: str) -> StorageError:
        code, status = error.response["Error"].get("Code", ""), _status(error)
        response = f"{self._endpoint} answered {status} {code}"
        if code == "NoSuchBucket":
            return StorageBucketNotFoundError(
                f"the bucket {self._bucket} (option remote.storage.uri) does not exist: {response}, asked for {name}"
            )
        if status == 404:
            return StorageObjectNotFoundError(f"{name} does not exist: {response}")
        if status in (401, 403) or code in _ACCESS_CODES:
            return StorageAccessError(f"no access to {name}: {response}; {access_hint}{_CREDENTIALS_HINT}")
        if status == 429 or status >= 500 or code == "SlowDown":
            return StorageUnavailableError(f"{response} to every request for {name}")
        return StorageError(f"{response}, asked for {name}: {error.response['Error'].get('Message', '')}")


class _BusyAnswers:
    """Counter of responses that ask for fewer requests (429, 503).

    It is a separate object, so that the client's event handlers do not keep a reference to the store.
    """

    counted = 0

    def add(self, status: int) -> None:
        self.counted += status in SLOW_DOWN

    def count(self, response: tuple[AWSResponse, object] | None = None, **_: object) -> None:
        """Count a response if it asks for fewer requests; botocore calls this before its own retries."""
        if response is not None:
            self.add(response[0].status_code)


def open_s3_store(
    options: StorageOptions, bucket: str, prefix: str, now: Callable[[], float] = time.monotonic
) -> S3Store:
    """Return a store with a client of its own, without a request to the service. `now` returns seconds.

    Raises:
        ConfigurationError: the bucket's name, the endpoint, or the configured credentials are malformed.
    """
    if not _BUCKET.fullmatch(bucket):
        raise ConfigurationError(f"remote.storage.uri: {bucket!r} is not the name of a bucket")
    if (options.access_key_id is None) != (options.secret_access_key is None):
        raise ConfigurationError(
            "remote.storage.aws.access.key.id and remote.storage.aws.secret.access.key go together: one is missing"
        )
    try:
        with muted(*LOGGERS_WITH_SECRETS):
            session = _session(options)
            client = _client(session, options, _client_config(options))
    except (aws.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"no S3 client can be made for s3://{bucket}: {error}") from error
    timeouts = RequestTimeouts.of(options)
    request_time = RequestTime(timeouts, now)
    connections = S3Connections(session, client.meta.endpoint_url, timeouts, request_time)
    build_ranges = partial(ranged_gets, session, connections=connections)
    return S3Store(client, bucket, prefix, connections, request_time, build_ranges)


def s3_client(access: S3Access, config: Config) -> S3Client:
    """Return a new S3 client, which raises botocore's errors and does not parse the times in responses.

    Parsing times, and building the User-Agent header for each request, would take a third of a GET's CPU time.
    """
    return _client(_session(access), access, config)


def _session(access: S3Access) -> botocore.session.Session:
    """Return a session with the configured credentials; if there are none, with AWS's chain of credential providers."""
    session = botocore.session.get_session()
    session.register_component("data_loader", _models_in(session.get_config_variable("data_path")))
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_unparsed)
    if access.access_key_id is not None and access.secret_access_key is not None:
        session.set_credentials(access.access_key_id, access.secret_access_key, access.session_token)
    return session


def _client(session: botocore.session.Session, access: S3Access, config: Config) -> S3Client:
    config = config.merge(Config(user_agent=_USER_AGENT))
    return boto3.session.Session(botocore_session=session).client(
        "s3", endpoint_url=access.s3_endpoint_url, region_name=access.s3_region, config=config
    )


@cache
def _models_in(data_path: str | None) -> Loader:
    """Return botocore's loader of AWS's service descriptions.

    The process keeps one loader for each `data_path`, so it reads the descriptions once, in 0.06 s.
    """
    return botocore.loaders.create_loader(data_path)


def load_models() -> None:
    """Load botocore's service descriptions, so that processes forked later need not. No request is sent."""
    access = S3Access(access_key_id="none", secret_access_key="none", s3_region="us-east-1")  # noqa: S106 - signs nothing
    s3_client(access, Config(s3={"addressing_style": "path"})).close()


def _unparsed(time: object) -> object:
    return time


def credential_provider(access: S3Access) -> str | None:
    """Return where the credentials come from: `settings`, or botocore's name of a provider in AWS's chain (`env`, …).

    Return None if there are no credentials.

    Raises:
        StorageAccessError: a provider in the chain fails.
    """
    if access.access_key_id is not None:
        return "settings"
    try:
        with muted(*LOGGERS_WITH_SECRETS):
            credentials = boto3.session.Session().get_credentials()
    except (aws.BotoCoreError, aws.ClientError) as error:
        raise StorageAccessError(f"AWS's chain of credential providers fails: {type(error).__name__}") from error
    return credentials.method if credentials else None


def _client_config(options: StorageOptions) -> Config:
    return Config(
        signature_version="s3v4",  # otherwise URLs would be signed by version 2, which some services refuse
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        # Record batches carry their own CRC, and stores other than AWS often lack S3's checksums.
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if options.s3_path_style else "auto"},
    )


def _raise_if_not_repeated(request_time: RequestTime, caught_exception: Exception | None, **_: object) -> None:
    """Raise `caught_exception` if its request must not be sent again; botocore calls this before its own retries.

    A request is not sent again if its time is over, or it has timed out too often.
    """
    if isinstance(caught_exception, _TIMEOUTS) and not request_time.repeats_after_timeout():
        raise caught_exception
    if caught_exception is not None and request_time.is_over:
        raise caught_exception


def _send(connections: S3Connections, request: AWSPreparedRequest, **_: object) -> AWSResponse:
    """Send a client's request over `connections`, in place of the client's own connections."""
    return connections.send(request)


def _status(error: aws.ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]

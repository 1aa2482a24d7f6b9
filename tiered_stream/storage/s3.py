"""Service of `cloud_store` for S3: it opens a bucket's client, and builds error messages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from obstore.store import S3Store

from tiered_stream.errors import (
    ConfigurationError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageError,
    StorageObjectNotFoundError,
)
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_store import CloudStore, Failure, client_options
from tiered_stream.storage.request_time import RequestTimeouts
from tiered_stream.storage.s3_client import CREDENTIALS_HINT, S3Session

_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
# AWS sends most of these codes with 403, but with 400 for an expired or malformed token or a wrong region.
_ACCESS_CODES = frozenset((
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken",
    "InvalidAccessKeyId", "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch",
))  # fmt: skip
_ELSEWHERE = (301, 307, 400, 403)
"""HTTP statuses that S3 may return if the request was sent to another region than the bucket's region."""


class S3Bucket:
    """Implementation of `cloud_store.Service` for one bucket."""

    def __init__(self, options: StorageOptions, bucket: str) -> None:
        """Read the bucket's endpoint, region and credentials from the options and from AWS's configuration.

        Raises:
            ConfigurationError: the bucket's name, the endpoint or the configured credentials are malformed.
        """
        if not _BUCKET.fullmatch(bucket):
            raise ConfigurationError(f"remote.storage.uri: {bucket!r} is not the name of a bucket")
        if (options.access_key_id is None) != (options.secret_access_key is None):
            raise ConfigurationError(
                "remote.storage.aws.access.key.id and remote.storage.aws.secret.access.key go together: one is missing"
            )
        self.uri = f"s3://{bucket}"
        self._bucket = bucket
        self._session = S3Session(options, bucket)
        self._timeouts = RequestTimeouts.of(options)

    def connect(self, seconds: float) -> S3Store:
        client = client_options(self._timeouts, seconds, self._session.bucket_url)
        if (bundle := self._session.ca_bundle()) is not None:
            client["root_certificate"] = bundle
        return S3Store(
            self._bucket,
            endpoint=self._session.bucket_url,
            virtual_hosted_style_request=True,  # the URL is the bucket's own, whichever style it has
            region=self._session.region,
            client_options=client,
            retry_config={"max_retries": 0},
            credential_provider=self._session.credentials(),
        )

    def learns_from(self, failure: Failure) -> bool:
        return failure.status in _ELSEWHERE and self._session.follow_region()

    def refused(self, failure: Failure, name: str, *, listing: bool) -> StorageError:
        answer = f"{self._session.bucket_url} answered {failure}"
        if failure.code == "NoSuchBucket":
            return StorageBucketNotFoundError(
                f"the bucket {self._bucket} (option remote.storage.uri) does not exist: {answer}, asked for {name}"
            )
        if failure.status == 404:
            return StorageObjectNotFoundError(f"{name} does not exist: {answer}")
        if failure.status in (401, 403) or failure.code in _ACCESS_CODES:
            hint = f"to list it, grant s3:ListBucket on arn:aws:s3:::{self._bucket}; otherwise " if listing else ""
            return StorageAccessError(f"no access to {name}: {answer}; {hint}{CREDENTIALS_HINT}")
        return StorageError(f"{answer}, asked for {name}")

    def unreachable(self, name: str) -> str:
        return f"{self._session.bucket_url} (option remote.storage.s3.endpoint.url) could not be reached for {name}"


def open_s3(options: StorageOptions, bucket: str, prefix: str, now: Callable[[], float] = time.monotonic) -> CloudStore:
    """Return a store over the bucket's objects below `prefix`, without a request. `now` returns seconds.

    Raises:
        ConfigurationError: the bucket's name, the endpoint or the configured credentials are malformed.
    """
    root = prefix.strip("/") + "/" if prefix.strip("/") else ""
    return CloudStore(S3Bucket(options, bucket), root, RequestTimeouts.of(options), now=now)

"""Service of `cloud_store` for S3: it opens a bucket's client."""

from __future__ import annotations

import re

from obstore.store import S3Store

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_store import Failure, Service
from tiered_stream.storage.s3_client import CREDENTIALS_HINT, S3Session

_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_EXPRESS = "--x-s3"
_ELSEWHERE = (301, 307, 400, 403)
"""HTTP statuses that S3 may return if the request was sent to another region than the bucket's region."""


class S3Bucket(Service):
    """Implementation of `cloud_store.Service` for one bucket."""

    endpoint_option = "s3.endpoint.url"
    # AWS answers 403 with most of these codes, but 400 to an expired or malformed token or a wrong region.
    access_codes = frozenset((
        "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken",
        "InvalidAccessKeyId", "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch",
    ))  # fmt: skip

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
        if bucket.endswith(_EXPRESS):
            raise ConfigurationError(
                f"remote.storage.uri: {bucket!r} is a directory bucket (S3 Express One Zone), which cannot be read: "
                "name a general purpose bucket"
            )
        self._requester_pays = options.s3_requester_pays
        self._session = S3Session(options, bucket)
        super().__init__(options, "s3", bucket, self._session.bucket_url)

    def connect(self, seconds: float) -> S3Store:
        client = self.client_options(seconds)
        if (bundle := self._session.ca_bundle()) is not None:
            client["root_certificate"] = bundle
        return S3Store(
            self.bucket,
            endpoint=self.endpoint,
            virtual_hosted_style_request=True,  # the URL is the bucket's own, whichever style it has
            region=self._session.region,
            request_payer=self._requester_pays,
            client_options=client,
            retry_config={"max_retries": 0},
            credential_provider=self._session.credentials(),
        )

    def learns_from(self, failure: Failure) -> bool:
        learned = failure.status in _ELSEWHERE and self._session.follow_region(failure.region)
        self.endpoint = self._session.bucket_url
        return learned

    def access_hint(self, *, listing: bool) -> str:
        grant = f"to list it, grant s3:ListBucket on arn:aws:s3:::{self.bucket}; otherwise " if listing else ""
        return grant + CREDENTIALS_HINT

"""Service of `cloud_store` for S3: it opens a bucket's client."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from obstore.store import S3Store

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.attempts import AttemptError
from tiered_stream.storage.cloud_endpoints import SEGMENTS, TABLES, StoreUse, check_bucket
from tiered_stream.storage.cloud_store import Service
from tiered_stream.storage.s3_client import S3Session, credentials_hint

if TYPE_CHECKING:
    from obstore.store import ClientConfig

    from tiered_stream.storage.cloud_store import Client

_ELSEWHERE = (301, 307, 400, 403)
"""HTTP statuses that S3 may return if the request was sent to another region than the bucket's region."""

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables that name the endpoint for botocore, if no option names it. The first one takes precedence."""
_WRONG_KEYS = {
    "InvalidAccessKeyId": "aws.access.key.id",
    "XAdminUserNotFound": "aws.access.key.id",  # versitygw's code, with status 404
    "SignatureDoesNotMatch": "aws.secret.access.key",
}
"""Options that are wrong, without their prefix, by the codes for credentials that the service refuses."""
_DENIALS = ("AccessDenied", "")
"""Codes of S3 for a permission that is missing; a response without a body has no code."""


class S3Bucket(Service):
    """One bucket, or an access point of one, as a service of `cloud_store`."""

    client_class, endpoint_option = S3Store, "s3.endpoint.url"
    # AWS answers 403 with most of these codes, but 400 to an expired or malformed token or a wrong region.
    access_codes = frozenset((
        "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken",
        "InvalidToken", "RequestTimeTooSkewed", *_WRONG_KEYS,
    ))  # fmt: skip

    def __init__(self, options: StorageOptions, bucket: str, use: StoreUse = SEGMENTS) -> None:
        """Read the bucket's endpoint, region and credentials from the options and from AWS's configuration.

        Raises:
            ConfigurationError: the bucket's name, the endpoint or the configured credentials are malformed.
        """
        check_bucket(bucket, use.place)
        if (options.access_key_id is None) != (options.secret_access_key is None):
            raise ConfigurationError(
                f"{use.prefix}aws.access.key.id and {use.prefix}aws.secret.access.key go together: one is missing"
            )
        self._options = options
        self._session = S3Session(options, bucket, credentials_hint(use))
        self.can_sign = options.s3_customer_key is None  # a reader of the URL would have to send the key
        super().__init__(options, "s3", bucket, self._session.bucket_url, use)

    def open(self, client: ClientConfig, retries: int) -> Client:
        options, session = self._options, self._session
        if (bundle := session.ca_bundle()) is not None:
            client["root_certificate"] = bundle
        self.config = {
            "endpoint": self.endpoint,
            "virtual_hosted_style_request": True,  # the URL is the bucket's own, whichever style it has
            "region": session.region,
            "request_payer": options.s3_requester_pays,
            "skip_signature": options.anonymous,
        }
        if options.s3_customer_key is not None:
            self.config |= {"server_side_encryption": "sse-c", "sse_customer_key_base64": options.s3_customer_key}
        self.credential_provider = None if options.anonymous else session.credentials()
        return super().open(client, retries)

    def learns_from(self, failure: AttemptError) -> bool:
        learned = failure.status in _ELSEWHERE and self._session.follow_region(failure.region)
        self.endpoint = self._session.bucket_url
        return learned

    def grant_hint(self, failure: AttemptError, name: str, *, listing: bool) -> str:
        is_access_point = self.bucket.startswith("arn:")
        resource = self.bucket if is_access_point else f"arn:aws:s3:::{self.bucket}"
        if failure.denied:
            return f"grant {failure.denied}; otherwise "
        if listing:
            return f"to list it, grant s3:ListBucket on {resource}; otherwise "
        if failure.code in _WRONG_KEYS:
            return f"correct {self.use.prefix}{_WRONG_KEYS[failure.code]}; otherwise "
        if self.use is TABLES or failure.code not in _DENIALS:
            return ""
        key = ("/object" if is_access_point else "") + name.removeprefix(self.uri)
        return (
            f"grant s3:GetObject on {resource}{key}, and kms:Decrypt on its key if it is "
            f"encrypted by KMS. Without s3:ListBucket on {resource}, S3 refuses a request for a missing object, too. "
            "Otherwise "
        )

    def access_hint(self) -> str:
        return credentials_hint(self.use, self._session.provider)

    def unreachable(self, name: str) -> str:
        variable = next(filter(os.environ.get, _ENDPOINT_VARIABLES), None)
        if self._options.s3_endpoint_url is not None or variable is None:
            return super().unreachable(name)
        return f"{self.endpoint} (environment variable {variable}) could not be reached for {name}"

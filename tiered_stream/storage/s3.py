"""Access to an S3 bucket for `cloud_store`: obstore's clients with their credentials, and advice in errors."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from obstore.store import S3Store

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.attempts import AttemptError
from tiered_stream.storage.cloud_endpoints import SEGMENTS, TABLES, StoreUse, check_bucket
from tiered_stream.storage.cloud_store import Service
from tiered_stream.storage.s3_client import WAITS_FOR_CREDENTIALS, S3Session

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_ELSEWHERE = (301, 307, 400, 403)
"""HTTP statuses that S3 may return if the request was sent to another region than the bucket's region."""

_EXPIRED = "ExpiredToken"
_SECONDS_TO_ASK_AGAIN = 60
"""Seconds after which AWS is asked again for the bucket's region, if its last response did not name the region."""
WRONG_KEYS = {
    "InvalidAccessKeyId": "aws.access.key.id",
    "XAdminUserNotFound": "aws.access.key.id",  # versitygw's code, with status 404
    "SignatureDoesNotMatch": "aws.secret.access.key",
}
"""Options (without their prefix) whose values are wrong, by the service's error code for refused credentials."""
_DENIALS = ("AccessDenied", "")
"""Error codes of S3 for a permission that is missing; a response without a body has an empty code."""


class S3Bucket(Service):
    """Access to one S3 bucket, or to an access point of a bucket, as `CloudStore` needs it."""

    client_class, endpoint_option, trust_variable = S3Store, "s3.endpoint.url", "AWS_CA_BUNDLE"
    # AWS answers 403 with most of these codes, but 400 to an expired or malformed token or a wrong region.
    access_codes = frozenset((
        "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthorizationHeaderMalformed", _EXPIRED,
        "InvalidToken", "RequestTimeTooSkewed", *WRONG_KEYS,
    ))  # fmt: skip

    def __init__(self, options: StorageOptions, bucket: str, use: StoreUse = SEGMENTS) -> None:
        """Read the bucket's endpoint, region and credentials from the options and from AWS's configuration.

        Raises:
            ConfigurationError: the bucket's name, the endpoint or AWS's configuration is malformed, or only one of
                access key id and secret access key is given.
        """
        check_bucket(bucket, use.place)
        if (options.access_key_id is None) != (options.secret_access_key is None):
            raise ConfigurationError(
                f"{use.prefix}aws.access.key.id and {use.prefix}aws.secret.access.key go together: one is missing"
            )
        self._options = options
        limit = min(options.request_timeout_ms, WAITS_FOR_CREDENTIALS * options.read_timeout_ms)
        self._session = S3Session(options, bucket, use, limit)
        self._asking = Lock()
        self._ask_from = 0.0
        self.can_sign = options.s3_customer_key is None  # a reader of the URL would have to send the key
        super().__init__(options, "s3", bucket, self._session.bucket_url, use)

    def prepare(self, client: ClientConfig) -> None:
        if (bundle := self._session.ca_bundle()) is not None:
            client["root_certificate"] = bundle[1]
        self.config = self._session.object_store_config()
        if not self._options.anonymous:
            self._session.credentials()  # fails with the reason, which obstore's errors would wrap
            self.credential_provider = self._session.credentials

    def signing_seconds_left(self) -> float:
        return self._session.credentials_seconds_left()

    def before_signing(self) -> bool:
        if self._session.knows_region:
            return False
        with self._asking:  # others wait for the region, because a URL that is signed for another one is refused
            if self._session.knows_region or time.monotonic() < self._ask_from:
                return False
            moved = self._session.follow_region("")
            self._ask_from = time.monotonic() + _SECONDS_TO_ASK_AGAIN
        self.endpoint = self._session.bucket_url
        return moved

    def shows_other_settings(self, failure: AttemptError) -> bool:
        if failure.code == _EXPIRED:  # botocore takes keys of an instance that end soon to end later
            self._session.forget_credentials()
            return self._options.access_key_id is None
        learned = failure.status in _ELSEWHERE and self._session.follow_region(failure.region)
        self.endpoint = self._session.bucket_url
        return learned

    def grant_hint(self, failure: AttemptError, name: str, *, listing: bool) -> str:
        is_access_point = self.bucket.startswith("arn:")
        resource = self.bucket if is_access_point else f"arn:aws:s3:::{self.bucket}"
        if failure.denied:
            return f"grant {failure.denied}; otherwise "
        if failure.code in WRONG_KEYS and self._options.access_key_id is not None:
            return f"correct {self.use.prefix}{WRONG_KEYS[failure.code]}; otherwise "
        if failure.code not in _DENIALS:
            return ""
        if listing:
            return f"to list it, grant s3:ListBucket on {resource}; otherwise "
        if self.use is TABLES:
            return ""
        key = ("/object" if is_access_point else "") + name.removeprefix(self.uri)
        return (
            f"grant s3:GetObject on {resource}{key}, and kms:Decrypt on its key if it is "
            f"encrypted by KMS. Without s3:ListBucket on {resource}, S3 refuses a request for a missing object, too. "
            "Otherwise "
        )

    def access_hint(self) -> str:
        return self._session.access_hint()

    def unreachable(self, name: str) -> str:
        if self._options.s3_endpoint_url is not None or self._session.endpoint_url is None:
            return super().unreachable(name)
        where = "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or endpoint_url in AWS's configuration"
        return f"{self.endpoint} ({where}) could not be reached for {name}"

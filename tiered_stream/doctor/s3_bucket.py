"""Trial requests to a bucket in S3: a listing, which shows many faults at once, and writes of an empty object."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from botocore import exceptions as aws
from botocore.config import Config

from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.doctor.finding import FaultError, Result
from tiered_stream.errors import StorageUnavailableError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.process.logs import muted
from tiered_stream.storage.attempts import AttemptError, FailureKind
from tiered_stream.storage.cloud_endpoints import bucket_and_path, segments_use
from tiered_stream.storage.open_store import open_service
from tiered_stream.storage.s3 import WRONG_KEYS
from tiered_stream.storage.s3_client import LOGGERS_WITH_SECRETS, S3Session, table_session

_REFUSED_CONDITION = (409, 412)
"""HTTP statuses with which S3 refuses a PUT with `If-None-Match: *` if the object exists."""
_CONNECT_SECONDS, _READ_SECONDS = 10, 30
_REFUSED_KEYS = (*WRONG_KEYS, "ExpiredToken", "InvalidToken")
_REGION_CODES = frozenset(("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"))


@dataclass(frozen=True, slots=True)
class BucketResponse:
    """Response of the storage service to the request of `list_one_key`.

    `code` is S3's error code, and empty on success. `request_region` is the region for which the request was signed.
    """

    endpoint: str
    status: int
    code: str
    request_region: str
    region: str | None
    """Region of the bucket; None if the service does not report it."""
    seconds_ahead: float | None
    """Seconds by which this machine's clock is ahead of the service's; None if the service does not send its time."""


def _config() -> Config:
    """Return boto3's configuration for the doctor: short timeouts and no retries."""
    return Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 1},
        response_checksum_validation="when_required",
        request_checksum_calculation="when_required",
    )


def _session(storage: StorageOptions) -> S3Session:
    """Return a session with the region, the URL and the credentials that a query uses for requests to the bucket.

    Raises:
        ConfigurationError: the endpoint, a profile or AWS's configuration file is malformed.
    """
    name, _ = bucket_and_path(storage.uri or "")
    return S3Session(storage, name, segments_use(storage))


def check_credentials(storage: StorageOptions) -> Result[bool]:
    """Check that there are credentials for the bucket; the result's description says where they come from.

    If `storage.anonymous` is True, no credentials are needed, and the check succeeds. The result's value is always
    True, because no other check needs it.

    Raises:
        StorageAccessError: there are no credentials.
        ConfigurationError: the endpoint, a profile or AWS's configuration file is malformed.
    """
    if storage.anonymous:
        return Result(True, "none: requests are not signed, as configured")
    session = _session(storage)
    session.credentials()
    given = storage.access_key_id is not None
    return Result(True, "in the settings" if given else f"from AWS's chain, provider {session.provider}")


def list_one_key(storage: StorageOptions) -> Result[BucketResponse]:
    """List at most one key of the bucket, and return the service's response, which may be an error response.

    Raises:
        StorageError: the service does not respond, TLS fails, or there are no credentials.
        ConfigurationError: the endpoint, a profile or AWS's configuration file is malformed.
    """
    service, (name, prefix) = open_service(storage), bucket_and_path(storage.uri or "")
    with muted(*LOGGERS_WITH_SECRETS), closing(_session(storage).client(_config())) as client:
        try:
            answer: Any = client.list_objects_v2(Bucket=name, Prefix=prefix, MaxKeys=1)
            code = ""
        except aws.ClientError as error:
            answer, code = error.response, error.response["Error"].get("Code", "")
        except aws.SSLError as error:
            failure = AttemptError(FailureKind.TLS, code=str(error))
            raise service.refused(failure, service.uri, listing=True) from None
        except (aws.BotoCoreError, OSError) as error:
            reason = f"{service.unreachable(service.uri)} ({type(error).__name__})"
            raise StorageUnavailableError(f"the bucket cannot be listed: {reason}") from None
        head = {name.lower(): value for name, value in answer["ResponseMetadata"]["HTTPHeaders"].items()}
        listing = BucketResponse(
            client.meta.endpoint_url,
            answer["ResponseMetadata"]["HTTPStatusCode"],
            code,
            client.meta.region_name,
            head.get("x-amz-bucket-region") or answer.get("Error", {}).get("Region"),
            _seconds_ahead(head.get("date")),
        )
    return Result(listing, f"{listing.endpoint} responds")


def _seconds_ahead(date: str | None) -> float | None:
    try:
        return time.time() - parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None


def check_listing(storage: StorageOptions, answer: BucketResponse) -> Result[bool]:
    """Check `answer`, the response to `list_one_key`. The result's value is True if the user can list the bucket.

    The result is a warning if the user is not authorized to list the bucket. It is also a warning if the bucket was
    listed, but the service reports another region than the region for which the request was signed.

    Raises:
        FaultError: the request was signed for a wrong region, the service does not know the bucket's or access point's
            name, or the service responds with another error.
        StorageError: the bucket does not exist, or the service refuses the credentials.
    """
    service = open_service(storage)
    status, where = f"{answer.status} {answer.code}".strip(), f"the bucket {service.bucket} at {answer.endpoint}"
    region = answer.region or "another region"
    fix = f"set {service.use.prefix}s3.region={answer.region or 'the region of the bucket'}"
    elsewhere = f"{where} is in {region}, but the request was signed for {answer.request_region}"
    if answer.code in _REGION_CODES or (answer.status in (301, 307) and answer.region):
        raise FaultError(f"{elsewhere} ({status})", fix)
    if not answer.code:
        if answer.region and answer.region != answer.request_region:
            return Result(True, elsewhere, fix)
        return Result(True, f"{where} exists and can be listed")
    if answer.status == 403 and answer.code not in _REFUSED_KEYS:
        fix = f"grant s3:ListBucket on arn:aws:s3:::{service.bucket}: without it S3 gives 403 for a missing object, too"
        return Result(False, f"no access to list {where} ({status})", fix)
    if answer.status == 404 and answer.code not in (service.missing_code, *service.access_codes):
        fix = f"correct the endpoint, or the name of the bucket or access point ({service.use.place})"
        raise FaultError(f"{where} does not exist ({status})", fix)
    if answer.status not in (401, 403, 404) and answer.code not in service.access_codes:
        raise FaultError(f"{where} responds with {status}", "see the service's own log or status page")
    failure = AttemptError(FailureKind.STATUS, answer.status, answer.code)
    raise service.refused(failure, service.uri, listing=True)


def write_object(files: TableSpec, name: str) -> bool:
    """Put the empty object `name` into the table's folder, put it again with `If-None-Match: *`, and delete it.

    Return whether the service refuses the second PUT, because the object exists.

    Raises:
        FaultError: the service refuses another request, or does not respond.
    """
    parts, storage = urlsplit(files.uri), files.storage
    bucket = storage.s3_access_point or parts.netloc
    key = "/".join(filter(None, (parts.path.strip("/"), name)))
    object_settings: Any = storage.put_object_arguments()
    acl = ", s3:PutObjectAcl" if storage.acl else ""
    grant = f"grant s3:PutObject{acl} and s3:DeleteObject on arn:aws:s3:::{parts.netloc}/*"
    with muted(*LOGGERS_WITH_SECRETS), closing(table_session(storage, parts.netloc).client(_config())) as client:
        try:
            client.put_object(Bucket=bucket, Key=key, Body=b"", **object_settings)
            try:
                return _refuses_second(client, bucket, key)
            finally:
                client.delete_object(Bucket=bucket, Key=key)
        except aws.ClientError as error:
            code = error.response["Error"].get("Code", "")
            raise FaultError(f"s3://{parts.netloc}/{key}: {error.operation_name} is refused ({code})", grant) from None
        except aws.BotoCoreError as error:
            fix = "see the check of the store"
            raise FaultError(f"s3://{parts.netloc}/{key}: {type(error).__name__}", fix) from None


def _refuses_second(client: Any, bucket: str, key: str) -> bool:
    try:
        client.put_object(Bucket=bucket, Key=key, Body=b"", IfNoneMatch="*")
    except aws.ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"] in _REFUSED_CONDITION
    return False

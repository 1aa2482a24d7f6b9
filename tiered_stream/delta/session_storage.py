"""Where a table's bucket is for the tasks: as Spark's session says, and on top of that `ingest.storage.*`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from pyarrow import fs

from tiered_stream.delta.ingest_settings import STORAGE_PREFIX, TableStorage, table_storage
from tiered_stream.delta.s3a import Credentials, NoCredentialsError, NotForTasksError, S3aSettings
from tiered_stream.errors import ConfigurationError, TableAccessError

_AWS = ".amazonaws.com"
_PORTS = {"http": 80, "https": 443}


def find_storage(
    settings: Mapping[str, str], session: S3aSettings, region_of: Callable[[str], str] = fs.resolve_s3_region
) -> tuple[TableStorage, str | None]:
    """How to reach the table's bucket, and why the tasks cannot reach it as Spark does, if they cannot.

    Raises:
        ConfigurationError: a setting is malformed, `ingest.storage.*` name another store than the session does, or
            nobody has credentials.
        TableAccessError: AWS does not say in which region the bucket is.
    """
    own = table_storage(settings)
    _check_same_store(own, session)
    found, why_not = replace(own, s3_path_style=own.s3_path_style or session.path_style()), None
    if own.s3_endpoint_url is None:
        found = replace(found, s3_endpoint_url=session.endpoint_url(), s3_region=own.s3_region or session.region())
    try:
        session.check_followed()
        if own.access_key_id is None and not own.anonymous:
            found = _with_credentials(found, session.credentials())
    except NotForTasksError as error:
        why_not = str(error)
    except NoCredentialsError as error:
        raise ConfigurationError(str(error)) from error
    if found.s3_endpoint_url is None and found.s3_region is None and why_not is None:
        found = replace(found, s3_region=_region(session.bucket, region_of))
    return found, why_not


def _with_credentials(storage: TableStorage, found: Credentials) -> TableStorage:
    return replace(
        storage,
        access_key_id=found.access_key_id,
        secret_access_key=found.secret_access_key,
        session_token=found.session_token,
        anonymous=found.anonymous,
    )


def _region(bucket: str, region_of: Callable[[str], str]) -> str:
    try:
        return region_of(bucket)
    except OSError as error:
        raise TableAccessError(
            f"the region of the bucket {bucket} cannot be found: {error}. For an S3 service other than AWS's, set "
            "fs.s3a.endpoint in Spark's session (spark.hadoop.fs.s3a.endpoint)."
        ) from error


def _check_same_store(own: TableStorage, session: S3aSettings) -> None:
    ours, theirs = own.s3_endpoint_url, session.endpoint_url()
    if ours is None or not session.has_connector or _place(ours) == _place(theirs):
        return
    raise ConfigurationError(
        f"{STORAGE_PREFIX}s3.endpoint.url is {ours}, but Spark's session reaches the bucket {session.bucket} at "
        f"{theirs or 'AWS'}: set spark.hadoop.fs.s3a.bucket.{session.bucket}.endpoint to the same, or take "
        f"{STORAGE_PREFIX}* away"
    )


def _place(endpoint: str | None) -> tuple[str, int | None]:
    """Two endpoints with the same are the same store."""
    parts = urlsplit(endpoint or f"https://s3{_AWS}")
    host = parts.hostname or ""
    return (_AWS, None) if host.endswith((_AWS, f"{_AWS}.cn")) else (host, parts.port or _PORTS.get(parts.scheme))

"""Access of tasks to a table's bucket in Google Cloud Storage, from the session's `fs.gs.*` settings.

`ingest.storage.*` override these settings. Tasks of the direct lane do not use Hadoop, but must reach the bucket in the
same way as Spark. So this module follows `HadoopCredentialsConfiguration` of Google's connector 3.0 and 4.0, and of
hadoop-gcp 3.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from tiered_stream.delta.requirements import gs_requirements as names
from tiered_stream.delta.requirements.gs_requirements import (
    CLOUD_PREFIX,
    GOOGLES_CONNECTOR,
    GS_PREFIX,
    HADOOPS_CONNECTOR,
)
from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.errors import StorageAccessError
from tiered_stream.storage.identity.google_identity import google_identity

_GOOGLE = "https://storage.googleapis.com"
_MACHINE, _DEFAULT, _KEY_FILE, _NOBODY = (
    "COMPUTE_ENGINE", "APPLICATION_DEFAULT", "SERVICE_ACCOUNT_JSON_KEYFILE", "UNAUTHENTICATED",
)  # fmt: skip


class GsStore(SessionStore):
    """Bucket in Google's storage.

    `fs.gs.` takes precedence over `google.cloud.`, which only some settings may have as a prefix.
    """

    prefix, library = GS_PREFIX, "Google Cloud Storage (gcs-connector)"

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        known = (name for name in (GOOGLES_CONNECTOR, HADOOPS_CONNECTOR) if hadoop.has_class(name))
        self.connector = hadoop.get(f"{GS_PREFIX}impl") or next(known, GOOGLES_CONNECTOR)

    def keys(self, name: str) -> Iterable[str]:
        shared = (CLOUD_PREFIX + name,) if name.startswith(names.SHARED_PREFIXES) else ()
        return GS_PREFIX + name, *shared

    def own_names(self) -> Collection[str]:
        shared = {each for each in self.hadoop.names_after(CLOUD_PREFIX) if each.startswith(names.SHARED_PREFIXES)}
        return sorted(shared.union(super().own_names()))

    def endpoint_url(self) -> str:
        """Return the URL of the service."""
        url = self.text(names.ROOT_URL) if self.connector != HADOOPS_CONNECTOR else None
        return (url or _GOOGLE).rstrip("/")

    def credentials(self) -> dict[str, Any]:
        """Return the session's credentials as fields of `TableStorage`.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get others than Spark.
            NoCredentialsError: the session names no key file, but its kind of credentials needs one.
        """
        kind, key_file = self.text(names.AUTH_TYPE), self.text(names.KEY_FILE)
        if not kind and key_file:
            raise _unusable(f"{names.KEY_FILE} is set, but {GS_PREFIX}{names.AUTH_TYPE} is not")
        if kind == _KEY_FILE:
            if not key_file:
                raise NoCredentialsError(
                    f"no credentials for the bucket {self.bucket}: {GS_PREFIX}{names.AUTH_TYPE} is {kind}, but "
                    f"{GS_PREFIX}{names.KEY_FILE} is not set. Set it to the path of the key file"
                )
            return {"gcs_credentials_path": key_file}
        if kind == _NOBODY:
            return {"gcs_anonymous": True}
        if kind == _DEFAULT:
            return {}
        if (kind or _MACHINE) == _MACHINE:
            return {"gcs_machine": True}
        raise _unusable(f"{names.AUTH_TYPE} is {kind}, which is known to Spark alone")

    def find(self, own: TableStorage) -> tuple[TableStorage, str | None]:
        if not self.has_connector:
            return own, None
        url, option = self.endpoint_url(), f"{STORAGE_PREFIX}gcs.endpoint.url"
        check_same_store(option, own.gcs_endpoint_url, url, f"bucket {self.bucket}")
        storage = own
        if own.gcs_endpoint_url is None and url != _GOOGLE:
            storage = replace(own, gcs_endpoint_url=url)
        try:
            self.check_supported()
            if not (own.gcs_credentials_json or own.gcs_credentials_path or own.gcs_anonymous):
                storage = replace(storage, **self.credentials())
            return storage, google_identity(storage, STORAGE_PREFIX).why_not_deltalake()
        except NotForTasksError as error:
            return storage, str(error)
        except StorageAccessError:
            return storage, None  # the first request reports it


def _unusable(why: str) -> NotForTasksError:
    return NotForTasksError(
        f"{GS_PREFIX}{why}: for tasks that write files themselves, set {STORAGE_PREFIX}gcs.credentials.path or "
        f"{STORAGE_PREFIX}gcs.credentials.json"
    )

"""Access of tasks to a table's bucket in Google Cloud Storage, from the session's `fs.gs.*` settings.

`ingest.storage.*` override these settings. Tasks of the direct lane do not use Hadoop, but must reach the bucket in the
same way as Spark. So this module follows `HadoopCredentialsConfiguration` of Google's connector 3.0 and 4.0, and of
hadoop-gcp 3.5.

Settings of credentials, of the proxy and of HTTP may also have the prefix `google.cloud.`, which `fs.gs.` overrides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.requirements.writer_requirements import GOOGLES_CONNECTOR, HADOOPS_CONNECTOR
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.errors import StorageAccessError

GS_PREFIX, CLOUD_PREFIX = "fs.gs.", "google.cloud."
AUTH_TYPE, KEY_FILE, ROOT_URL = "auth.type", "auth.service.account.json.keyfile", "storage.root.url"
SHARED_PREFIXES = ("auth.", "http.", "proxy.", "token.")
"""Beginnings of the names that may also have the prefix `google.cloud.`."""
_GOOGLE = "https://storage.googleapis.com"
_MACHINE, _KEY_FILE = "COMPUTE_ENGINE", "SERVICE_ACCOUNT_JSON_KEYFILE"
_CREDENTIALS: Mapping[str, dict[str, Any]] = {
    _MACHINE: {"gcs_machine": True},
    "APPLICATION_DEFAULT": {},
    "UNAUTHENTICATED": {"gcs_anonymous": True},
}
"""Fields of `TableStorage` by the value of `auth.type`, for credentials without further settings."""


class GsStore(SessionStore):
    """Bucket in Google's storage.

    `fs.gs.` takes precedence over `google.cloud.`, which only some settings may have as a prefix.
    """

    prefix = GS_PREFIX
    own_settings = f"{STORAGE_PREFIX}gcs.credentials.path or {STORAGE_PREFIX}gcs.credentials.json"

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        known = (name for name in (GOOGLES_CONNECTOR, HADOOPS_CONNECTOR) if hadoop.has_class(name))
        self.connector = hadoop.get(f"{GS_PREFIX}impl") or next(known, GOOGLES_CONNECTOR)

    def keys(self, name: str) -> Iterable[str]:
        shared = (CLOUD_PREFIX + name,) if name.startswith(SHARED_PREFIXES) else ()
        return GS_PREFIX + name, *shared

    def own_names(self) -> Collection[str]:
        shared = {each for each in self.hadoop.names_after(CLOUD_PREFIX) if each.startswith(SHARED_PREFIXES)}
        return sorted(shared.union(super().own_names()))

    def endpoint_url(self) -> str:
        """Return the URL of the service."""
        url = self.text(ROOT_URL) if self.connector != HADOOPS_CONNECTOR else None
        return (url or _GOOGLE).rstrip("/")

    def credentials(self) -> dict[str, Any]:
        """Return the session's credentials as fields of `TableStorage`.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get others than Spark.
            NoCredentialsError: the session names no key file, but its kind of credentials needs one.
        """
        kind, key_file = self.text(AUTH_TYPE), self.text(KEY_FILE)
        if not kind and key_file:
            raise self.unusable(f"{GS_PREFIX}{KEY_FILE} is set, but {GS_PREFIX}{AUTH_TYPE} is not")
        if kind == _KEY_FILE and not key_file:
            raise NoCredentialsError(
                f"no credentials for the bucket {self.bucket}: {GS_PREFIX}{AUTH_TYPE} is {kind}, but "
                f"{GS_PREFIX}{KEY_FILE} is not set. Set it to the path of the key file"
            )
        known = {**_CREDENTIALS, _KEY_FILE: {"gcs_credentials_path": key_file}}
        if (kind or _MACHINE) not in known:
            raise self.unusable(f"{GS_PREFIX}{AUTH_TYPE} is {kind}, which is known to Spark alone")
        return known[kind or _MACHINE]

    def access(self, own: TableStorage) -> TableStorage:
        if not self.has_connector:
            return own
        from tiered_stream.storage.identity.google_identity import google_identity  # late, because it loads urllib3

        url, option = self.endpoint_url(), f"{STORAGE_PREFIX}gcs.endpoint.url"
        check_same_store(option, own.gcs_endpoint_url, url, f"bucket {self.bucket}")
        self.check_supported()
        storage = own
        if own.gcs_endpoint_url is None and url != _GOOGLE:
            storage = replace(own, gcs_endpoint_url=url)
        if not (own.gcs_credentials_json or own.gcs_credentials_path or own.gcs_anonymous):
            storage = replace(storage, **self.credentials())
        with suppress(StorageAccessError):  # the first request reports it
            if why_not := google_identity(storage, STORAGE_PREFIX).why_not_deltalake():
                raise NotForTasksError(why_not)
        return storage

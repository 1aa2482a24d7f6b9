"""Access of tasks to a table's bucket in Google Cloud Storage, from the session's `fs.gs.*` settings.

`ingest.storage.*` override these settings. Tasks of the direct lane do not use Hadoop, but must reach the bucket in the
same way as Spark. So this module follows `HadoopCredentialsConfiguration` of Google's connector 3.0 and 4.0, and of
hadoop-gcp 3.5.

`GS_REQUIREMENTS` are the requirements that these settings can set for a writer, for Google's connector and Hadoop's
own: a part of the list in `writer_requirements.py`. Names there are without `fs.gs.`. Settings of credentials, of the
proxy and of HTTP may also have the prefix `google.cloud.`, which `fs.gs.` overrides. Sources: `CONFIGURATION.md` of
gcs-connector 2.2, 3.0 and 4.0, and `GoogleHadoopFileSystemConfiguration` of hadoop-gcp 3.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.errors import StorageAccessError

GS_PREFIX, CLOUD_PREFIX = "fs.gs.", "google.cloud."
AUTH_TYPE, KEY_FILE, ROOT_URL = "auth.type", "auth.service.account.json.keyfile", "storage.root.url"
GOOGLES_CONNECTOR = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
HADOOPS_CONNECTOR = "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem"
SHARED_PREFIXES = ("auth.", "http.", "proxy.", "token.")
"""Beginnings of the names that may also have the prefix `google.cloud.`."""
_entries = partial(entries, Kind.SESSION, prefix=GS_PREFIX)

GS_REQUIREMENTS: tuple[Requirement, ...] = (
    *_entries(
        Handling.SPARK_LANE, "impl", note="Other than Google's connector and Hadoop's own.",
        off=OFF | {GOOGLES_CONNECTOR.lower(), HADOOPS_CONNECTOR.lower()},
    ),
    *_entries(
        Handling.SPARK_LANE, "storage.service.path", note="Other than `storage/v1/`.", off=OFF | {"storage/v1/"}
    ),
    *_entries(
        Handling.SPARK_LANE, "token.server.url", note="Other than Google's.",
        off=OFF | {"https://oauth2.googleapis.com/token"},
    ),
    *_entries(
        Handling.SPARK_LANE, "requester.pays.mode", note="Other than `DISABLED`.", off=OFF | {"disabled"}
    ),
    *_entries(
        Handling.SPARK_LANE,
        "auth.access.token.provider", "auth.access.token.provider.impl", "auth.impersonation.*", "auth.null.enable",
        "auth.service.account.email", "auth.service.account.keyfile", "auth.service.account.private.key",
        "auth.service.account.private.key.id", "authorization.handler.impl", "config.override.file",
        "delegation.token.binding", "encryption.algorithm", "encryption.key", "encryption.key.hash", "proxy.address",
        "storage.http.headers.*",
    ),
    *_entries(
        Handling.SPARK_LANE, "auth.service.account.enable", note="Other than `true`.", off=OFF - {"false"} | {"true"}
    ),
    *_entries(
        Handling.NOTHING, "requester.pays.buckets", "requester.pays.project.id",
        note="It goes with the setting that takes it.",
    ),
    *_entries(
        Handling.NOTHING, "checksum.type", "grpc.checksums.enable", "write.rolling.checksum.enable",
        note="It is Spark's own check.",
    ),
    *_entries(
        Handling.NOTHING,
        "block.size", "client.upload.type", "grpc.*", "inputstream.*", "outputstream.direct.upload.enable",
        "outputstream.upload.*", "write.parallel.composite.upload.*",
    ),
)  # fmt: skip


_GOOGLE = "https://storage.googleapis.com"
_MACHINE, _DEFAULT, _KEY_FILE, _NOBODY = (
    "COMPUTE_ENGINE", "APPLICATION_DEFAULT", "SERVICE_ACCOUNT_JSON_KEYFILE", "UNAUTHENTICATED",
)  # fmt: skip


class GsStore(SessionStore):
    """Bucket in Google's storage.

    `fs.gs.` takes precedence over `google.cloud.`, which only some settings may have as a prefix.
    """

    prefix, library = GS_PREFIX, "Google Cloud Storage (gcs-connector)"
    requirements = GS_REQUIREMENTS
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
        if kind == _KEY_FILE:
            if not key_file:
                raise NoCredentialsError(
                    f"no credentials for the bucket {self.bucket}: {GS_PREFIX}{AUTH_TYPE} is {kind}, but "
                    f"{GS_PREFIX}{KEY_FILE} is not set. Set it to the path of the key file"
                )
            return {"gcs_credentials_path": key_file}
        if kind == _NOBODY:
            return {"gcs_anonymous": True}
        if kind == _DEFAULT:
            return {}
        if (kind or _MACHINE) == _MACHINE:
            return {"gcs_machine": True}
        raise self.unusable(f"{GS_PREFIX}{AUTH_TYPE} is {kind}, which is known to Spark alone")

    def find(self, own: TableStorage) -> tuple[TableStorage, str | None]:
        if not self.has_connector:
            return own, None
        from tiered_stream.storage.identity.google_identity import google_identity  # late, because it loads urllib3

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

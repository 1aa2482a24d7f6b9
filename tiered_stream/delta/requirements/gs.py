"""Access of tasks to a table's bucket in Google Cloud Storage, from the session's `fs.gs.*` settings.

`ingest.storage.*` override these settings. Tasks of the direct lane do not use Hadoop, but must reach the bucket in the
same way as Spark. So this module follows `HadoopCredentialsConfiguration` of Google's connector 3.0 and 4.0, and of
hadoop-gcp 3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    check_same_store,
    check_supported,
)
from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.errors import StorageAccessError
from tiered_stream.storage.identity.google_identity import google_identity

# Requirements that the session's `fs.gs.*` settings can set for a writer, for Google's connector and Hadoop's own.
#
# They are part of the list in `writer_requirements.py`. Names here are without `fs.gs.`. Settings of credentials, of
# the proxy and of HTTP may also have the prefix `google.cloud.`, which `fs.gs.` overrides. Sources: `CONFIGURATION.md`
# of gcs-connector 2.2, 3.0 and 4.0, and `GoogleHadoopFileSystemConfiguration` of hadoop-gcp 3.5.

GS_PREFIX, CLOUD_PREFIX = "fs.gs.", "google.cloud."
AUTH_TYPE, KEY_FILE, ROOT_URL = "auth.type", "auth.service.account.json.keyfile", "storage.root.url"
GOOGLES_CONNECTOR = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
HADOOPS_CONNECTOR = "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem"
SHARED_PREFIXES = ("auth.", "http.", "proxy.", "token.")
"""Beginnings of the names that may also have the prefix `google.cloud.`."""


def _entries(handling: Handling, *names: str, note: str = "", off: frozenset[str] = OFF) -> list[Requirement]:
    return entries(Kind.SESSION, handling, *(GS_PREFIX + name for name in names), note=note, off=off)


GS_REQUIREMENTS: tuple[Requirement, ...] = (
    *_entries(
        Handling.HONOURED, AUTH_TYPE,
        note="`APPLICATION_DEFAULT`, `COMPUTE_ENGINE`, `SERVICE_ACCOUNT_JSON_KEYFILE` and `UNAUTHENTICATED`. Others "
        "lead to the Spark lane. Also with the prefix `google.cloud.`",
    ),
    *_entries(
        Handling.HONOURED, KEY_FILE,
        note="The file must be on all nodes. Without `fs.gs.auth.type`, it leads to the Spark lane.",
    ),
    *_entries(Handling.HONOURED, ROOT_URL, note="For Google's connector. Hadoop's own ignores it."),
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
        Handling.NOTHING,
        "auth.client.id", "auth.client.secret", "auth.refresh.token",
        "auth.workload.identity.federation.credential.config.file", "authorization.handler.properties.*",
        "proxy.password", "proxy.username", "requester.pays.buckets", "requester.pays.project.id",
        note="It goes with the setting that takes it.",
    ),
    *_entries(
        Handling.NOTHING, "checksum.type", "grpc.checksums.enable", "write.rolling.checksum.enable",
        note="It is Spark's own check.",
    ),
    *_entries(
        Handling.NOTHING,
        "application.name.suffix", "batch.threads", "bidi.*", "block.size", "bucket.delete.enable", "client.type",
        "client.upload.type", "cloud.logging.enable", "copy.with.rewrite.enable", "create.items.conflict.check.enable",
        "fadvise.request.track.count", "glob.algorithm", "grpc.*", "hierarchical.namespace.folders.*", "http.*",
        "implicit.dir.repair.enable", "inputstream.*", "io.buffer*", "lazy.init.enable", "list.max.items.per.call",
        "marker.file.pattern", "max.requests.per.batch", "max.wait.for.empty.object.creation*", "metrics.sink",
        "operation.*", "outputstream.buffer.size", "outputstream.direct.upload.enable", "outputstream.pipe.*",
        "outputstream.sync.min.interval*", "outputstream.type", "outputstream.upload.*", "performance.cache.*",
        "project.id", "reported.permissions", "rewrite.max.*", "status.parallel.enable", "storage.client.cache.enable",
        "tracelog.enable", "vectored.read.*", "working.dir", "write.parallel.composite.upload.*",
        "write.temporary.dirs",
    ),
)  # fmt: skip


_GOOGLE = "https://storage.googleapis.com"
_MACHINE, _DEFAULT, _KEY_FILE, _NOBODY = (
    "COMPUTE_ENGINE", "APPLICATION_DEFAULT", "SERVICE_ACCOUNT_JSON_KEYFILE", "UNAUTHENTICATED",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GsSettings:
    """Settings of Hadoop's file system for `gs://`; `connector` is its Java class."""

    bucket: str
    get: Callable[[str], str | None]
    connector: str = GOOGLES_CONNECTOR
    has_connector: bool = True
    """True if the connector is on Spark's class path, without which Spark cannot reach the bucket."""
    names: Collection[str] = ()
    """Names of all settings in the session, without `fs.gs.` and `google.cloud.`."""

    def text(self, name: str) -> str | None:
        """Return the value of the setting `name` (without `fs.gs.`); None: it is not set.

        `fs.gs.` takes precedence over `google.cloud.`, which only some settings may have as a prefix.
        """
        prefixes = (GS_PREFIX, CLOUD_PREFIX) if name.startswith(SHARED_PREFIXES) else (GS_PREFIX,)
        return next((value.strip() for prefix in prefixes if (value := self.get(prefix + name)) is not None), None)

    def endpoint_url(self) -> str:
        """Return the URL of the service."""
        url = self.text(ROOT_URL) if self.connector != HADOOPS_CONNECTOR else None
        return (url or _GOOGLE).rstrip("/")

    def check_supported(self) -> None:
        """Raise NotForTasksError if a setting requires something of writers that tasks do not do."""
        check_supported(GS_REQUIREMENTS, GS_PREFIX, sorted(set(self.names)), self.text)

    def credentials(self) -> dict[str, Any]:
        """Return the session's credentials as fields of `TableStorage`.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get others than Spark.
            NoCredentialsError: the session names no key file, but its kind of credentials needs one.
        """
        kind, key_file = self.text(AUTH_TYPE), self.text(KEY_FILE)
        if not kind and key_file:
            raise _unusable(f"{KEY_FILE} is set, but {GS_PREFIX}{AUTH_TYPE} is not")
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
        raise _unusable(f"{AUTH_TYPE} is {kind}, which is known to Spark alone")


def _unusable(why: str) -> NotForTasksError:
    return NotForTasksError(
        f"{GS_PREFIX}{why}: for tasks that write files themselves, set {STORAGE_PREFIX}gcs.credentials.path or "
        f"{STORAGE_PREFIX}gcs.credentials.json"
    )


def gs_settings(hadoop: HadoopSettings, bucket: str) -> GsSettings:
    """Return the settings of the file system for the bucket."""
    known = (name for name in (GOOGLES_CONNECTOR, HADOOPS_CONNECTOR) if hadoop.has_class(name))
    connector = hadoop.get(f"{GS_PREFIX}impl") or next(known, GOOGLES_CONNECTOR)
    shared = (name for name in hadoop.names_after(CLOUD_PREFIX) if name.startswith(SHARED_PREFIXES))
    return GsSettings(
        bucket,
        get=hadoop.get,
        connector=connector,
        has_connector=hadoop.has_class(connector),
        names=(*hadoop.names_after(GS_PREFIX), *shared),
    )


def find_google_storage(own: TableStorage, session: GsSettings) -> tuple[TableStorage, str | None]:
    """Return the settings by which tasks access the table's bucket, and a reason why tasks cannot write to it.

    `own` is the job's own access (`ingest.storage.*`). Endpoint and credentials in it take precedence over `session`.
    The reason is a text that says in what tasks would differ from Spark; None: tasks access the bucket like Spark, or
    Spark cannot reach it.

    Raises:
        ConfigurationError: a setting is malformed, the settings name a different service than the session, or there are
            no credentials.
    """
    if not session.has_connector:
        return own, None
    url, option = session.endpoint_url(), f"{STORAGE_PREFIX}gcs.endpoint.url"
    check_same_store(option, own.gcs_endpoint_url, url, f"bucket {session.bucket}")
    storage = own
    if own.gcs_endpoint_url is None and url != _GOOGLE:
        storage = replace(own, gcs_endpoint_url=url)
    try:
        session.check_supported()
        if not (own.gcs_credentials_json or own.gcs_credentials_path or own.gcs_anonymous):
            storage = replace(storage, **session.credentials())
        return storage, google_identity(storage, STORAGE_PREFIX).why_not_deltalake()
    except NotForTasksError as error:
        return storage, str(error)
    except StorageAccessError:
        return storage, None  # the first request reports it

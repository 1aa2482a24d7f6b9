"""Access of tasks to a table's object store, by the scheme of the table's URI; S3 has a module of its own (`s3a.py`).

Tasks that write a table's files themselves do not use Hadoop, but must reach a store in the same way as Spark. So the
classes here follow the connectors of Hadoop and Google, and `ingest.storage.*` override the session's settings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import orjson

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.requirements.s3a import S3aStore
from tiered_stream.delta.requirements.writer_requirements import GOOGLES_CONNECTOR, HADOOPS_CONNECTOR
from tiered_stream.delta.settings.ingest_settings import (
    BUCKET_SCHEMES,
    S3_SCHEMES,
    STORAGE_PREFIX,
    TableStorage,
    table_storage,
)
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.errors import ConfigurationError, StorageAccessError
from tiered_stream.storage.cloud_endpoints import (
    AZURE_SCHEMES,
    GOOGLE_SCHEME,
    HDFS_SCHEME,
    TABLES,
    azure_place,
    blob_host,
    container_and_host,
)
from tiered_stream.storage.hadoop.client_settings import BLOCK_SIZE, REPLICATION, UMASK, hadoop_settings_of, new_files

ABFS_PREFIX = "fs.azure."
_HOST = re.compile(r"\.[a-z0-9-]{1,63}\.(?:z\d+\.)?(?:dfs|blob)\.(?:core|storage|fabric)\.[a-z.]+")
"""Pattern of the account's host at the end of a setting's name; such a setting is for this account only."""
_TOKEN_ENDPOINT = re.compile(r"(\w+://[^/?#]+)/+([^/?#]+)/oauth2/(?:v2\.0/)?token/*(?:[?#].*)?")
"""Pattern of a token endpoint's URL: group 1 is the authority's URL, and group 2 is the tenant."""
_OAUTH_PACKAGE = "org.apache.hadoop.fs.azurebfs.oauth2."
_AUTHORITY = "https://login.microsoftonline.com"
_WORKLOAD_TOKEN = "/var/run/secrets/azure/tokens/azure-identity-token"  # noqa: S105 - a file's path
_CONNECTORS: Mapping[str, str] = {
    **dict.fromkeys(("abfs", "abfss"), "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"),
    **dict.fromkeys(("wasb", "wasbs"), "org.apache.hadoop.fs.azure.AzureNativeFileSystemStore"),
}
"""Java classes by URI scheme, without which Hadoop cannot reach a path of that scheme."""


class AbfsStore(SessionStore):
    """Container in Azure's storage, reached by the session's `fs.azure.*` settings.

    The class follows hadoop-azure 3.5: `AbfsConfiguration` (settings of one account and container, credentials) and
    `AzureBlobFileSystemStore` (endpoint). Paths `wasbs://` follow the WASB driver of hadoop-azure 3.4, which Hadoop 3.5
    no longer has. Tasks use the account's blob service, because it takes a file in one request.

    A setting of one account (`fs.azure.NAME.ACCOUNT.dfs.core.windows.net`) overrides the setting for all accounts. For
    a secret, a setting of one container (`fs.azure.NAME.CONTAINER.ACCOUNT.…`) overrides both.
    """

    prefix = ABFS_PREFIX
    own_settings = f"{STORAGE_PREFIX}azure.account.key or {STORAGE_PREFIX}azure.sas.token"

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        self.container, self.host = container_and_host(uri)
        """Container and host in the URI; the host, such as `account.dfs.core.windows.net`, may be empty."""
        self.connector = _CONNECTORS.get(self.scheme, "")

    def keys(self, name: str) -> Iterable[str]:
        return f"{ABFS_PREFIX}{name}.{self.host}", ABFS_PREFIX + name

    def secret_keys(self, name: str) -> Iterable[str]:
        return f"{ABFS_PREFIX}{name}.{self.container}.{self.host}", *self.keys(name)

    def own_names(self) -> Collection[str]:
        """Return the names of the settings that apply to the container, without account and container in the names."""
        own: set[str] = set()
        for name in super().own_names():
            base = name.removesuffix(f".{self.host}")
            if base != name:
                own.add(base.removesuffix(f".{self.container}"))
            elif not _HOST.search(name):
                own.add(name)
        return sorted(own)

    def endpoint_url(self) -> str:
        """Return the URL of the account's blob service."""
        is_plain = self.scheme == "wasb" or (
            self.scheme == "abfs" and (self.text("always.use.https") or "").lower() == "false"
        )
        emulated = self.text("abfs.endpoint") or ""  # Hadoop then has the account in the path
        address = f"{emulated}/{self.host.partition('.')[0]}" if ":" in emulated else blob_host(self.host)
        return f"{'http' if is_plain else 'https'}://{address}"

    def credentials(self) -> dict[str, Any]:
        """Return the session's credentials for the container as values of `TableStorage`, by field name.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get other credentials than Spark.
            NoCredentialsError: Spark has no credentials.
        """
        is_wasb = self.scheme in ("wasb", "wasbs")
        if is_wasb and (token := self.secret(f"sas.{self.container}")):
            return {"azure_sas_token": token}
        kind = "SharedKey" if is_wasb else self.text("account.auth.type") or "SharedKey"
        if kind == "SharedKey":
            return {"azure_account_key": self._required("account.key")}
        if kind == "SAS":
            return {"azure_sas_token": self._required("sas.fixed.token")}
        if kind == "OAuth":
            return self._oauth()
        raise self.unusable(f"fs.azure.account.auth.type is {kind}, which is known to Spark alone")

    def _oauth(self) -> dict[str, Any]:
        provider = self.text("account.oauth.provider.type") or ""
        match provider.removeprefix(_OAUTH_PACKAGE):
            case "ClientCredsTokenProvider":
                endpoint = _TOKEN_ENDPOINT.fullmatch(self._required("account.oauth2.client.endpoint"))
                if endpoint is None:
                    form = "https://HOST/TENANT/oauth2/token"
                    raise self.unusable(f"fs.azure.account.oauth2.client.endpoint does not have the form {form}")
                return {
                    "azure_authority_url": endpoint[1],
                    "azure_tenant_id": endpoint[2],
                    "azure_client_id": self._required("account.oauth2.client.id"),
                    "azure_client_secret": self._required("account.oauth2.client.secret"),
                }
            case "MsiTokenProvider":
                return {"azure_managed_identity": True, "azure_client_id": self.secret("account.oauth2.client.id")}
            case "WorkloadIdentityTokenProvider":
                return {
                    "azure_authority_url": (self.secret("account.oauth2.msi.authority") or _AUTHORITY).rstrip("/"),
                    "azure_tenant_id": self._required("account.oauth2.msi.tenant"),
                    "azure_client_id": self._required("account.oauth2.client.id"),
                    "azure_token_file": self.secret("account.oauth2.token.file") or _WORKLOAD_TOKEN,
                }
        raise self.unusable(
            f"fs.azure.account.oauth.provider.type is {provider or 'not set'}, which is known to Spark alone"
        )

    def _required(self, name: str) -> str:
        if (value := self.secret(name)) is None:
            raise NoCredentialsError(
                f"no credentials for the container {self.container}: neither {ABFS_PREFIX}{name}.{self.host} nor "
                f"{ABFS_PREFIX}{name} is set. Set one of them, or choose other credentials by "
                f"{ABFS_PREFIX}account.auth.type"
            )
        return value

    def place(self, own: TableStorage) -> TableStorage:
        place, url = azure_place(own.at(self.uri), TABLES), self.endpoint_url()
        return own if place.names_endpoint or url == place.endpoint else replace(own, azure_endpoint_url=url)

    def access(self, own: TableStorage) -> TableStorage:
        place = azure_place(own.at(self.uri), TABLES)
        if not self.host or not self.has_connector:
            return own
        if place.names_endpoint:
            setting = f"{STORAGE_PREFIX}{place.names_endpoint}"
            check_same_store(setting, place.endpoint, self.endpoint_url(), f"container {self.container}")
        self.check_supported()
        storage = self.place(own)
        if not place.identity.is_named:
            storage = replace(storage, **self.credentials())
        if why_not := azure_place(storage.at(self.uri), TABLES).identity.why_not_deltalake():
            raise NotForTasksError(why_not)
        return storage


GS_PREFIX, _CLOUD_PREFIX = "fs.gs.", "google.cloud."
_OF_CLOUD = ("auth.", "http.", "proxy.", "token.")
"""Beginnings of short names of settings that can have the prefix `google.cloud.` in place of `fs.gs.`."""
_GOOGLE = "https://storage.googleapis.com"
_KEY_FILE = "auth.service.account.json.keyfile"


class GsStore(SessionStore):
    """Bucket in Google's storage, reached by the session's `fs.gs.*` settings.

    The class follows `HadoopCredentialsConfiguration` of Google's connector 3.0 and 4.0, and of hadoop-gcp 3.5. The
    prefix `fs.gs.` takes precedence over `google.cloud.`, which only some settings may have.
    """

    prefix = GS_PREFIX
    own_settings = f"{STORAGE_PREFIX}gcs.credentials.path or {STORAGE_PREFIX}gcs.credentials.json"

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        known = (name for name in (GOOGLES_CONNECTOR, HADOOPS_CONNECTOR) if hadoop.has_class(name))
        self.connector = hadoop.get(f"{GS_PREFIX}impl") or next(known, GOOGLES_CONNECTOR)

    def keys(self, name: str) -> Iterable[str]:
        shared = (_CLOUD_PREFIX + name,) if name.startswith(_OF_CLOUD) else ()
        return GS_PREFIX + name, *shared

    def own_names(self) -> Collection[str]:
        shared = {each for each in self.hadoop.names_after(_CLOUD_PREFIX) if each.startswith(_OF_CLOUD)}
        return sorted(shared.union(super().own_names()))

    def endpoint_url(self) -> str:
        """Return the URL of Google Cloud Storage, or of the service that `fs.gs.storage.root.url` names."""
        url = self.text("storage.root.url") if self.connector != HADOOPS_CONNECTOR else None
        return (url or _GOOGLE).rstrip("/")

    def credentials(self) -> dict[str, Any]:
        """Return the session's credentials as values of `TableStorage`, by field name.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get other credentials than Spark.
            NoCredentialsError: the session names no key file, but its kind of credentials needs one.
        """
        kind, key_file = self.text("auth.type"), self.text(_KEY_FILE)
        if not kind and key_file:
            raise self.unusable(f"{GS_PREFIX}{_KEY_FILE} is set, but fs.gs.auth.type is not")
        match kind or "COMPUTE_ENGINE":
            case "COMPUTE_ENGINE":
                return {"gcs_machine": True}
            case "APPLICATION_DEFAULT":
                return {}
            case "UNAUTHENTICATED":
                return {"gcs_anonymous": True}
            case "SERVICE_ACCOUNT_JSON_KEYFILE" if key_file:
                return {"gcs_credentials_path": key_file}
            case "SERVICE_ACCOUNT_JSON_KEYFILE":
                raise NoCredentialsError(
                    f"no credentials for the bucket {self.bucket}: fs.gs.auth.type is {kind}, but "
                    f"{GS_PREFIX}{_KEY_FILE} is not set. Set it to the path of the key file"
                )
        raise self.unusable(f"fs.gs.auth.type is {kind}, which is known to Spark alone")

    def place(self, own: TableStorage) -> TableStorage:
        url = self.endpoint_url()
        return own if own.gcs_endpoint_url or url == _GOOGLE else replace(own, gcs_endpoint_url=url)

    def access(self, own: TableStorage) -> TableStorage:
        if not self.has_connector:
            return own
        from tiered_stream.storage.identity.google_identity import google_identity  # late, because it loads urllib3

        setting = f"{STORAGE_PREFIX}gcs.endpoint.url"
        check_same_store(setting, own.gcs_endpoint_url, self.endpoint_url(), f"bucket {self.bucket}")
        self.check_supported()
        storage = self.place(own)
        if not (own.gcs_credentials_json or own.gcs_credentials_path or own.gcs_anonymous):
            storage = replace(storage, **self.credentials())
        with suppress(StorageAccessError):  # the first request reports it
            if why_not := google_identity(storage, STORAGE_PREFIX).why_not_deltalake():
                raise NotForTasksError(why_not)
        return storage


_PREFIXES = (
    "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.failover.resolve", "dfs.client.failover.random.",
    "dfs.client.failover.proxy.", "dfs.client.block.write.replace-datanode-on-failure.",
)  # fmt: skip
_NAMES = (
    "fs.defaultFS", "dfs.data.transfer.protection", "dfs.client.use.datanode.hostname",
    "hadoop.security.authentication", "hadoop.security.key.provider.path", REPLICATION, BLOCK_SIZE, UMASK,
)  # fmt: skip
"""Hadoop's settings that the library hdfs-native follows (listed in its README) or that new files in HDFS need."""


class HdfsStore(SessionStore):
    """File system in HDFS, reached by the session's Hadoop settings.

    Tasks find Kerberos tickets and delegation tokens as Spark's executors do (`HADOOP_TOKEN_FILE_LOCATION`,
    `KRB5CCNAME`).
    """

    connector = "org.apache.hadoop.hdfs.DistributedFileSystem"

    def access(self, own: TableStorage) -> TableStorage:
        if find_spec("hdfs_native") is None:
            raise NotForTasksError(
                "tasks write to HDFS by hdfs-native, which is not installed: pip install 'tiered-stream[hdfs]'"
            )
        names = (*_NAMES, *(prefix + name for prefix in _PREFIXES for name in self.hadoop.names_after(prefix)))
        values = {name: value for name in names if (value := self.hadoop.get(name))}
        storage = replace(own, hdfs_settings=own.hdfs_settings or orjson.dumps(values).decode())
        try:
            new_files(hadoop_settings_of(storage.at(self.uri)))
        except ConfigurationError as error:
            raise NotForTasksError(str(error)) from None
        return storage


_STORES: Mapping[str, type[SessionStore]] = {
    **dict.fromkeys(S3_SCHEMES, S3aStore), **dict.fromkeys(AZURE_SCHEMES, AbfsStore),
    GOOGLE_SCHEME: GsStore, HDFS_SCHEME: HdfsStore,
}  # fmt: skip


def find_access(own: TableStorage, uri: str, hadoop: HadoopSettings) -> tuple[TableStorage, str | None]:
    """Return the settings by which tasks access the store of the folder `uri`, and a text that says why tasks cannot.

    `own` is the job's own access (`ingest.storage.*`), and `hadoop` has the session's settings. The text is None if
    tasks can access the store.

    Raises:
        ConfigurationError: a setting is malformed, `ingest.storage.*` name a different store than the session, or there
            are no credentials.
        TableAccessError: the region of a bucket cannot be found.
    """
    scheme = urlsplit(uri).scheme
    if scheme in _STORES:
        return _STORES[scheme](hadoop, uri).find(own)
    known = "neither a local folder nor in S3, Azure Blob Storage, Google Cloud Storage or HDFS"
    return own, None if scheme in ("file", *BUCKET_SCHEMES) else f"{uri} is {known}"


def storage_without_spark(settings: Mapping[str, str], folder: str, hadoop: HadoopSettings | None) -> TableStorage:
    """Return the settings by which this process accesses the folder `folder`, such as a checkpoint, without Spark.

    `settings` are the job's settings. `hadoop` has Hadoop's settings from Spark's settings files; None: there is no
    such file, and only `ingest.storage.*` in `settings` count.

    Raises:
        ConfigurationError: a setting is malformed, there are no credentials, or only Spark can access the folder.
        TableAccessError: the region of a bucket cannot be found.
    """
    uri, own = path_uri(folder), table_storage(settings)
    if hadoop is None or urlsplit(uri).scheme not in BUCKET_SCHEMES:
        return own
    storage, why_not = find_access(own, uri, hadoop)
    if why_not:
        raise ConfigurationError(f"only Spark can reach {folder} as its settings say: {why_not}")
    return storage


def missing_connector(uri: str, hadoop: HadoopSettings) -> str | None:
    """Return a text that says that the session has no connector for the scheme of `uri`; None: it has a connector."""
    scheme = urlsplit(uri).scheme
    has_connector = scheme not in _STORES or _STORES[scheme](hadoop, uri).has_connector
    return None if has_connector else f"the session has no connector for {scheme}://"

"""Access of tasks to a table's container, from the session's `fs.azure.*` settings, overridden by `ingest.storage.*`.

Tasks of the direct lane do not use Hadoop, but must reach the container in the same way as Spark. So this module
follows hadoop-azure 3.5: `AbfsConfiguration` (settings of one account and container, credentials) and
`AzureBlobFileSystemStore` (endpoint). Paths `wasbs://` follow the WASB driver of hadoop-azure 3.4, which Hadoop 3.5 has
no more. Tasks use the account's blob service, because it takes a file in one request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from tiered_stream.delta.requirements import abfs_requirements as names
from tiered_stream.delta.requirements.abfs_requirements import ABFS_PREFIX, names_of_account
from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.storage.cloud_endpoints import TABLES, azure_place, blob_host, container_and_host

_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2."
_CLIENT, _MACHINE, _WORKLOAD = (
    f"{_PROVIDERS}{name}" for name in ("ClientCredsTokenProvider", "MsiTokenProvider", "WorkloadIdentityTokenProvider")
)
_AUTHORITY = "https://login.microsoftonline.com"
_WORKLOAD_TOKEN = "/var/run/secrets/azure/tokens/azure-identity-token"  # noqa: S105 - a file's path
_CONNECTORS = {
    "abfs": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    "abfss": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    "wasb": "org.apache.hadoop.fs.azure.AzureNativeFileSystemStore",
    "wasbs": "org.apache.hadoop.fs.azure.AzureNativeFileSystemStore",
}
"""Java classes by URI scheme, without which Hadoop cannot reach a path of that scheme."""


class AbfsStore(SessionStore):
    """Container in Azure's storage.

    A setting of one account (`fs.azure.NAME.HOST`) overrides the setting for all accounts. For a secret, a setting of
    one container overrides both.
    """

    prefix = ABFS_PREFIX

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        self.container, self.host = container_and_host(uri)
        """The container, and the host in the path, such as `account.dfs.core.windows.net`; it may be empty."""
        self.library, self.connector = f"{self.scheme}:// (hadoop-azure)", _CONNECTORS.get(self.scheme, "")

    def keys(self, name: str) -> Iterable[str]:
        return f"{ABFS_PREFIX}{name}.{self.host}", ABFS_PREFIX + name

    def secret_keys(self, name: str) -> Iterable[str]:
        return f"{ABFS_PREFIX}{name}.{self.container}.{self.host}", *self.keys(name)

    def own_names(self) -> Collection[str]:
        return names_of_account(self.container, self.host, super().own_names())

    def endpoint_url(self) -> str:
        """Return the URL of the account's blob service."""
        is_plain = self.scheme == "wasb" or (
            self.scheme == "abfs" and (self.text(names.ALWAYS_HTTPS) or "").lower() == "false"
        )
        emulated = self.text(names.ENDPOINT) or ""  # Hadoop then has the account in the path
        address = f"{emulated}/{self.host.partition('.')[0]}" if ":" in emulated else blob_host(self.host)
        return f"{'http' if is_plain else 'https'}://{address}"

    def credentials(self) -> dict[str, Any]:
        """Return the session's credentials for the container as fields of `TableStorage`.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get others than Spark.
            NoCredentialsError: Spark has no credentials.
        """
        if self.scheme in ("wasb", "wasbs"):
            if token := self.secret(f"{names.CONTAINER_SAS}.{self.container}"):
                return {"azure_sas_token": token}
            return {"azure_account_key": self._required(names.ACCOUNT_KEY)}
        kind = self.text(names.AUTH_TYPE) or "SharedKey"
        if kind == "SharedKey":
            return {"azure_account_key": self._required(names.ACCOUNT_KEY)}
        if kind == "SAS":
            return {"azure_sas_token": self._required(names.FIXED_SAS)}
        if kind == "OAuth":
            return self._oauth()
        raise _unusable(f"{names.AUTH_TYPE} is {kind}, which is known to Spark alone")

    def _oauth(self) -> dict[str, Any]:
        provider = self.text(names.TOKEN_PROVIDER) or ""
        if provider == _CLIENT:
            authority, tenant = _authority_and_tenant(self._required(names.CLIENT_ENDPOINT))
            return {
                "azure_authority_url": authority,
                "azure_tenant_id": tenant,
                "azure_client_id": self._required(names.CLIENT_ID),
                "azure_client_secret": self._required(names.CLIENT_SECRET),
            }
        if provider == _MACHINE:
            return {"azure_managed_identity": True, "azure_client_id": self.secret(names.CLIENT_ID)}
        if provider == _WORKLOAD:
            return {
                "azure_authority_url": (self.secret(names.MSI_AUTHORITY) or _AUTHORITY).rstrip("/"),
                "azure_tenant_id": self._required(names.MSI_TENANT),
                "azure_client_id": self._required(names.CLIENT_ID),
                "azure_token_file": self.secret(names.TOKEN_FILE) or _WORKLOAD_TOKEN,
            }
        raise _unusable(f"{names.TOKEN_PROVIDER} is {provider or 'not set'}, which is known to Spark alone")

    def _required(self, name: str) -> str:
        value = self.secret(name)
        if value is None:
            raise NoCredentialsError(
                f"no credentials for the container {self.container}: neither {ABFS_PREFIX}{name}.{self.host} nor "
                f"{ABFS_PREFIX}{name} is set. Set one of them, or choose other credentials by "
                f"{ABFS_PREFIX}{names.AUTH_TYPE}"
            )
        return value

    def find(self, own: TableStorage) -> tuple[TableStorage, str | None]:
        place = azure_place(own.at(self.uri), TABLES)
        if not self.host or not self.has_connector:
            return own, None
        url, storage = self.endpoint_url(), own
        if place.names_endpoint:
            own_url = place.endpoint
            check_same_store(f"{STORAGE_PREFIX}{place.names_endpoint}", own_url, url, f"container {self.container}")
        elif url != place.endpoint:
            storage = replace(own, azure_endpoint_url=url)
        try:
            self.check_supported()
            if not place.identity.is_named:
                storage = replace(storage, **self.credentials())
        except NotForTasksError as error:
            return storage, str(error)
        return storage, azure_place(storage.at(self.uri), TABLES).identity.why_not_deltalake()


def _authority_and_tenant(endpoint: str) -> tuple[str, str]:
    """Split the URL of a tenant's token endpoint, such as `https://login.microsoftonline.com/TENANT/oauth2/token`.

    Raises:
        NotForTasksError: the URL has another form.
    """
    parts = urlsplit(endpoint)
    tenant, _, rest = parts.path.strip("/").partition("/")
    if not parts.netloc or rest not in ("oauth2/token", "oauth2/v2.0/token"):
        raise _unusable(f"{names.CLIENT_ENDPOINT} does not have the form https://HOST/TENANT/oauth2/token")
    return f"{parts.scheme}://{parts.netloc}", tenant


def _unusable(why: str) -> NotForTasksError:
    return NotForTasksError(
        f"{ABFS_PREFIX}{why}: for tasks that write files themselves, set {STORAGE_PREFIX}azure.account.key or "
        f"{STORAGE_PREFIX}azure.sas.token"
    )

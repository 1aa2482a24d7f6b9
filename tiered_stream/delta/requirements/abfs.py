"""Access of tasks to a table's container, from the session's `fs.azure.*` settings, overridden by `ingest.storage.*`.

Tasks of the direct lane do not use Hadoop, but must reach the container in the same way as Spark. So this module
follows hadoop-azure 3.5: `AbfsConfiguration` (settings of one account and container, credentials) and
`AzureBlobFileSystemStore` (endpoint). Paths `wasbs://` follow the WASB driver of hadoop-azure 3.4, which Hadoop 3.5 has
no more. Tasks use the account's blob service, because it takes a file in one request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from tiered_stream.delta.requirements import abfs_requirements as names
from tiered_stream.delta.requirements.abfs_requirements import ABFS_PREFIX, names_of_account
from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    check_same_store,
    check_supported,
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


@dataclass(frozen=True, slots=True)
class AbfsSettings:
    """Azure settings of one container. `host` is the host in the path, such as `account.dfs.core.windows.net`."""

    scheme: str
    container: str
    host: str
    get: Callable[[str], str | None]
    password: Callable[[str], str | None]
    has_connector: bool = True
    """True if Spark can reach paths of the scheme."""
    names: Collection[str] = ()
    """Names of all `fs.azure.*` settings in the session, without `fs.azure.`, including settings of other accounts."""

    def text(self, name: str) -> str | None:
        """Return the value of the setting `name` (without `fs.azure.`); None: it is not set.

        The setting of this account takes precedence over the setting for all accounts.
        """
        keys = (f"{ABFS_PREFIX}{name}.{self.host}", ABFS_PREFIX + name)
        return next((value.strip() for key in keys if (value := self.get(key)) is not None), None)

    def secret(self, name: str) -> str | None:
        """Return the value of a setting that may be in a credential file; `name` is without `fs.azure.`.

        The setting of this container takes precedence, then the setting of this account. None: all are unset or empty.
        """
        suffixes = (f".{self.container}.{self.host}", f".{self.host}", "")
        values = (self.password(f"{ABFS_PREFIX}{name}{suffix}") for suffix in suffixes)
        return next((value.strip() for value in values if value), None) or None

    def endpoint_url(self) -> str:
        """Return the URL of the account's blob service."""
        is_plain = self.scheme == "wasb" or (
            self.scheme == "abfs" and (self.text(names.ALWAYS_HTTPS) or "").lower() == "false"
        )
        emulated = self.text(names.ENDPOINT) or ""  # Hadoop then has the account in the path
        address = f"{emulated}/{self.host.partition('.')[0]}" if ":" in emulated else blob_host(self.host)
        return f"{'http' if is_plain else 'https'}://{address}"

    def check_supported(self) -> None:
        """Raise NotForTasksError if a setting requires something of writers that tasks do not do."""
        applying = names_of_account(self.container, self.host, self.names)
        check_supported(ABFS_PREFIX, applying, lambda name: self.text(name) or self.secret(name))

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


def abfs_settings(hadoop: HadoopSettings, uri: str) -> AbfsSettings:
    """Return the Azure settings of the container that `uri` names."""
    container, host = container_and_host(uri)
    scheme = urlsplit(uri).scheme
    connector = _CONNECTORS.get(scheme)
    return AbfsSettings(
        scheme,
        container,
        host,
        get=hadoop.get,
        password=hadoop.password,
        has_connector=connector is not None and hadoop.has_class(connector),
        names=hadoop.names_after(ABFS_PREFIX),
    )


def find_azure_storage(own: TableStorage, uri: str, session: AbfsSettings) -> tuple[TableStorage, str | None]:
    """Return the settings by which tasks access the table's container, and a reason why tasks cannot write to it.

    `own` is the job's own access (`ingest.storage.*`). Endpoint and credentials in it take precedence over `session`.
    The reason is a text that says in what tasks would differ from Spark; None: tasks access the container like Spark,
    or Spark cannot reach it.

    Raises:
        ConfigurationError: a setting is malformed, no storage account is named, the settings name a different service
            than the session, or there are no credentials.
    """
    place = azure_place(own.at(uri), TABLES)
    if not session.host or not session.has_connector:
        return own, None
    url, storage = session.endpoint_url(), own
    if place.names_endpoint:
        own_url = place.endpoint
        check_same_store(f"{STORAGE_PREFIX}{place.names_endpoint}", own_url, url, f"container {session.container}")
    elif url != place.endpoint:
        storage = replace(own, azure_endpoint_url=url)
    try:
        session.check_supported()
        if not place.identity.is_named:
            storage = replace(storage, **session.credentials())
    except NotForTasksError as error:
        return storage, str(error)
    return storage, azure_place(storage.at(uri), TABLES).identity.why_not_deltalake()

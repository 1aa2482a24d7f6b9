"""Access of tasks to a table's container, from the session's `fs.azure.*` settings, overridden by `ingest.storage.*`.

Tasks of the direct lane do not use Hadoop, but must reach the container in the same way as Spark. So this module
follows hadoop-azure 3.5: `AbfsConfiguration` (settings of one account and container, credentials) and
`AzureBlobFileSystemStore` (endpoint). Paths `wasbs://` follow the WASB driver of hadoop-azure 3.4, which Hadoop 3.5 has
no more. Tasks use the account's blob service, because it takes a file in one request.

A setting of one account (`fs.azure.NAME.ACCOUNT.dfs.core.windows.net`) overrides the setting for all accounts, and for
secrets a setting of one container (`fs.azure.NAME.CONTAINER.ACCOUNT.…`) overrides both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.storage.cloud_endpoints import TABLES, azure_place, blob_host, container_and_host

ABFS_PREFIX = "fs.azure."
_HOST = re.compile(r"\.[a-z0-9-]{1,63}\.(?:z\d+\.)?(?:dfs|blob)\.(?:core|storage|fabric)\.[a-z.]+")
"""Pattern of the account's host at the end of a setting's name; such a setting is for this account only."""
_TOKEN_ENDPOINT = re.compile(r"(\w+://[^/]+)/([^/]+)/oauth2/(?:v2\.0/)?token/?")
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
    """Container in Azure's storage.

    A setting of one account (`fs.azure.NAME.HOST`) overrides the setting for all accounts. For a secret, a setting of
    one container overrides both.
    """

    prefix = ABFS_PREFIX
    own_settings = f"{STORAGE_PREFIX}azure.account.key or {STORAGE_PREFIX}azure.sas.token"

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        self.container, self.host = container_and_host(uri)
        """The container, and the host in the path, such as `account.dfs.core.windows.net`; it may be empty."""
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
        """Return the session's credentials for the container as fields of `TableStorage`.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get others than Spark.
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

    def access(self, own: TableStorage) -> TableStorage:
        place = azure_place(own.at(self.uri), TABLES)
        if not self.host or not self.has_connector:
            return own
        url, storage = self.endpoint_url(), own
        if place.names_endpoint:
            setting = f"{STORAGE_PREFIX}{place.names_endpoint}"
            check_same_store(setting, place.endpoint, url, f"container {self.container}")
        elif url != place.endpoint:
            storage = replace(own, azure_endpoint_url=url)
        self.check_supported()
        if not place.identity.is_named:
            storage = replace(storage, **self.credentials())
        if why_not := azure_place(storage.at(self.uri), TABLES).identity.why_not_deltalake():
            raise NotForTasksError(why_not)
        return storage

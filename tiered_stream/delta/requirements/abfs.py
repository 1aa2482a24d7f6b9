"""Access of tasks to a table's container, from the session's `fs.azure.*` settings, overridden by `ingest.storage.*`.

Tasks of the direct lane do not use Hadoop, but must reach the container in the same way as Spark. So this module
follows hadoop-azure 3.5: `AbfsConfiguration` (settings of one account and container, credentials) and
`AzureBlobFileSystemStore` (endpoint). Paths `wasbs://` follow the WASB driver of hadoop-azure 3.4, which Hadoop 3.5 has
no more. Tasks use the account's blob service, because it takes a file in one request.

`ABFS_REQUIREMENTS` are the requirements that these settings can set for a writer, for Hadoop 3.5 and the older WASB
driver: a part of the list in `writer_requirements.py`. Names there are without `fs.azure.`. A setting of one account
(`fs.azure.NAME.ACCOUNT.dfs.core.windows.net`) overrides the setting for all accounts, and for secrets a setting of one
container (`fs.azure.NAME.CONTAINER.ACCOUNT.…`) overrides both. Sources: `ConfigurationKeys` of hadoop-azure 3.5,
`core-default.xml`, and for WASB `AzureNativeFileSystemStore` of hadoop-azure 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.storage.cloud_endpoints import TABLES, azure_place, blob_host, container_and_host

ABFS_PREFIX = "fs.azure."
AUTH_TYPE, ACCOUNT_KEY, FIXED_SAS, CONTAINER_SAS = "account.auth.type", "account.key", "sas.fixed.token", "sas"
TOKEN_PROVIDER, CLIENT_ENDPOINT = "account.oauth.provider.type", "account.oauth2.client.endpoint"
CLIENT_ID, CLIENT_SECRET = "account.oauth2.client.id", "account.oauth2.client.secret"
MSI_AUTHORITY, MSI_TENANT = "account.oauth2.msi.authority", "account.oauth2.msi.tenant"
TOKEN_FILE = "account.oauth2.token.file"  # noqa: S105 - a setting's name
ENDPOINT, ALWAYS_HTTPS = "abfs.endpoint", "always.use.https"

_HOST = re.compile(r"\.[a-z0-9-]{1,63}\.(?:z\d+\.)?(?:dfs|blob)\.(?:core|storage|fabric)\.[a-z.]+")
"""Pattern of the account's host at the end of a setting's name; such a setting is for this account only."""
_entries = partial(entries, Kind.SESSION, prefix=ABFS_PREFIX)

ABFS_REQUIREMENTS: tuple[Requirement, ...] = (
    *_entries(
        Handling.SPARK_LANE, "account.keyprovider", note="Other than `SimpleKeyProvider`.",
        off=OFF | {f"org.apache.hadoop.fs.{each}.simplekeyprovider" for each in ("azurebfs.services", "azure")},
    ),
    *_entries(
        Handling.SPARK_LANE, "account.oauth2.msi.endpoint", note="Other than the endpoint of Azure's machines.",
        off=OFF | {"http://169.254.169.254/metadata/identity/oauth2/token"},
    ),
    *_entries(
        Handling.SPARK_LANE,
        "sas.token.provider.type", note="Other than `FixedSASTokenProvider`.",
        off=OFF | {"org.apache.hadoop.fs.azurebfs.services.fixedsastokenprovider"},
    ),
    *_entries(
        Handling.SPARK_LANE,
        "account.oauth2.client.assertion.provider.type", "appendblob.directories", "authorization",
        "block.blob.with.compaction.dir", "client-provided-encryption-key", "enable.delegation.token",
        "encryption.context.provider.type",
        "encryption.encoded.client-provided-key", "encryption.encoded.client-provided-key-sha",
        "infinite-lease.directories", "page.blob.dir", "secure.mode", "storage.emulator.account.name",
    ),
    *_entries(
        Handling.NOTHING, "enable.checksum.validation", "enable.full.blob.checksum.validation",
        note="It is Spark's own check.",
    ),
    *_entries(
        Handling.NOTHING,
        "account.expect.header.enabled", "block.location.impersonatedhost", "block.size",
        "block.upload.active.blocks", "data.blocks.buffer", "identity.transformer.*", "metrics.*", "read.*",
        "readahead.*", "skipUserGroupMetadataDuringInitialization", "tracingheader.format",
    ),
)  # fmt: skip


def names_of_account(container: str, host: str, names_of_session: Iterable[str]) -> list[str]:
    """Return the sorted names of the settings that apply to the container, without account and container in the names.

    `host` is the host of the account in the table's path. `names_of_session` are the names of all settings, without
    `fs.azure.`. Settings of other accounts and of other containers are left out.
    """
    own: set[str] = set()
    for name in names_of_session:
        base = name.removesuffix(f".{host}")
        if base != name:
            own.add(base.removesuffix(f".{container}"))
        elif not _HOST.search(name):
            own.add(name)
    return sorted(own)


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
    requirements = ABFS_REQUIREMENTS
    own_settings = f"{STORAGE_PREFIX}azure.account.key or {STORAGE_PREFIX}azure.sas.token"

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
            self.scheme == "abfs" and (self.text(ALWAYS_HTTPS) or "").lower() == "false"
        )
        emulated = self.text(ENDPOINT) or ""  # Hadoop then has the account in the path
        address = f"{emulated}/{self.host.partition('.')[0]}" if ":" in emulated else blob_host(self.host)
        return f"{'http' if is_plain else 'https'}://{address}"

    def credentials(self) -> dict[str, Any]:
        """Return the session's credentials for the container as fields of `TableStorage`.

        Raises:
            NotForTasksError: tasks cannot use these credentials, or would get others than Spark.
            NoCredentialsError: Spark has no credentials.
        """
        if self.scheme in ("wasb", "wasbs"):
            if token := self.secret(f"{CONTAINER_SAS}.{self.container}"):
                return {"azure_sas_token": token}
            return {"azure_account_key": self._required(ACCOUNT_KEY)}
        kind = self.text(AUTH_TYPE) or "SharedKey"
        if kind == "SharedKey":
            return {"azure_account_key": self._required(ACCOUNT_KEY)}
        if kind == "SAS":
            return {"azure_sas_token": self._required(FIXED_SAS)}
        if kind == "OAuth":
            return self._oauth()
        raise self.unusable(f"{ABFS_PREFIX}{AUTH_TYPE} is {kind}, which is known to Spark alone")

    def _oauth(self) -> dict[str, Any]:
        provider = self.text(TOKEN_PROVIDER) or ""
        if provider == _CLIENT:
            authority, tenant = self._authority_and_tenant()
            return {
                "azure_authority_url": authority,
                "azure_tenant_id": tenant,
                "azure_client_id": self._required(CLIENT_ID),
                "azure_client_secret": self._required(CLIENT_SECRET),
            }
        if provider == _MACHINE:
            return {"azure_managed_identity": True, "azure_client_id": self.secret(CLIENT_ID)}
        if provider == _WORKLOAD:
            return {
                "azure_authority_url": (self.secret(MSI_AUTHORITY) or _AUTHORITY).rstrip("/"),
                "azure_tenant_id": self._required(MSI_TENANT),
                "azure_client_id": self._required(CLIENT_ID),
                "azure_token_file": self.secret(TOKEN_FILE) or _WORKLOAD_TOKEN,
            }
        raise self.unusable(f"{ABFS_PREFIX}{TOKEN_PROVIDER} is {provider or 'not set'}, which is known to Spark alone")

    def _authority_and_tenant(self) -> tuple[str, str]:
        """Return the authority's URL and the tenant from the setting of the token endpoint.

        The setting has a URL such as `https://login.microsoftonline.com/TENANT/oauth2/token`.
        """
        parts = urlsplit(self._required(CLIENT_ENDPOINT))
        tenant, _, rest = parts.path.strip("/").partition("/")
        if not parts.netloc or rest not in ("oauth2/token", "oauth2/v2.0/token"):
            raise self.unusable(
                f"{ABFS_PREFIX}{CLIENT_ENDPOINT} does not have the form https://HOST/TENANT/oauth2/token"
            )
        return f"{parts.scheme}://{parts.netloc}", tenant

    def _required(self, name: str) -> str:
        value = self.secret(name)
        if value is None:
            raise NoCredentialsError(
                f"no credentials for the container {self.container}: neither {ABFS_PREFIX}{name}.{self.host} nor "
                f"{ABFS_PREFIX}{name} is set. Set one of them, or choose other credentials by "
                f"{ABFS_PREFIX}{AUTH_TYPE}"
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

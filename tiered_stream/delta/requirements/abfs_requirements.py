"""Requirements that the session's `fs.azure.*` settings can set for a writer, for Hadoop 3.5 and the older WASB driver.

They are part of the list in `writer_requirements.py`. Names here are without `fs.azure.`. A setting of one account
(`fs.azure.NAME.ACCOUNT.dfs.core.windows.net`) overrides the setting for all accounts, and for secrets a setting of one
container (`fs.azure.NAME.CONTAINER.ACCOUNT.…`) overrides both. Sources: `ConfigurationKeys` of hadoop-azure 3.5,
`core-default.xml`, and for WASB `AzureNativeFileSystemStore` of hadoop-azure 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries

ABFS_PREFIX = "fs.azure."
AUTH_TYPE, ACCOUNT_KEY, KEY_PROVIDER = "account.auth.type", "account.key", "account.keyprovider"
SAS_PROVIDER, FIXED_SAS, CONTAINER_SAS = "sas.token.provider.type", "sas.fixed.token", "sas"
TOKEN_PROVIDER, CLIENT_ENDPOINT = "account.oauth.provider.type", "account.oauth2.client.endpoint"
CLIENT_ID, CLIENT_SECRET = "account.oauth2.client.id", "account.oauth2.client.secret"
MSI_AUTHORITY, MSI_TENANT, MSI_ENDPOINT = (f"account.oauth2.msi.{name}" for name in ("authority", "tenant", "endpoint"))
TOKEN_FILE = "account.oauth2.token.file"  # noqa: S105 - a setting's name
ASSERTION_PROVIDER = "account.oauth2.client.assertion.provider.type"
ENDPOINT, ALWAYS_HTTPS = "abfs.endpoint", "always.use.https"
SIMPLE_KEYS = frozenset(
    f"org.apache.hadoop.fs.{package}.simplekeyprovider" for package in ("azurebfs.services", "azure")
)
"""Classes of `account.keyprovider`, in lower case, that take the key from the settings."""

_HOST = re.compile(r"\.[a-z0-9-]{1,63}\.(?:z\d+\.)?(?:dfs|blob)\.(?:core|storage|fabric)\.[a-z.]+")
"""Pattern of the end of a name that belongs to one account."""
_entries = partial(entries, Kind.SESSION, prefix=ABFS_PREFIX)
_nothing = partial(_entries, Handling.NOTHING)

ABFS_REQUIREMENTS: tuple[Requirement, ...] = (
    *_entries(
        Handling.HONOURED,
        ENDPOINT, ALWAYS_HTTPS, ACCOUNT_KEY, CLIENT_ID, CLIENT_SECRET, CLIENT_ENDPOINT, MSI_AUTHORITY, MSI_TENANT,
        TOKEN_FILE, FIXED_SAS, CONTAINER_SAS,
        note="Also as settings of one account, and of one container.",
    ),
    *_entries(
        Handling.HONOURED, AUTH_TYPE, TOKEN_PROVIDER,
        note="`SharedKey`, `SAS`, and `OAuth` with client credentials, managed identity or workload identity. Others "
        "lead to the Spark lane.",
    ),
    *_entries(
        Handling.SPARK_LANE, KEY_PROVIDER, note="Other than `SimpleKeyProvider`.", off=OFF | SIMPLE_KEYS
    ),
    *_entries(
        Handling.SPARK_LANE, MSI_ENDPOINT, note="Other than the endpoint of Azure's machines.",
        off=OFF | {"http://169.254.169.254/metadata/identity/oauth2/token"},
    ),
    *_entries(
        Handling.SPARK_LANE,
        SAS_PROVIDER, note="Other than `FixedSASTokenProvider`.",
        off=OFF | {"org.apache.hadoop.fs.azurebfs.services.fixedsastokenprovider"},
    ),
    *_entries(
        Handling.SPARK_LANE,
        ASSERTION_PROVIDER, "appendblob.directories", "authorization", "block.blob.with.compaction.dir",
        "client-provided-encryption-key", "enable.delegation.token", "encryption.context.provider.type",
        "encryption.encoded.client-provided-key", "encryption.encoded.client-provided-key-sha",
        "infinite-lease.directories", "page.blob.dir", "secure.mode", "storage.emulator.account.name",
    ),
    *_nothing(
        "account.oauth2.refresh.token", "account.oauth2.refresh.token.endpoint", "account.oauth2.user.name",
        "account.oauth2.user.password", "delegation.token.provider.type", "shellkeyprovider.script",
        note="As the provider that takes it.",
    ),
    *_nothing("enable.checksum.validation", "enable.full.blob.checksum.validation", note="It is Spark's own check."),
    *_nothing(
        "abfs.latency.track", "account.expect.header.enabled", "account.hns.enabled", "account.operation.idle.timeout",
        "account.throttling.enabled", "analysis.period", "apache.http.client.*", "atomic.rename.*",
        "authorization.caching.enable", "blob.atomic.rename.lease.refresh.duration", "blob.copy.*", "blob.dir.*",
        "block.location.impersonatedhost", "block.size", "block.upload.active.blocks", "buffer.dir",
        "buffered.pread.disable", "client.correlationid", "cluster.*", "concurrentRequestCount.*",
        "createRemoteFileSystemDuringInitialization", "custom.token.fetch.retry.count", "data.blocks.buffer",
        "delete.threads", "disable.outputstream.flush", "enable.abfslistiterator", "enable.autothrottling",
        "enable.check.access", "enable.client.transaction.id", "enable.conditional.create.overwrite",
        "enable.create.blob.idempotency", "enable.dfstoblob.fallback", "enable.flush", "enable.mkdir.overwrite",
        "enable.paginated.delete", "enable.prefetch.request.priority", "enable.readahead*", "enable.rename.resilience",
        "enable.tail.latency.*", "fns.account.service.type", "footer.read.request.size", "http.*",
        "identity.transformer.*", "ingress.service.type", "io.*", "lease.threads", "list.max.results",
        "local.sas.key.mode", "metric.*", "metrics.*", "networking.library", "oauth.token.fetch.retry.*",
        "prefetch.request.priority.value", "read.*", "readahead.*", "readaheadqueue.depth", "rename.threads",
        "sas.expiry.period", "sas.token.renew.period.for.streams", "saskey.usecontainersaskeyforallaccess",
        "selfthrottling.*", "skip.metrics", "skipUserGroupMetadataDuringInitialization", "ssl.channel.mode",
        "static.retry.*", "tail.latency.*", "tracingheader.format", "use.upn", "user.agent.prefix", "write.*",
    ),
)  # fmt: skip


def names_of_account(container: str, host: str, names_of_session: Iterable[str]) -> list[str]:
    """Return the sorted names of the settings that apply to the container, without account and container.

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

"""URI schemes of Google's and Azure's storage, and the account and endpoint of an Azure container. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions

S3_SCHEMES = ("s3", "s3a")
GOOGLE_SCHEME = "gs"
AZURE_SCHEMES = ("az", "abfs", "abfss", "wasb", "wasbs")


@dataclass(frozen=True, slots=True)
class AzurePlace:
    """Container, its storage account, and the URL of the account's blob service.

    At most one of `key` and `sas_token` is used. If both are None, Azure's own chain of credentials is used.
    """

    container: str
    account: str
    endpoint: str
    key: str | None = field(repr=False)
    sas_token: str | None = field(repr=False)


def azure_place(options: StorageOptions) -> AzurePlace:
    """Return the container that `options.uri` names, with its account, endpoint and secrets.

    The URI has the form `az://container`, or `abfss://container@account.…` as in Hadoop.

    Raises:
        ConfigurationError: no account is named, or the connection string is malformed.
    """
    # urlsplit would take the container before `@` for a user's name, so container and host are separated here.
    container, at, host = urlsplit(options.uri or "").netloc.rpartition("@")
    if not at:
        container, host = host, ""
    parts = _connection_string(options.azure_connection_string) if options.azure_connection_string else {}
    account = host.partition(".")[0] or options.azure_account_name or parts.get("AccountName")
    if not account:
        raise ConfigurationError(
            f"remote.storage.azure.account.name is missing: it names the storage account of the container {container!r}"
        )
    endpoint = options.azure_endpoint_url or parts.get("BlobEndpoint") or f"https://{account}.blob.core.windows.net"
    token = options.azure_sas_token or parts.get("SharedAccessSignature")
    return AzurePlace(
        container, account, endpoint.rstrip("/"), options.azure_account_key or parts.get("AccountKey"),
        token.removeprefix("?") if token else None,
    )  # fmt: skip


def _connection_string(text: str) -> dict[str, str]:
    """Return the values in an Azure connection string by name.

    Raises:
        ConfigurationError: the text does not consist of pairs of name and value; the message shows no part of it.
    """
    parts = [part.partition("=") for part in text.strip().strip(";").split(";")]
    if not all(name and equals for name, equals, _ in parts):
        raise ConfigurationError(
            "remote.storage.azure.connection.string is no connection string: parts like AccountName=…;AccountKey=…"
        )
    return {name.strip(): value for name, _, value in parts}

"""Names and endpoints of buckets and containers in Google's and Azure's storage, from the options. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions

S3_SCHEMES = ("s3", "s3a")
GOOGLE_SCHEME = "gs"
AZURE_SCHEMES = ("az", "abfs", "abfss", "wasb", "wasbs")
_GOOGLE = "https://storage.googleapis.com"


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
    # urlsplit takes the container before `@` for a user's name, so the pair is taken apart here.
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


def google_endpoint(options: StorageOptions) -> str:
    """Return the URL of Google's storage service, or the URL in `remote.storage.gcs.endpoint.url`."""
    return options.gcs_endpoint_url or _GOOGLE


def cloud_endpoint(options: StorageOptions) -> str | None:
    """Return the URL of the service that has the bucket or container of `options.uri`.

    Return None if the URI is not of Google's or Azure's storage.

    Raises: the errors of `azure_place`.
    """
    scheme = urlsplit(options.uri or "").scheme
    if scheme == GOOGLE_SCHEME:
        return google_endpoint(options)
    return azure_place(options).endpoint if scheme in AZURE_SCHEMES else None


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

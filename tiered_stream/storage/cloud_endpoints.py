"""Names, endpoints and credentials of buckets and containers in object stores, from options. No I/O.

Endpoints and credentials are returned as settings of the Rust crate `object_store`, on which obstore and deltalake are
built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions, StoreAccess
from tiered_stream.options.plugin_layout import place_property
from tiered_stream.options.remote_options import RSM_CONFIG_PREFIX

S3_SCHEMES = ("s3", "s3a")
GOOGLE_SCHEME = "gs"
HDFS_SCHEME = "hdfs"
HDFS_SCHEMES = (HDFS_SCHEME, "viewfs")
AZURE_SCHEMES = ("az", "abfs", "abfss", "wasb", "wasbs")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_ACCESS_POINT = re.compile(r"arn:aws(?:-[a-z-]+)?:s3:(?P<region>[a-z0-9-]+):\d{12}:accesspoint[:/][a-z0-9-]{3,50}")
_EXPRESS = "--x-s3"
_GOOGLE = "https://storage.googleapis.com"
_NO_ACCOUNT = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
"""Service account that sends no credentials; with `skip_signature`, `object_store` would still look for some."""
_AZURE_DOMAIN = "core.windows.net"
_AZURE_HOST = re.compile(r"(?P<name>[^:]+)\.(?:dfs|blob)\.(?P<domain>[a-z0-9.:-]+)")


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Purpose for which a store is used; error messages name its settings and its role.

    `place` is the setting that names the bucket or container. `prefix` is the prefix of the settings for access.
    """

    place: str
    prefix: str
    azure_role: str
    google_role: str
    otherwise: str = ""
    """Words for further settings of the same access, such as ` or the session's fs.azure.*`."""
    may_be_new: bool = False
    """True if a missing folder in HDFS is no error, because it is created with its first file."""


SEGMENTS = StoreUse("option remote.storage.uri", "remote.storage.", "Storage Blob Data Reader", "Storage Object Viewer")
"""Words for segments whose place is named by `remote.storage.uri`."""
TABLES = StoreUse(
    "setting ingest.table", "ingest.storage.", "Storage Blob Data Contributor", "Storage Object User",
    " or in the settings of Spark's session (fs.s3a.*, fs.azure.*, fs.gs.*)", may_be_new=True,
)  # fmt: skip


def segments_use(options: StorageOptions) -> StoreUse:
    """Return the words for errors about the segments' storage, with the names of the settings that the user wrote.

    If the plugin's properties name the place, these are the plugin's properties, and otherwise our options.
    """
    name = place_property(options.layout, options.rsm_config, options.uri)
    prefix = RSM_CONFIG_PREFIX.default
    return replace(SEGMENTS, place=f"setting {prefix}{name}", prefix=f"{prefix}storage.") if name else SEGMENTS


class AzurePlace(NamedTuple):
    """Container, the URL of its account's blob service, and settings of the crate `object_store` with credentials."""

    container: str
    endpoint: str
    config: dict[str, str]

    def __repr__(self) -> str:
        return f"AzurePlace({self.container!r}, {self.endpoint!r})"  # without credentials


def azure_place(options: StorageOptions, use: StoreUse = SEGMENTS) -> AzurePlace:
    """Return the container that `options.uri` names, with its account, endpoint and credentials.

    The URI has the form `az://container`, or `abfss://container@account.…` as in Hadoop. An account key takes
    precedence over a SAS token, and both over credentials of Microsoft Entra ID. Without credentials, Azure's own chain
    is used.

    Raises:
        ConfigurationError: no account is named, or the connection string is malformed.
    """
    container, host = container_and_host(options.uri or "")
    text = options.azure_connection_string
    parts = _connection_string(text, use) if text else {}
    account = host.partition(".")[0] or options.azure_account_name or parts.get("AccountName")
    if not account:
        raise ConfigurationError(
            f"{use.prefix}azure.account.name is missing: it names the storage account of the container {container!r}"
        )
    endpoint = options.azure_endpoint_url or parts.get("BlobEndpoint") or f"https://{blob_host(host or account)}"
    endpoint = endpoint.rstrip("/")
    if key := options.azure_account_key or parts.get("AccountKey"):
        credentials: dict[str, str | None] = {"account_key": key}
    elif token := options.azure_sas_token or parts.get("SharedAccessSignature"):
        credentials = {"sas_key": token.removeprefix("?")}
    else:
        credentials = {
            "client_id": options.azure_client_id,
            "tenant_id": options.azure_tenant_id,
            "authority_host": options.azure_authority_url,
            "client_secret": options.azure_client_secret,
            "federated_token_file": options.azure_token_file,
            "credential_type": "managed_identity" if options.azure_managed_identity else None,
        }
    config = {"account_name": account, "endpoint": endpoint, **credentials}
    return AzurePlace(container, endpoint, {name: value for name, value in config.items() if value})


def bucket_and_path(uri: str) -> tuple[str, str]:
    """Return the bucket or container in a URI, and the path in it without slashes at its ends.

    The ARN of an access point in S3 is in place of the bucket, and has a slash or a colon before the point's name.
    """
    parts = urlsplit(uri)
    bucket, path = parts.netloc, parts.path.strip("/")
    if parts.scheme in S3_SCHEMES and bucket.endswith(":accesspoint"):
        name, _, path = path.partition("/")
        bucket = f"{bucket}/{name}"
    return bucket, path


def check_bucket(name: str, place: str) -> None:
    """Check the name of a bucket, or the ARN of an access point. `place` is the setting that has it, for the error.

    Raises:
        ConfigurationError: the name is malformed, or its kind of bucket or access point cannot be read.
    """
    if name.endswith(_EXPRESS):
        kind = "is a directory bucket (S3 Express One Zone), which cannot be read: name a general purpose bucket"
    elif name.startswith("arn:") and not access_point_region(name):
        kind = (
            "is not the ARN of an access point in one region. ARNs of others (multi-region, Object Lambda, Outposts) "
            "cannot be read: name the bucket, or an access point as arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME"
        )
    elif not name.startswith("arn:") and not _BUCKET.fullmatch(name):
        kind = "is not the name of a bucket"
    else:
        return
    raise ConfigurationError(f"{place}: {name!r} {kind}")


def access_point_region(name: str) -> str | None:
    """Return the region in the ARN of an access point; None: `name` is not such an ARN."""
    match = _ACCESS_POINT.fullmatch(name)
    return match["region"] if match else None


def container_and_host(uri: str) -> tuple[str, str]:
    """Return the container and the host of an Azure URI; the host is empty for `az://container`."""
    # urlsplit would take the container before `@` for a user's name, so container and host are separated here.
    container, at, host = urlsplit(uri).netloc.rpartition("@")
    return (container, host) if at else (host, "")


def blob_host(host: str) -> str:
    """Return the host of the blob service of the account that `host` names: an account, or a host of one service."""
    match = _AZURE_HOST.fullmatch(host)
    if match is None:
        return f"{host.partition('.')[0]}.blob.{_AZURE_DOMAIN}"
    return f"{match['name']}.blob.{match['domain']}"


def google_endpoint(options: StoreAccess) -> str:
    """Return the URL of Google's storage service, or the URL in the option `gcs.endpoint.url`."""
    return options.gcs_endpoint_url or _GOOGLE


def google_config(options: StoreAccess) -> dict[str, str]:
    """Return endpoint and credentials for Google's storage as settings of the crate `object_store`."""
    config = {"base_url": google_endpoint(options)}
    if options.gcs_credentials_json:
        return {**config, "service_account_key": options.gcs_credentials_json}
    if options.gcs_credentials_path:
        return {**config, "application_credentials": options.gcs_credentials_path}
    return {**config, "service_account_key": _NO_ACCOUNT} if options.gcs_anonymous else config


def _connection_string(text: str, use: StoreUse) -> dict[str, str]:
    """Return the values in an Azure connection string by name.

    Raises:
        ConfigurationError: the text does not consist of pairs of name and value; the message shows no part of it.
    """
    parts = [part.partition("=") for part in text.strip().strip(";").split(";")]
    if not all(name and equals for name, equals, _ in parts):
        raise ConfigurationError(
            f"{use.prefix}azure.connection.string is no connection string: parts like AccountName=…;AccountKey=…"
        )
    return {name.strip(): value for name, _, value in parts}

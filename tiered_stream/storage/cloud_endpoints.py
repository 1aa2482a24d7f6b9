"""Names, endpoints and credentials of buckets and containers in object stores, from options. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions, StoreAccess
from tiered_stream.options.plugin_properties import place_property
from tiered_stream.storage.identity.azure_identity import AzureIdentity, azure_identity

S3_SCHEMES = ("s3", "s3a")
GOOGLE_SCHEME = "gs"
HDFS_SCHEME = "hdfs"
HDFS_SCHEMES = (HDFS_SCHEME, "viewfs")
AZURE_SCHEMES = ("az", "abfs", "abfss", "wasb", "wasbs")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_ACCESS_POINT = re.compile(r"arn:aws(?:-[a-z-]+)?:s3:(?P<region>[a-z0-9-]+):\d{12}:accesspoint[:/][a-z0-9-]{3,50}")
_EXPRESS = "--x-s3"
_AWS_HOST = re.compile(
    r"(?:.+\.)?s3(?:express|-accesspoint)?(?:-fips)?[.-](?:dualstack\.)?(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d+)(?:\.vpce)?"
    r"\.(?:amazonaws\.com(?:\.cn)?|amazonaws\.eu)"
)
"""Host of an S3 endpoint of AWS with its region; `.vpce` is in the hosts of interface endpoints."""
_GOOGLE = "https://storage.googleapis.com"
_AZURE_DOMAIN = "core.windows.net"
_EMULATED = "devstoreaccount1"
_EMULATED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Account and key of Azure's emulator, which Microsoft has published."""
_BLOB_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9._~/-]*)?")
_AZURE_HOST = re.compile(r"(?P<name>[^:]+)\.(?:dfs|blob)\.(?P<domain>[a-z0-9.:-]+)")


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Purpose for which a store is used (segments or tables), with the names of its settings and roles for errors.

    `place` is the setting that names the bucket or container. `prefix` is the prefix of the settings for access.
    `azure_role` and `google_role` are the clouds' roles that grant the access.
    """

    place: str
    prefix: str
    azure_role: str
    google_role: str
    otherwise: str = ""
    """Text for messages that names further settings of the same access, such as ` or the session's fs.azure.*`."""
    may_be_new: bool = False
    """True if a missing folder in HDFS is no error, because it is created with its first file."""
    follows_endpoints: bool = True
    """True if the S3 endpoint may come from AWS's configuration.

    It is false for tables, because only Spark's session says where a table is.
    """


SEGMENTS = StoreUse("option remote.storage.uri", "remote.storage.", "Storage Blob Data Reader", "Storage Object Viewer")
"""Purpose of a store with segments whose place the option `remote.storage.uri` names."""
TABLES = StoreUse(
    "setting ingest.table", "ingest.storage.", "Storage Blob Data Contributor", "Storage Object User",
    " or in the settings of Spark's session (fs.s3a.*, fs.azure.*, fs.gs.*)", may_be_new=True, follows_endpoints=False,
)  # fmt: skip


def segments_use(options: StorageOptions) -> StoreUse:
    """Return the `StoreUse` of the segments' storage, with the names of the settings that the user wrote.

    The names are properties of the storage plugin if such a property names the bucket or container. Otherwise, they are
    the options `remote.storage.*`.
    """
    name = place_property(options.layout, options.rsm_config, options.uri)
    prefix = options.plugin_prefix
    return replace(SEGMENTS, place=f"setting {prefix}{name}", prefix=f"{prefix}storage.") if name else SEGMENTS


class AzurePlace(NamedTuple):
    """Container, its account, the URL of the account's blob service, and the identity that authorizes requests.

    `endpoint` is the URL. `names_endpoint` is the name (without its prefix) of the setting that has the URL. It is
    empty if no setting has the URL, so that the URL follows from the account.
    """

    container: str
    account: str
    endpoint: str
    names_endpoint: str
    identity: AzureIdentity


def azure_place(options: StorageOptions, use: StoreUse = SEGMENTS) -> AzurePlace:
    """Return the container that `options.uri` names, with its account, endpoint and identity.

    The URI has the form `az://container`, or `abfss://container@account.…` as in Hadoop. Without credentials in the
    options, the identity is found by Azure's own chain.

    Raises:
        ConfigurationError: no account is named, two settings name different accounts, or the connection string is
            malformed.
    """
    container, host = container_and_host(options.uri or "")
    setting = f"{use.prefix}azure.connection.string"
    parts = _connection_string(options.azure_connection_string or "", setting)
    named = {
        use.place: host.partition(".")[0],
        f"{use.prefix}azure.account.name": options.azure_account_name,
        setting: parts.get("accountname"),
        f"{use.prefix}azure.endpoint.url": _account_of_host(options.azure_endpoint_url or ""),
        f"BlobEndpoint in {setting}": _account_of_host(parts.get("blobendpoint", "")),
    }
    account = _the_account(named) or urlsplit(parts.get("blobendpoint", "")).path.strip("/").partition("/")[0]
    if not account:
        raise ConfigurationError(
            f"{use.prefix}azure.account.name is missing: it names the storage account of the container {container!r}"
        )
    endpoint, names_endpoint = options.azure_endpoint_url, "azure.endpoint.url"
    if endpoint is None:
        endpoint, names_endpoint = _connection_endpoint(parts, account, host, setting), "azure.connection.string"
    if endpoint is None:
        endpoint, names_endpoint = f"https://{blob_host(host or account)}", ""
    key = options.azure_account_key or parts.get("accountkey")
    signature = options.azure_sas_token or parts.get("sharedaccesssignature")
    identity = azure_identity(options, key, signature)
    return AzurePlace(container, account, endpoint.rstrip("/"), names_endpoint, identity)


def bucket_and_path(uri: str) -> tuple[str, str]:
    """Return the bucket or container that a URI names, and the path below it without slashes at its ends.

    In an S3 URI, the ARN of an access point can stand in place of the bucket, with a slash or a colon before the access
    point's name.
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
    """Return the region in the ARN of an access point, or None if `name` is not such an ARN."""
    match = _ACCESS_POINT.fullmatch(name)
    return match["region"] if match else None


def region_of_host(endpoint: str | None) -> str | None:
    """Return the region in the host of an S3 endpoint, or None if the host is not AWS's, or names no region."""
    url = endpoint or ""
    match = _AWS_HOST.fullmatch(urlsplit(url if "://" in url else f"//{url}").hostname or "")
    return match["region"] if match else None


def container_and_host(uri: str) -> tuple[str, str]:
    """Return the container and the host of an Azure URI; the host is empty for `az://container`."""
    # urlsplit would take the container before `@` for a user's name, so container and host are separated here.
    container, at, host = urlsplit(uri).netloc.rpartition("@")
    return (container, host) if at else (host, "")


def blob_host(host: str) -> str:
    """Return the host of a storage account's blob service; `host` is the account, or a host of its other services."""
    match = _AZURE_HOST.fullmatch(host)
    if match is None:
        return f"{host.partition('.')[0]}.blob.{_AZURE_DOMAIN}"
    return f"{match['name']}.blob.{match['domain']}"


def google_endpoint(options: StoreAccess) -> str:
    """Return the URL in the option `gcs.endpoint.url`, or without this option the URL of Google's storage service."""
    return options.gcs_endpoint_url or _GOOGLE


def _the_account(named: Mapping[str, str | None]) -> str:
    """Return the storage account that the settings name, or '' if none names one; `named` has accounts by setting.

    Raises:
        ConfigurationError: two settings name different accounts.
    """
    given = [(setting, account) for setting, account in named.items() if account]
    for setting, account in given[1:]:
        if account != given[0][1]:
            raise ConfigurationError(
                f"{setting} is for the storage account {account}, but {given[0][0]} names the account {given[0][1]}: "
                "set both to the same account"
            )
    return given[0][1] if given else ""


def _account_of_host(endpoint: str) -> str | None:
    """Return the storage account that the host of the URL `endpoint` names, or None if the host is not Azure's own."""
    match = _AZURE_HOST.fullmatch(urlsplit(endpoint).hostname or "")
    return match["name"].partition(".")[0].removesuffix("-secondary") if match else None


def _connection_endpoint(parts: Mapping[str, str], account: str, host: str, setting: str) -> str | None:
    """Return the URL of the blob service that a connection string names, or None if it names none.

    Args:
        parts: values in the connection string, by name.
        account: the storage account.
        host: the host in the container's URI, or empty.
        setting: the setting that has the connection string, for the error.

    Raises:
        ConfigurationError: the connection string and the URI name different hosts.
    """
    if "blobendpoint" in parts:
        return parts["blobendpoint"]
    if "endpointsuffix" not in parts and "defaultendpointsprotocol" not in parts:
        return None
    own, suffix = blob_host(host or account), parts.get("endpointsuffix")
    named = f"{account}.blob.{suffix}" if suffix else own
    if host and named != own:
        raise ConfigurationError(f"{setting} names the service {named}, but the URI names {own}: correct one of them")
    return f"{parts.get('defaultendpointsprotocol', 'https')}://{named}"


def _connection_string(text: str, setting: str) -> dict[str, str]:
    """Return the values in the Azure connection string `text`, by their names in lower case.

    `UseDevelopmentStorage=true` becomes the account, key and endpoint of the emulator. `setting` is the name of the
    setting that has the text, for errors.

    Raises:
        ConfigurationError: the text is not a connection string, or a URL or protocol in it is malformed.
    """
    if not text:
        return {}
    parts = [part.partition("=") for part in text.strip().strip(";").split(";")]
    if not all(name and equals for name, equals, _ in parts):
        raise ConfigurationError(f"{setting} is no connection string: parts like AccountName=…;AccountKey=…")
    values = {name.strip().lower(): value.strip() for name, _, value in parts}
    if values.get("usedevelopmentstorage", "").lower() == "true":
        host = values.get("developmentstorageproxyuri", "http://127.0.0.1").rstrip("/")
        values = {"accountname": _EMULATED, "accountkey": _EMULATED_KEY, "blobendpoint": f"{host}:10000/{_EMULATED}"}
    if not _BLOB_ENDPOINT.fullmatch(values.get("blobendpoint", "https://host")):
        raise ConfigurationError(f"{setting}: BlobEndpoint is no URL of the form https://HOST or https://HOST/PATH")
    if values.get("defaultendpointsprotocol", "https").lower() not in ("http", "https"):
        raise ConfigurationError(f"{setting}: DefaultEndpointsProtocol is neither https nor http")
    return values

"""Hosts to which signed URLs of segments (signed locations, KIP-1248) may lead.

A gateway or broker names signed locations, and an executor that follows a signed location is inside the user's network.
So a signed location must lead to a host of the configured storage, or to a host that the user lists. The host's name
must not resolve to an address that leads only to the executor itself, its network link, or its cloud's metadata
service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from tiered_stream.errors import SignedLocationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES, GOOGLE_SCHEME, S3_SCHEMES, azure_place, bucket_and_path

_MAX_URL = 16 << 10
# Userinfo, fragments, blanks and backslashes are not allowed: two URL parsers could read them differently.
_URL = re.compile(
    r"(https?)://([A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?"
    r"(/[A-Za-z0-9._~!$&'()*+,;=:@/%-]*)(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?"
)
_DOTS = frozenset((".", ".."))
_PORTS = {"http": 80, "https": 443}
_AWS = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9.-]*)\.)??"
    r"s3(?:-accelerate|-fips)?(?:\.dualstack)?(?:[.-](?:[a-z]{2}|eusc)(?:-[a-z]+)+-[0-9]+)?"
    r"\.amazonaws\.(?:com(?:\.cn)?|eu)"
)
"""Form of AWS's S3 host names (https://docs.aws.amazon.com/general/latest/gr/s3.html).

It includes the older names with a hyphen before the region.
"""

_GOOGLE_HOST = "storage.googleapis.com"
_AZURE_ORIGIN = "https://*.blob.core.windows.net:443"

_LOCALHOST = ("127.0.0.1", "::1")
_NAT64 = ip_network("64:ff9b::/96")  # NAT64 (RFC 6052): the last four bytes are an IPv4 address
_SPECIAL = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this host
        # Metadata services without a link-local address: AWS, Google, Oracle (two), Alibaba, Azure.
        "fd00:ec2::/32", "fd20:ce::/32", "fd00:c1::/32", "192.0.0.192/32", "100.100.100.200/32", "168.63.129.16/32",
    )
)  # fmt: skip


class SignedUrl(NamedTuple):
    """Parts of a signed URL that are not secret; the query, which holds the credential, is left out."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        return _format_origin(self.scheme, self.host, self.port)

    def __str__(self) -> str:
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.path}"


def parse_signed_url(url: str) -> SignedUrl:
    """Return the parts of the signed URL `url` without its credential.

    Raises:
        SignedLocationError: `url` is not a URL of http or https with host, path and query alone.
    """
    match = _URL.fullmatch(url) if len(url) <= _MAX_URL else None
    if match is None or not _DOTS.isdisjoint(match[4].split("/")):  # a client resolves dots, and leaves the bucket
        raise SignedLocationError("the signed location is no URL of http or https, of host, path and query alone")
    scheme, host, port, path = match.groups()
    return SignedUrl(scheme, host.lower(), int(port) if port is not None else _PORTS[scheme], path)


@dataclass(frozen=True, slots=True)
class SignedHosts:
    """Hosts to which signed URLs of segments may lead.

    Args:
        origins: allowed hosts as `scheme://host:port`; a host that starts with `*.` stands for all its subdomains.
        aws_bucket: bucket whose S3 host names at AWS are allowed too. Empty: the host names of any bucket. None: no
            host names of AWS.
        google_bucket: bucket whose host names and paths at Google are allowed too. Empty: the host names of any bucket.
            None: no host names of Google.
    """

    origins: tuple[str, ...]
    aws_bucket: str | None = None
    google_bucket: str | None = None

    def check(self, url: SignedUrl) -> None:
        """Check that the URL leads to an allowed host.

        Raises:
            SignedLocationError: the host is not allowed.
        """
        is_listed = url.origin in self.origins or self._by_wildcard(url)
        if not (is_listed or self._is_aws(url) or self._is_google(url)):
            raise SignedLocationError(
                f"{url}: {url.origin} is neither the configured storage nor in remote.signed.location.hosts; nothing "
                "was sent to it. If it is your storage, name it there, or by remote.storage.s3.endpoint.url"
            )

    def check_address(self, host: str, address: str) -> None:
        """Check that `address`, to which the name `host` resolves, may be connected to.

        Raises:
            SignedLocationError: the address is special (see `_is_special`), and `origins` does not list it.
        """
        ip = ip_address(address.partition("%")[0])
        if any(map(_is_special, _embedded_addresses(ip))) and ip not in self._named_addresses():
            raise SignedLocationError(
                f"{host} stands for {address}, a loopback, link-local, metadata or other special address: nothing was "
                "sent to it. If it is your storage, name that address in remote.signed.location.hosts"
            )

    def _by_wildcard(self, url: SignedUrl) -> bool:
        labels = url.host.split(".")
        parents = (".".join(labels[count:]) for count in range(1, len(labels)))
        return any(_format_origin(url.scheme, f"*.{host}", url.port) in self.origins for host in parents)

    def _is_aws(self, url: SignedUrl) -> bool:
        if self.aws_bucket is None or (url.scheme, url.port) != ("https", 443):
            return False
        if self.aws_bucket and url.host.startswith(f"{self.aws_bucket}."):
            service = _AWS.fullmatch(url.host.removeprefix(f"{self.aws_bucket}."))
            return service is not None and service["bucket"] is None
        name = _AWS.fullmatch(url.host)
        if name is None or not self.aws_bucket:
            return name is not None
        # These hosts serve the buckets of all customers, so the path must begin with the bucket.
        return name["bucket"] is None and url.path.startswith(f"/{self.aws_bucket}/")

    def _is_google(self, url: SignedUrl) -> bool:
        if self.google_bucket is None or (url.scheme, url.port) != ("https", 443):
            return False
        if url.host == _GOOGLE_HOST:  # it serves the buckets of all customers
            return not self.google_bucket or url.path.startswith(f"/{self.google_bucket}/")
        bucket = url.host.removesuffix(f".{_GOOGLE_HOST}")
        return bucket != url.host and self.google_bucket in ("", bucket)

    def _named_addresses(self) -> Iterator[IPv4Address | IPv6Address]:
        for origin in self.origins:
            host = (urlsplit(origin).hostname or "").removeprefix("*.")
            for address in _LOCALHOST if host == "localhost" else (host,):
                try:
                    yield ip_address(address)
                except ValueError:  # the host is a name
                    continue


def signed_hosts(options: StorageOptions) -> SignedHosts:
    """Return the hosts to which signed URLs may lead: the user's list, and the host of the storage's endpoint.

    For an S3 endpoint, its subdomain for the bucket is allowed too. For S3 and Google without an endpoint, the bucket's
    host names at AWS or Google are allowed. If the options name no storage, all hosts of AWS's, Google's and Azure's
    object storage are allowed.

    Raises:
        ConfigurationError: the URI is Azure's, and no account is named, or the connection string is malformed.
    """
    uri, listed = urlsplit(options.uri or ""), tuple(_origin_of(url) for url in options.signed_hosts)
    (bucket, _), endpoint = bucket_and_path(options.uri or ""), options.s3_endpoint_url
    if uri.scheme in AZURE_SCHEMES:
        return SignedHosts((*listed, _origin_of(azure_place(options).endpoint)))
    if uri.scheme == GOOGLE_SCHEME:
        own = options.gcs_endpoint_url
        return SignedHosts((*listed, _origin_of(own))) if own else SignedHosts(listed, google_bucket=bucket)
    if endpoint is not None:
        return SignedHosts((*listed, _origin_of(endpoint), _origin_of(endpoint, subdomain=f"{bucket or '*'}.")))
    if uri.scheme in S3_SCHEMES:
        return SignedHosts(listed, aws_bucket=bucket)
    return SignedHosts(listed) if uri.scheme else SignedHosts((*listed, _AZURE_ORIGIN), "", "")


def _origin_of(url: str, subdomain: str = "") -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return _format_origin(
        parts.scheme, f"[{host}]" if ":" in host else subdomain + host, parts.port or _PORTS[parts.scheme]
    )


def _format_origin(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{host}:{port}"


def _embedded_addresses(ip: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """Yield the addresses that packets to `ip` may reach: `ip` itself, or IPv4 addresses in an IPv6 address."""
    if ip.version == 4:
        yield ip
    elif ip.ipv4_mapped:
        yield ip.ipv4_mapped
    elif ip in _NAT64:
        yield IPv4Address(ip.packed[-4:])
    else:
        yield ip
        yield from filter(None, (ip.sixtofour, *(ip.teredo or ())))


def _is_special(ip: IPv4Address | IPv6Address) -> bool:
    """Return whether the address leads only to this machine, its network link, or its cloud's metadata service.

    Multicast and reserved addresses are special, too.
    """
    return (
        ip.is_loopback
        or ip.is_link_local
        or ip.is_multicast
        or ip.is_unspecified
        or ip.is_reserved
        or (isinstance(ip, IPv6Address) and ip.is_site_local)
        or any(ip in network for network in _SPECIAL)
    )

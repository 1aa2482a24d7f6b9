"""Where signed locations may lead, by what the user configured."""

from __future__ import annotations

import pytest

from tiered_stream.errors import SignedLocationError
from tiered_stream.options.parsing import parse_storage_options
from tiered_stream.storage.signed.signed_hosts import SignedHosts, parse_signed_url, signed_hosts

ENDPOINT, URI = "remote.storage.s3.endpoint.url", "remote.storage.uri"
LISTED = "remote.signed.location.hosts"
MINIO = {ENDPOINT: "http://minio:9000", URI: "s3://tier/prefix"}
AWS = {URI: "s3://my.tier/prefix"}
GOOGLE = {URI: "gs://my.tier/prefix"}
AZURE = {URI: "abfss://tier@mine.dfs.core.windows.net/prefix"}


def hosts(given: dict[str, str]) -> SignedHosts:
    return signed_hosts(parse_storage_options(given))


def allowed(given: dict[str, str], url: str) -> bool:
    try:
        hosts(given).check(parse_signed_url(url))
    except SignedLocationError:
        return False
    return True


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (MINIO, "http://minio:9000/tier/k?s"),
        (MINIO, "http://MINIO:9000/tier/k?s"),
        (MINIO, "http://tier.minio:9000/k?s"),
        ({ENDPOINT: "http://minio:9000"}, "http://any.tier.minio:9000/k?s"),
        ({ENDPOINT: "https://minio/"}, "https://minio:443/tier/k?s"),
        ({ENDPOINT: "http://[::1]:9000"}, "http://[::1]:9000/tier/k?s"),
        (AWS, "https://my.tier.s3.amazonaws.com/k?s"),
        (AWS, "https://my.tier.s3.eu-west-1.amazonaws.com/k?s"),
        (AWS, "https://my.tier.s3-us-west-2.amazonaws.com/k?s"),
        (AWS, "https://my.tier.s3.dualstack.us-gov-west-1.amazonaws.com/k?s"),
        (AWS, "https://my.tier.s3-fips.us-east-1.amazonaws.com/k?s"),
        (AWS, "https://my.tier.s3-accelerate.amazonaws.com/k?s"),
        (AWS, "https://my.tier.s3.cn-north-1.amazonaws.com.cn/k?s"),
        (AWS, "https://my.tier.s3.eusc-de-east-1.amazonaws.eu/k?s"),
        (AWS, "https://s3.eu-west-1.amazonaws.com/my.tier/k?s"),
        ({}, "https://any.bucket.s3.eu-west-1.amazonaws.com/k?s"),
        ({}, "https://s3.amazonaws.com/any/k?s"),
        ({}, "https://storage.googleapis.com/any/k?s"),
        ({}, "https://any.storage.googleapis.com/k?s"),
        ({}, "https://any.blob.core.windows.net/container/k?s"),
        (GOOGLE, "https://storage.googleapis.com/my.tier/k?s"),
        (GOOGLE, "https://my.tier.storage.googleapis.com/k?s"),
        ({"remote.storage.gcs.endpoint.url": "http://gcs:4443", **GOOGLE}, "http://gcs:4443/my.tier/k?s"),
        (AZURE, "https://mine.blob.core.windows.net/tier/k?s"),
        ({"remote.storage.azure.endpoint.url": "http://azurite:10000/mine", **AZURE}, "http://azurite:10000/mine/tier/k?s"),
        ({LISTED: "store.example.com"}, "https://store.example.com/k"),
        ({LISTED: "a.example.com, *.example.com:9000"}, "https://x.y.example.com:9000/k"),
        ({LISTED: "http://10.0.0.5:9000", **AWS}, "http://10.0.0.5:9000/k"),
        ({"remote.storage.layout": "aiven", "rsm.config.storage.s3.endpoint.url": "http://minio:9000"}, "http://minio:9000/k"),
    ],
)  # fmt: skip
def test_the_storages_own_hosts_and_listed_ones_are_allowed(given: dict[str, str], url: str) -> None:
    assert allowed(given, url)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (MINIO, "https://minio:9000/tier/k"),
        (MINIO, "http://minio/tier/k"),
        (MINIO, "http://minio:0/tier/k"),
        (MINIO, "http://minio.:9000/tier/k"),
        (MINIO, "http://other.minio:9000/k"),
        (MINIO, "http://minio.example.com:9000/k"),
        (MINIO, "https://tier.s3.eu-west-1.amazonaws.com/k"),
        (AWS, "http://my.tier.s3.eu-west-1.amazonaws.com/k"),
        (AWS, "https://my.tier.s3.eu-west-1.amazonaws.com:8443/k"),
        (AWS, "https://other.s3.eu-west-1.amazonaws.com/k"),
        (AWS, "https://s3.eu-west-1.amazonaws.com/other/k"),
        (AWS, "https://s3.eu-west-1.amazonaws.com/my.tier/../other/k"),
        (AWS, "https://s3.eu-west-1.amazonaws.com/my.tier/./k"),
        (AWS, "https://x.my.tier.s3.eu-west-1.amazonaws.com/k"),
        (AWS, "https://my.tier.s3.eu-west-1.amazonaws.com.example.com/k"),
        (AWS, "https://my.tier.s3-website-us-east-1.amazonaws.com/k"),
        ({}, "https://ec2.eu-west-1.amazonaws.com/k"),
        ({}, "https://xs3.amazonaws.com/k"),
        ({}, "https://169.254.169.254/latest/meta-data"),
        ({}, "http://169.254.169.254/latest/meta-data"),
        ({URI: "file:///tier"}, "https://s3.eu-west-1.amazonaws.com/b/k"),
        (AWS, "https://storage.googleapis.com/my.tier/k"),
        (GOOGLE, "https://storage.googleapis.com/other/k"),
        (GOOGLE, "https://other.storage.googleapis.com/k"),
        (GOOGLE, "https://x.my.tier.storage.googleapis.com/k"),
        (GOOGLE, "http://storage.googleapis.com/my.tier/k"),
        (GOOGLE, "https://my.tier.s3.eu-west-1.amazonaws.com/k"),
        ({"remote.storage.gcs.endpoint.url": "http://gcs:4443", **GOOGLE}, "https://storage.googleapis.com/my.tier/k"),
        (AZURE, "https://other.blob.core.windows.net/tier/k"),
        (AZURE, "https://storage.googleapis.com/tier/k"),
        ({}, "https://blob.core.windows.net/tier/k"),
        ({}, "https://mine.dfs.core.windows.net/tier/k"),
        ({LISTED: "*.example.com"}, "https://example.com/k"),
        ({LISTED: "*.example.com"}, "https://xexample.com/k"),
        ({LISTED: "*.example.com"}, "http://a.example.com/k"),
        ({LISTED: "store.example.com"}, "http://store.example.com:443/k"),
    ],
)  # fmt: skip
def test_no_other_host_scheme_or_port_is_allowed(given: dict[str, str], url: str) -> None:
    assert not allowed(given, url)


SPECIAL = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.192", "::1", "::", "fe80::1", "fe80::1%eth0",
    "fec0::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1",
    "64:ff9b::169.254.169.254", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("address", SPECIAL)
def test_a_name_may_not_stand_for_a_special_address(address: str) -> None:
    with pytest.raises(SignedLocationError, match=r"minio .*remote\.signed\.location\.hosts"):
        hosts(MINIO).check_address("minio", address)


@pytest.mark.parametrize("address", ["10.0.0.5", "52.95.110.1", "fd12::5", "2a05:d018::1", "64:ff9b::52.95.110.1"])
def test_a_name_may_stand_for_any_other_address(address: str) -> None:
    hosts(MINIO).check_address("minio", address)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({ENDPOINT: "http://127.0.0.1:9000"}, "127.0.0.1"),
        ({ENDPOINT: "http://localhost:9000"}, "127.0.0.1"),
        ({ENDPOINT: "http://localhost:9000"}, "::1"),
        ({ENDPOINT: "http://[::1]:9000"}, "::1"),
        ({LISTED: "http://minio:9000,127.0.1.1"}, "127.0.1.1"),
    ],
)
def test_a_special_address_is_allowed_where_it_is_configured(given: dict[str, str], address: str) -> None:
    hosts(given).check_address("minio", address)
    with pytest.raises(SignedLocationError):
        hosts(given).check_address("minio", "169.254.169.254")

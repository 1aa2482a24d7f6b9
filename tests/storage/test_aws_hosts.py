"""Archives in S3 are read at AWS's own hosts: in every partition and region, and by every kind of endpoint."""

from __future__ import annotations

import zlib

import pytest

from tests.archives import COMMITTED, PLAIN, archive_options, consumed, planned, read_all
from tests.golden import golden
from tests.rigs.cloud.aws import ACCOUNT, Aws, Bucket
from tests.rigs.cloud.aws_hosts import GLOBAL

REGION = "eu-south-1"
INTERFACE = f"vpce-1a2b3c4d-5e6f.s3.{REGION}.vpce.amazonaws.com"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A bucket name of the test's own, because a process keeps its clients of a bucket."""
    return f"lake-{zlib.crc32(request.node.name.encode()):x}"


def archive_in(aws: Aws, bucket: Bucket) -> None:
    for key, data in golden(PLAIN).objects():
        aws.put(bucket, key, data)


def pasted(bucket: str, region: str) -> dict[str, str]:
    """Return the properties of the plugin's broker that say where the archive is."""
    return {
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "rsm.config.storage.s3.bucket.name": bucket,
        "rsm.config.storage.s3.region": region,
    }


def read_by_role(aws: Aws, monkeypatch: pytest.MonkeyPatch, region: str, bucket: str, **properties: str) -> set[str]:
    """Read the archive by the properties of the plugin's broker, as the role `reader`. Return the requests' hosts.

    All requests must be signed by the role for the region, and none is refused.
    """
    for variable, value in aws.role("reader", region).environment().items():
        monkeypatch.setenv(variable, value)
    more = {f"rsm.config.storage.s3.{key.replace('_', '.')}": value for key, value in properties.items()}
    options = archive_options(PLAIN, storage=pasted(bucket, region) | more)
    assert read_all(planned(options), options) == consumed(PLAIN, COMMITTED)
    seen = {(each.identity, each.region, each.status) for each in aws.requests}
    assert seen <= {("role/reader", region, status) for status in (200, 206)}
    return {each.host for each in aws.requests}


@pytest.mark.parametrize(
    ("region", "domain"),
    [
        (REGION, "amazonaws.com"),
        ("il-central-1", "amazonaws.com"),
        ("us-east-1", "amazonaws.com"),
        ("eu-west-1", "amazonaws.com"),
        ("us-gov-west-1", "amazonaws.com"),
        ("cn-north-1", "amazonaws.com.cn"),
        ("eusc-de-east-1", "amazonaws.eu"),
    ],
)
def test_an_archive_is_read_at_the_host_of_its_region(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, name: str, region: str, domain: str
) -> None:
    archive_in(aws, aws.bucket(name, region))
    hosts = read_by_role(aws, monkeypatch, region, name)
    assert hosts == {f"{name}.s3.{region}.{domain}"} or (region == GLOBAL and hosts == {f"{name}.s3.{domain}"})


def test_an_archive_in_a_bucket_with_dots_is_read_by_path(aws: Aws, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    archive_in(aws, aws.bucket(f"{name}.dots", REGION))
    assert read_by_role(aws, monkeypatch, REGION, f"{name}.dots") == {f"s3.{REGION}.amazonaws.com"}


@pytest.mark.parametrize(
    ("region", "variable", "host"),
    [
        (REGION, "AWS_USE_DUALSTACK_ENDPOINT", f"s3.dualstack.{REGION}.amazonaws.com"),
        ("us-west-2", "AWS_USE_FIPS_ENDPOINT", "s3-fips.us-west-2.amazonaws.com"),
        ("us-gov-west-1", "AWS_USE_FIPS_ENDPOINT", "s3-fips.us-gov-west-1.amazonaws.com"),
    ],
)
def test_an_archive_is_read_at_the_kind_of_endpoint_that_the_environment_names(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, name: str, region: str, variable: str, host: str
) -> None:
    archive_in(aws, aws.bucket(name, region))
    monkeypatch.setenv(variable, "true")
    assert read_by_role(aws, monkeypatch, region, name) == {f"{name}.{host}"}


@pytest.mark.parametrize("region", [REGION, "us-gov-west-1"])
def test_an_archive_is_read_by_an_access_point(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, name: str, region: str
) -> None:
    bucket = aws.bucket(name, region)
    archive_in(aws, bucket)
    hosts = read_by_role(aws, monkeypatch, region, aws.access_point("tier", bucket))
    assert hosts == {f"tier-{ACCOUNT}.s3-accesspoint.{region}.amazonaws.com"}


@pytest.mark.parametrize("path_style", ["true", "false"])
def test_an_archive_is_read_by_an_interface_endpoint(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, name: str, path_style: str
) -> None:
    archive_in(aws, aws.bucket(name, REGION))
    styled = {"endpoint_url": f"https://bucket.{INTERFACE}", "path_style_access_enabled": path_style}
    hosts = read_by_role(aws, monkeypatch, REGION, name, **styled)
    # boto3 has the bucket in the path of any endpoint that is named
    assert hosts <= {f"bucket.{INTERFACE}", *([] if path_style == "true" else [f"{name}.bucket.{INTERFACE}"])}


@pytest.mark.slow
def test_an_access_point_is_read_by_an_interface_endpoint(aws: Aws, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bucket = aws.bucket(name, REGION)
    archive_in(aws, bucket)
    arn = aws.access_point("tier", bucket)
    hosts = read_by_role(aws, monkeypatch, REGION, arn, endpoint_url=f"https://accesspoint.{INTERFACE}")
    assert hosts == {f"tier-{ACCOUNT}.accesspoint.{INTERFACE}"}

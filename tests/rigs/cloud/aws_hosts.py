"""AWS's host names: the service, region, bucket and kind of endpoint that a name stands for.

https://docs.aws.amazon.com/general/latest/gr/s3.html, https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OLD = (
    "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1", "eu-west-1", "eu-west-2",
    "eu-west-3", "eu-central-1", "eu-north-1", "ap-south-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3",
    "ap-southeast-1", "ap-southeast-2", "us-gov-west-1", "us-gov-east-1", "cn-north-1", "cn-northwest-1",
)  # fmt: skip
"""Regions that opened before March 20, 2019."""
_NEW = (
    "ap-east-1", "me-south-1", "af-south-1", "eu-south-1", "ap-southeast-3", "me-central-1", "eu-central-2",
    "eu-south-2", "ap-south-2", "ap-southeast-4", "il-central-1", "ca-west-1", "mx-central-1", "eusc-de-east-1",
)  # fmt: skip
REGIONS = frozenset((*_OLD, *_NEW))
_FIPS = re.compile(r"us-.*|ca-.*")
"""Regions with FIPS endpoints: https://aws.amazon.com/compliance/fips/."""
_PARTITIONS = {"cn": ("aws-cn", "amazonaws.com.cn"), "eusc": ("aws-eusc", "amazonaws.eu")}
GLOBAL = "us-east-1"
"""Region of the hosts without a region."""

_REGION = r"(?P<region>[a-z]+(?:-[a-z]+)+-\d)"
_NAME = r"(?:(?P<name>[a-z0-9][a-z0-9.-]*)\.)?"
_DOMAIN = r"(?P<domain>amazonaws\.(?:com(?:\.cn)?|eu))"
_FORMS = {
    "s3": rf"{_NAME}(?P<base>s3\.(?P<dual>dualstack\.)?{_REGION}\.{_DOMAIN})",
    "s3 fips": rf"{_NAME}(?P<base>s3-fips\.(?P<dual>dualstack\.)?{_REGION}\.{_DOMAIN})",
    "s3 global": rf"{_NAME}(?P<base>s3\.amazonaws\.com)",
    "s3 access point": rf"(?P<name>[a-z0-9-]+)\.(?P<base>s3-accesspoint\.(?P<dual>dualstack\.)?{_REGION}\.{_DOMAIN})",
    "s3 access point fips": (
        rf"(?P<name>[a-z0-9-]+)\.(?P<base>s3-accesspoint-fips\.(?P<dual>dualstack\.)?{_REGION}\.{_DOMAIN})"
    ),
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/privatelink-interface-endpoints.html
    "s3 interface": rf"{_NAME}bucket\.(?P<base>vpce-[0-9a-z-]+\.s3\.{_REGION}\.vpce\.{_DOMAIN})",
    "s3 access point interface": rf"{_NAME}accesspoint\.(?P<base>vpce-[0-9a-z-]+\.s3\.{_REGION}\.vpce\.{_DOMAIN})",
    # https://docs.aws.amazon.com/general/latest/gr/sts.html
    "sts": rf"(?P<base>sts\.{_REGION}\.{_DOMAIN})",
    "sts fips": rf"(?P<base>sts-fips\.{_REGION}\.{_DOMAIN})",
    "sts global": r"(?P<base>sts\.amazonaws\.com)",
    "sso": rf"(?P<base>portal\.sso\.{_REGION}\.{_DOMAIN})",
}


@dataclass(frozen=True)
class Host:
    """Meaning of a host name.

    Args:
        service: `s3`, `sts` or `sso`.
        kind: `global`, `fips`, `access point`, `interface`, a combination of these, or empty.
        region: region of the endpoint, `GLOBAL` for a host without a region.
        name: bucket or access point in the host name; empty: the path begins with it.
        base: host name without `name`.
    """

    service: str
    kind: str
    region: str
    name: str
    base: str

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Names in the certificate of AWS's endpoint. A wildcard stands for one label, so no bucket with dots fits."""
        inner = [f"{each}.{self.base}" for each in ("bucket", "accesspoint")] if "interface" in self.kind else []
        wild = [f"*.{each}" for each in (self.base, *inner)] if self.service == "s3" else []
        return (self.base, *wild)


def parse_host(name: str) -> Host | None:
    """Return the meaning of a host name, or None: AWS has no such host."""
    for form, pattern in _FORMS.items():
        if match := re.fullmatch(pattern, name):
            found = match.groupdict()
            service, _, kind = form.partition(" ")
            region = found.get("region") or GLOBAL
            ours = region in REGIONS and found.get("domain", "amazonaws.com") == domain_of(region)
            if not ours or ("fips" in kind and not _FIPS.fullmatch(region)):
                return None
            return Host(service, kind, region, found.get("name") or "", found["base"])
    return None


def partition_of(region: str) -> str:
    """Return the partition, as in ARNs."""
    if region.startswith("us-gov-"):
        return "aws-us-gov"
    return _PARTITIONS.get(region.partition("-")[0], ("aws", ""))[0]


def domain_of(region: str) -> str:
    return _PARTITIONS.get(region.partition("-")[0], ("", "amazonaws.com"))[1]


def is_new(region: str) -> bool:
    """Return whether the region opened after March 20, 2019, so that S3 redirects nobody to or from it.

    https://docs.aws.amazon.com/AmazonS3/latest/API/UsingRouting.html
    """
    return region in _NEW

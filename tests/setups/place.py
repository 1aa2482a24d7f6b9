"""A cluster whose topic `orders` is tiered as Aiven's plugin does it, for setups that are wrong in one way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka.admin import ACLOperation

from tests.broker.secure import grant
from tests.doctor.site import Site, site
from tests.reading import tier_segments
from tests.rigs.bench.aiven_tier import KEY_PREFIX, segments_of, write
from tests.rigs.stack.http_front import HttpFront
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.versitygw import VersityGateway
from tests.services import cluster
from tests.setups.refusing_s3 import RefusingS3

TOPIC = "orders"
BUCKET, OTHER_BUCKET = "my-tier", "other-tier"
_SIZES = (40, 50)


@dataclass(frozen=True)
class Place:
    """Where the topic, its brokers and its bucket are."""

    site: Site
    tier: VersityGateway
    """The stack's tier by another S3 service, which heeds regions."""
    folder: Path
    bucket_uri = f"s3://{BUCKET}"

    def settings(self) -> dict[str, str]:
        """The settings of a job in which all is well: the broker's properties pasted, and the place of its table."""
        return {
            "kafka.bootstrap.servers": self.site.stack.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
            "rsm.config.key.prefix": KEY_PREFIX,
            "rsm.config.storage.s3.bucket.name": BUCKET,
            "rsm.config.storage.s3.endpoint.url": self.tier.endpoint,
            "rsm.config.storage.s3.region": REGION,
            "rsm.config.storage.s3.path.style.access.enabled": "true",
            "rsm.config.storage.aws.access.key.id": self.tier.access_key,
            "rsm.config.storage.aws.secret.access.key": self.tier.secret_key,
        }

    @contextmanager
    def refusing(self, *permissions: str) -> Iterator[Mapping[str, str]]:
        """The settings of an endpoint that refuses as AWS does what needs one of these permissions."""
        (port,) = free_ports(1)
        handler = type("Handler", (RefusingS3,), {"missing": permissions})
        with HttpFront(port, self.tier.port, handler):
            yield {"rsm.config.storage.s3.endpoint.url": f"http://127.0.0.1:{port}"}


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """All services run inside it."""
    with cluster(folder / "cluster", kerberos=False) as own, site(folder, own) as running:
        stack = running.stack
        tier_segments(stack, TOPIC, _SIZES)
        bucket = stack.tier_dir.with_name(BUCKET)
        segments = segments_of({**stack.options(), "subscribe": TOPIC})
        assert len(segments) == len(_SIZES)
        for segment in segments:
            write(stack.tier_dir, bucket, segment, None)
        stack.tier_dir.with_name(OTHER_BUCKET).mkdir()
        _allow(running)
        with VersityGateway(folder / "versitygw-tier", stack.folder / "storage") as tier:
            yield Place(running, tier, folder)


def _allow(running: Site) -> None:
    """Alice and Carol may read the topic, and Bob describes it, as the site's other topics."""
    allowed = {"alice": ACLOperation.READ, "bob": ACLOperation.DESCRIBE, "carol": ACLOperation.READ}
    with running.stack.broker.admin() as admin:
        admin.create_acls([acl for user, operation in allowed.items() for acl in grant(user, TOPIC, operation)])

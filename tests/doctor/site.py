"""A cluster, a tier and a lake in which all is well for one user, and much is wrong for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from kafka import TopicPartition
from kafka.admin import ACLOperation
from typer.testing import CliRunner

from tests.broker.certificates import CertificateAuthority
from tests.broker.secure import grant, login_module
from tests.cli.running import words
from tests.reading import tier_segments
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic
from tests.rigs.stack.versitygw import VersityGateway
from tests.services import Cluster
from tiered_stream.cli import app
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC

TIERED, HOLED, CUT, LOCAL = "tiered", "holed", "cut", "local"
"""Topics: all is well; one of its segments is gone from the bucket; its log starts late; it is not tiered."""
LAKE = "lake"
HADOOP_AWS = "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0"


@dataclass(frozen=True)
class Site:
    """Where all of it is. Alice may read; Bob only describes the topics, Carol cannot read the metadata topic."""

    stack: TieredStack
    lake: VersityGateway
    tier_by_lake: VersityGateway
    """The stack's tier by another S3 service, which heeds regions."""
    trust_store: Path
    stranger: Path

    def login(self, user: str, password: str | None = None) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.stack.broker.address("PLAIN"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": login_module("PLAIN", user, password or f"{user}-secret"),
        }

    def tls(self, listener: str, trust_store: Path | None = None) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.stack.broker.address(listener),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": str(trust_store or self.trust_store),
        }

    def settings(self, folder: Path, changes: Mapping[str, str]) -> dict[str, str]:
        """Those of a job in which all is well, but for the changes."""
        return {
            **self.stack.options(),
            "subscribe": TIERED,
            "startingOffsets": "earliest",
            "ingest.table": str(folder / "table"),
            "ingest.checkpointLocation": str(folder / "checkpoint"),
            **changes,
        }

    def lake_conf(self) -> list[str]:
        """Spark's, for tables in the lake."""
        conf = s3a_settings(self.lake.endpoint, self.lake.access_key, self.lake.secret_key)
        return [f"spark.hadoop.{name}={value}" for name, value in conf.items()]


@dataclass(frozen=True)
class Examined:
    """What the command said."""

    code: int
    text: str
    findings: tuple[Mapping[str, str], ...]

    def with_status(self, status: str) -> list[Mapping[str, str]]:
        return [each for each in self.findings if each["status"] == status]


def examined(settings: Mapping[str, str], spark_conf: list[str], *flags: str) -> Examined:
    """`tiered-stream doctor --json` run to its end."""
    conf = [text for each in spark_conf for text in ("--spark-conf", each)]
    ended = CliRunner().invoke(app, ["doctor", "--json", *words(settings), *conf, *flags], catch_exceptions=False)
    report: dict[str, Any] = orjson.loads(ended.stdout)
    assert report["exit_code"] == ended.exit_code
    return Examined(ended.exit_code, ended.output, tuple(report["findings"]))


@contextmanager
def site(folder: Path, cluster: Cluster) -> Iterator[Site]:
    """Fill the cluster, and run the lake and one more endpoint of the tier."""
    stack = cluster.stack
    _fill(stack)
    same_tier = VersityGateway(folder / "versitygw-tier", stack.folder / "storage")
    with VersityGateway(folder / "versitygw", folder / "buckets") as lake, same_tier:
        lake.client().create_bucket(Bucket=LAKE)
        stranger = CertificateAuthority().write(folder / "stranger.pem")
        yield Site(stack, lake, same_tier, cluster.trust_store, stranger)


def _fill(stack: TieredStack) -> None:
    for topic in (TIERED, HOLED, CUT):
        tier_segments(stack, topic, [40, 50])
    create_tiered_topic(stack.broker, LOCAL, config={"remote.storage.enable": "false"})
    next(iter(sorted(stack.tier_dir.glob(f"{HOLED}-0-*/*.log")))).unlink()
    read, describe = ACLOperation.READ, ACLOperation.DESCRIBE
    allowed = [
        *((user, read, topic) for user in ("alice", "carol") for topic in (TIERED, HOLED, CUT, LOCAL)),
        *(("bob", describe, topic) for topic in (TIERED, HOLED, CUT, LOCAL)),
        *((user, read, REMOTE_LOG_METADATA_TOPIC) for user in ("alice", "bob")),
        ("carol", describe, REMOTE_LOG_METADATA_TOPIC),
    ]
    with stack.broker.admin() as admin:
        admin.create_acls([acl for user, operation, topic in allowed for acl in grant(user, topic, operation)])
        admin.delete_records({TopicPartition(CUT, 0): 60})

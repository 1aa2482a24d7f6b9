"""Brokers, buckets and hosts that README and docs name, in the namespaces of `tests/rigs/cloud/`.

The broker asks for a login, and ACLs and S3 give the user and the role only what the README's part "Permissions" lists.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kafka.admin import (
    ACLOperation,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker.certificates import CertificateAuthority
from tests.broker.secure import SCRAM, grant, login_module
from tests.reading import BY_STEP
from tests.rigs.bench.aiven_tier import aiven_objects
from tests.rigs.cloud.aws import Aws, Credentials
from tests.rigs.cloud.aws_hosts import GLOBAL, Host
from tests.rigs.cloud.aws_s3 import S3Request
from tests.rigs.cloud.front import METADATA, PUBLIC, Answer, Front, Request
from tests.rigs.documented.blocks import pages
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.produce import produce_segments
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import BUCKET
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered

OTHER = "s3.example.com"
REGION = "eu-west-1"
INGEST, NEWCOMER, PASSWORD = "ingest", "newcomer", "secret-of-tests"
"""The user with all rights of the README, and a user without READ on `__remote_log_metadata`."""
_LISTENERS = {"LOGIN": ("broker1", 9092), "STRIMZI": ("my-cluster-kafka-bootstrap.kafka", 9093)}
_HOSTS = ("broker1", "broker2", "my-cluster-kafka-bootstrap.kafka", "collector", "gateway.example.com")
_TIMES = ("2026-01-15T00:00:00Z", "2026-11-01T06:00:00Z", "2026-11-10T00:00:00Z", "2026-11-24T12:00:00Z")
_RECORDS = 200
_NOT_JSON = 7


class TwoServices(Aws):
    """AWS, and another S3 service at `OTHER` with one key, as the files in conf have it."""

    def open_other(self) -> None:
        other = copy.copy(self)
        Aws.reset(other)
        other.keys["KEY"] = Credentials("user/other", "aws", "KEY", "SECRET")
        self.other = other

    def address_of(self, host: str) -> str | None:
        return PUBLIC if host == OTHER else super().address_of(host)

    def certificate_names(self, host: str) -> tuple[str, ...]:
        return (OTHER,) if host == OTHER else super().certificate_names(host)

    def answer(self, request: Request, seen: dict[str, str]) -> Answer:
        if request.host != OTHER:
            return super().answer(request, seen)
        return S3Request(self.other, Host("s3", "", GLOBAL, "", OTHER), request, seen).answer()


@dataclass(frozen=True)
class Site:
    """The running site; `trusted` is the PEM file with the authority of the broker's certificate."""

    broker: KafkaBroker
    tier: Path
    trusted: Path

    def login(self, user: str = INGEST) -> str:
        """Return the lines that log a user in."""
        return (
            f"kafka.security.protocol=SASL_SSL\nkafka.ssl.truststore.type=PEM\n"
            f"kafka.ssl.truststore.location={self.trusted}\nkafka.sasl.mechanism=SCRAM-SHA-512\n"
            f"kafka.sasl.jaas.config={login_module('SCRAM-SHA-512', user, PASSWORD)}\n"
        )


@contextmanager
def site(folder: Path, front: Front) -> Iterator[Site]:
    """Start everything, fill the topics, and put their segments into both buckets."""
    with Path("/etc/hosts").open("a") as hosts:
        hosts.writelines(f"127.0.0.1 {name}\n" for name in _HOSTS)
    services = TwoServices(folder / "aws")
    try:
        with front.of(services):
            services.home, services.roles[METADATA] = REGION, INGEST
            services.open_other()
            tier, lake = services.bucket("my-tier", REGION), services.bucket("lake", REGION)
            services.denied = {(f"role/{INGEST}", f"s3:{name}", tier.name) for name in ("PutObject", "DeleteObject")}
            services.denied |= {(f"role/{INGEST}", "s3:GetBucketLocation")}
            other = [services.other.bucket(bucket.name, GLOBAL) for bucket in (tier, lake)]
            with _broker(folder) as running:
                servers, topics = running.broker.bootstrap_servers, "orders,shop.public.orders"
                for key, data in aiven_objects(running.tier, folder / "objects", servers, topics):
                    services.put(tier, key, data)
                    services.other.put(other[0], key, data)
                yield running
    finally:
        services.stop()


@contextmanager
def _broker(folder: Path) -> Iterator[Site]:
    authority = CertificateAuthority()
    store = authority.issue("broker", names=_HOSTS[:3]).write(folder / "broker.pem")
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    for name in _LISTENERS:
        of = f"listener.name.{name.lower()}"
        properties |= {f"{of}.ssl.keystore.type": "PEM", f"{of}.ssl.keystore.location": str(store)}
        properties |= {f"{of}.sasl.enabled.mechanisms": "SCRAM-SHA-512"}
        properties |= {f"{of}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;"}
    storage = folder / "storage"
    storage.mkdir()
    broker = KafkaBroker(
        folder / "broker", storage, listeners=dict.fromkeys(_LISTENERS, "SASL_SSL"), properties=properties,
        ports={name: port for name, (_, port) in _LISTENERS.items()},
        advertised={name: f"{host}:{port}" for name, (host, port) in _LISTENERS.items()},
    )  # fmt: skip
    with broker:
        _fill(broker)
        _authorize(broker)
        yield Site(broker, storage / BUCKET, authority.write(folder / "ca.pem"))


def _authorize(broker: KafkaBroker) -> None:
    """Grant what the README lists."""
    both, metadata = (ACLOperation.READ, ACLOperation.DESCRIBE), "__remote_log_metadata"
    granted = [*grant(INGEST, metadata, *both), *grant(NEWCOMER, metadata, ACLOperation.DESCRIBE)]
    for user in (INGEST, NEWCOMER):
        granted += [*grant(user, "orders", *both), *grant(user, "shop.public.", *both, is_prefix=True)]
    with broker.admin() as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, PASSWORD) for user in (INGEST, NEWCOMER)]
        )
        admin.create_acls(granted)


def _fill(broker: KafkaBroker) -> None:
    """Fill the topics of the pages; the last segment of each partition is the tail."""
    now = int(time.time() * 1000)
    times = [*(int(datetime.fromisoformat(text).timestamp() * 1000) for text in _TIMES), now - 2 * 3600 * 1000]
    create_tiered_topic(broker, "orders", 2, BY_STEP)
    for partition in range(2):
        segments = [[_order(number, time) for number in range(_RECORDS)] for time in times]
        if partition:
            segments[1][_NOT_JSON] = Record(b"a0", b"not JSON", timestamp_ms=times[1])
        produce_segments(broker, "orders", segments, partition)
    create_tiered_topic(broker, "shop.public.orders", 1, BY_STEP)
    produce_segments(broker, "shop.public.orders", [_changes(times[1]), _changes(times[2]), _changes(now)])
    for topic in ("orders", "shop.public.orders"):
        wait_until_tiered(broker, topic)


def _order(number: int, timestamp_ms: int) -> Record:
    value = {"id": number, "name": "tea", "amount": number / 4, "at": "2026-11-01T00:00:00Z"}
    return Record(f"a{number}".encode(), json.dumps(value).encode(), timestamp_ms=timestamp_ms)


def _changes(timestamp_ms: int) -> Sequence[Record]:
    """Return the changes on the page about Debezium, and the insert of another row."""
    (block,) = (each for each in pages()["docs/guides/debezium-json.md"] if each.text.startswith('{"id": 1}'))
    key, *values = block.text.splitlines()
    own = [Record(key.encode(), None if value == "null" else value.encode(), (), timestamp_ms) for value in values]
    second = [text.replace('"id": 1', '"id": 2').encode() for text in (key, values[0])]
    return [*own, Record(second[0], second[1], (), timestamp_ms)]

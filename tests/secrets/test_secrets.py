"""Every credential is a canary; everything that Spark, its workers and a gateway write is searched for them.

All Python processes log at debug level. The JVM does not: there Spark itself logs the settings, and Apache's HTTP
client its headers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority, Identity
from tests.broker.java_stores import key_store, trust_store
from tests.broker.secure import OAUTHBEARER, PLAIN, TOKEN_VALIDATOR, login_module
from tests.broker.token_server import AUDIENCE, TokenServer
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.rigs.stack.broker import JVM_OPTIONS
from tests.rigs.stack.processes import run_logged
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.spark import spark_environment
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.versitygw import VersityGateway
from tests.secrets.canaries import Canaries

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

TOPIC, LAKE = "secrets", "lake"


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def tokens(canaries: Canaries) -> Iterator[TokenServer]:
    """Hands out tokens for a client whose secret is a canary."""
    with TokenServer({"reader": canaries.of("client secret")}) as running:
        yield running


@pytest.fixture
def secured(
    tmp_path: Path, canaries: Canaries, authority: CertificateAuthority, tokens: TokenServer
) -> Iterator[TieredStack]:
    """A stack whose logins are canaries."""
    keys = tokens.keys_url
    users = " ".join(f'user_{user}="{canaries.of(f"password of {user}")}"' for user in ("reader", "gateway"))
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER} required;",
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": TOKEN_VALIDATOR,
        "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN} required {users};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").write(tmp_path / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.write(tmp_path / "trust.pem")),
        "listener.name.sasl.ssl.client.auth": "requested",
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
    stack = TieredStack(
        tmp_path / "stack",
        listeners={"SASL": "SASL_SSL"},
        properties=properties,
        jvm_options=(*JVM_OPTIONS, allowed),
    )
    stack.access_key = stack.s3proxy.access_key = canaries.of("access key id")
    stack.secret_key = stack.s3proxy.secret_key = canaries.of("secret access key")
    with stack:
        tier_segments(stack, TOPIC, [40, 50])
        yield stack


@pytest.fixture
def tables(lake: VersityGateway, canaries: Canaries) -> VersityGateway:
    """Where tables are, by canaries too."""
    lake.stop()
    lake.access_key, lake.secret_key = canaries.of("fs.s3a.access.key"), canaries.of("fs.s3a.secret.key")
    lake.start()
    lake.client().create_bucket(Bucket=LAKE)
    return lake


def login(canaries: Canaries, user: str) -> str:
    return login_module("PLAIN", user, canaries.of(f"password of {user}"))


def certified(canaries: Canaries, authority: CertificateAuthority, what: str) -> Identity:
    """An identity whose key is encrypted."""
    identity = authority.issue(what, password=canaries.of(f"key password of {what}"))
    canaries.pem(f"key of {what}", identity.key)
    return identity


def test_no_secret_is_in_anything_that_is_written(
    tmp_path: Path,
    written: Path,
    report_tokens: Callable[[], set[str]],
    canaries: Canaries,
    authority: CertificateAuthority,
    secured: TieredStack,
    tables: VersityGateway,
    tokens: TokenServer,
) -> None:
    kafka = logging_in(canaries, authority)
    direct = {**secured.options(), **kafka, "kafka.bootstrap.servers": secured.broker.address("SASL")}
    by_token = {**direct, **by_token_and_stores(tmp_path, canaries, authority, tokens)}
    with RunningGateway(written / "gateway", serving(tmp_path, canaries, authority, secured)) as gateway:
        through = {
            **kafka,
            "kafka.bootstrap.servers": gateway.bootstrap_servers,
            "remote.signed.location.hosts": gateway.storage_endpoint,
        }
        given = tmp_path / "given.json"
        given.write_text(json.dumps(asked(tmp_path, canaries, authority, tables, direct, through, by_token)))
        command = [sys.executable, "-m", "tests.secrets.program", str(given), str(written)]
        run_logged("the program", command, written / "spark.log", spark_environment())
        assert gateway.metric("signed_locations_total") > 0
        for path in ("metrics", "health"):
            (written / f"gateway-{path}.txt").write_text(gateway.page(path)[1])
    (written / "gateway" / "gateway.properties").unlink()  # the user's own, as the files beside it
    texts = {path.stem: path.read_text() for path in written.glob("*.txt")}
    failed = {name for name, text in texts.items() if "FAILED" in text}
    assert failed == {name for name in texts if name.startswith("wrong")}, {
        name: texts[name][-3000:] for name in failed
    }
    assert any("tiered_stream" in path.read_text() for path in (written / "events").rglob("*") if path.is_file())
    assert tokens.issued
    canaries.given_out("token", tokens.issued)
    assert report_tokens()
    canaries.given_out("token of reports", report_tokens())
    assert canaries.found_below(written) == {}


def logging_in(canaries: Canaries, authority: CertificateAuthority) -> dict[str, str]:
    """How the reader logs in to Kafka: everything in options."""
    reader = certified(canaries, authority, "reader")
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login(canaries, "reader"),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": authority.certificate,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": reader.key,
        "kafka.ssl.keystore.certificate.chain": reader.certificate,
        "kafka.ssl.key.password": canaries.of("key password of reader"),
        "kafka.ssl.keystore.password": canaries.of("keystore password"),
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
    }


def by_token_and_stores(
    folder: Path, canaries: Canaries, authority: CertificateAuthority, tokens: TokenServer
) -> dict[str, str]:
    """The same by OAUTHBEARER, and with stores of Java; what is empty takes away the PEM texts."""
    store, key = canaries.of("password of the key store"), canaries.of("password of the key in it")
    found = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": client(canaries.of("client secret")),
        "sasl.oauthbearer.token.endpoint.url": tokens.url,
        "ssl.keystore.type": "JKS",
        "ssl.keystore.location": str(key_store(authority.issue("reader"), folder / "key.jks", store, key)),
        "ssl.keystore.password": store,
        "ssl.key.password": key,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": str(trust_store(authority.certificate, folder / "trust.jks", password=store)),
        "ssl.truststore.password": store,
        **dict.fromkeys(("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"), ""),
    }
    return {f"kafka.{name}": value for name, value in found.items()}


def client(secret: str) -> str:
    return f'{OAUTHBEARER} required clientId="reader" clientSecret="{secret}";'


def serving(folder: Path, canaries: Canaries, authority: CertificateAuthority, secured: TieredStack) -> dict[str, str]:
    """The gateway's settings: its own login, and its key for clients."""
    server = certified(canaries, authority, "gateway")
    return {
        **{name: value for name, value in secured.options().items() if name.startswith("remote.")},
        "kafka.bootstrap.servers": secured.broker.address("SASL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(folder / "trust.pem"),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login(canaries, "gateway"),
        "gateway.listener.security.protocol": "SSL",
        "gateway.listener.ssl.keystore.location": str(server.write(folder / "gateway.pem")),
        "gateway.listener.ssl.key.password": canaries.of("key password of gateway"),
    }


def asked(
    folder: Path,
    canaries: Canaries,
    authority: CertificateAuthority,
    tables: VersityGateway,
    direct: dict[str, str],
    through: dict[str, str],
    by_token: dict[str, str],
) -> dict[str, object]:
    """What the program is given: sources, and what is wrong with them in turn."""
    s3a = s3a_settings(tables.endpoint, tables.access_key, tables.secret_key, LAKE)
    other = certified(canaries, authority, "other")
    key_file = folder / "pair.pem"
    key_file.write_text(canaries.pem("private key of a key pair", authority.issue("pair").key))
    pair = "rsm.config.encryption.key.pairs.pair.private.key.file"
    token_endpoint = "kafka.sasl.oauthbearer.token.endpoint.url"
    return {
        "spark": {f"spark.hadoop.{name}": value for name, value in s3a.items()},
        "tables": f"s3a://{LAKE}",
        "sources": {"storage": {**direct, pair: str(key_file)}, "gateway": through, "token": by_token},
        "wrong": {
            "password": {"kafka.sasl.jaas.config": login(canaries, "nobody")},
            "jaas": {"kafka.sasl.jaas.config": f'{PLAIN} required password={canaries.of("malformed login")}"'},
            "key password": {"kafka.ssl.key.password": canaries.of("wrong key password")},
            "client secret": {
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.jaas.config": client(canaries.of("wrong client secret")),
                token_endpoint: by_token[token_endpoint],
            },
            "store password": {
                **dict.fromkeys(("kafka.ssl.keystore.key", "kafka.ssl.keystore.certificate.chain"), ""),
                "kafka.ssl.keystore.type": "JKS",
                "kafka.ssl.keystore.location": by_token["kafka.ssl.keystore.location"],
                "kafka.ssl.keystore.password": canaries.of("wrong password of the key store"),
            },
            "key": {"kafka.ssl.keystore.key": other.key.replace("\n", "\n!")},
            "storage key": {"remote.storage.aws.secret.access.key": canaries.of("wrong secret access key")},
            "storage token": {"remote.storage.aws.session.token": f"{canaries.of('session token')}\n"},
            "endpoint": {
                "remote.storage.s3.endpoint.url": f"http://user:{canaries.of('login in an endpoint')}@127.0.0.1:1"
            },
            "plugin": {"rsm.config.encryption.key.pairs": "pair", "remote.storage.layout": "aiven"},
        },
        "wrong.table": {
            "ingest.storage.aws.access.key.id": canaries.of("wrong ingest.storage key id"),
            "ingest.storage.aws.secret.access.key": canaries.of("wrong ingest.storage secret"),
            "ingest.storage.aws.session.token": canaries.of("wrong ingest.storage token"),
        },
    }

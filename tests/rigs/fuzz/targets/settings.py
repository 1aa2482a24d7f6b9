"""What users write: options, offsets, positions, logins, times, settings files. Several values are one JSON object."""

from __future__ import annotations

import json
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.golden import STORES
from tests.rigs.fuzz.mutation import CHARACTERS, below, number, one, spoiled, spoiled_json, spoiled_text
from tests.rigs.fuzz.target import Target
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.login.key_stores import read_jks
from tiered_stream.broker.login.oauthbearer import token_of
from tiered_stream.broker.login.sasl import parse_jaas
from tiered_stream.delta.settings.ingest_settings import (
    ROUTE,
    check_names,
    table_spec,
    topic_overrides,
)
from tiered_stream.errors import CorruptDataError, TieredStreamError
from tiered_stream.gateway.gateway_settings import GATEWAY_OPTIONS, GatewaySettings
from tiered_stream.options.given_options import OPTIONS, GivenOptions
from tiered_stream.options.offset_json import LastOffsets, offsets_to_json
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.remote_options import ENDING_OFFSETS
from tiered_stream.options.settings_files import parse_assignments, read_settings
from tiered_stream.options.spark_options import ASSIGN, STARTING_OFFSETS_BY_TIMESTAMP
from tiered_stream.options.types import Option
from tiered_stream.replays.times import parse_range
from tiered_stream.replays.topic_settings import connection_config, producer_config

T = TypeVar("T")
NEEDED = {"subscribe": "t", "kafka.bootstrap.servers": "broker:9092", "remote.storage.uri": "s3://bucket/prefix"}
TEXTS = (
    '{"t":{"0":23,"1":-1}}', '{"t":[0,1]}', "earliest", "latest", "true", "false", "128m", "30s", "10", "-1", "s3://b/p",
    "file:///tmp/x", "https://s3.example.com:9000", "AAAAAAAAAAAAAAAAAAAAAQ", "topic-.*", "[a-c]+(?i)x", "auto",
    "aiven",    "19100-19199", "a,b, c", "read_committed", "1718000000000", "error", "/no/such/file.pem", "http://[::1]:9000",
    "http://[", "s3://[x/", "host:9092,[::1]:9092", "SASL_PLAINTEXT", "PLAIN", "OAUTHBEARER", "SSL", "https://u:p@h/",
    'x.PlainLoginModule required username="u" password="p";', "io.aiven.kafka.tieredstorage.RemoteStorageManager",
)  # fmt: skip
CLIENT_NAMES = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "client.id", "client.rack", "request.timeout.ms",
    "fetch.max.bytes", "max.partition.fetch.bytes", "connections.max.idle.ms", "receive.buffer.bytes", "check.crcs",
    "isolation.level", "client.dns.lookup", "ssl.enabled.protocols", "ssl.truststore.location", "ssl.truststore.type",
    "ssl.endpoint.identification.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key", "acks",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.cipher.suites", "sasl.oauthbearer.token.endpoint.url",
    "sasl.login.refresh.window.factor",
    "ssl.truststore.certificates", "bootstrap.servers", "buffer.memory", "compression.type", "linger.ms", "no.such",
)  # fmt: skip
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a \\"b\\" c";',
    '/* of the reader */ a.OAuthBearerLoginModule required // by token\n clientId=a clientSecret="\\101\\n";',
    "org.apache.kafka.common.security.scram.ScramLoginModule required username='u' password='p' tokenauth=\"false\";",
    "com.sun.security.auth.module.Krb5LoginModule optional useKeyTab=true serviceName=kafka;",
)
KEY_STORES = [(STORES / name).read_bytes() for name in ("key.jks", "trust.jks")]
PROPERTIES = "# comment\nkafka.bootstrap.servers = broker:9092\nsubscribe: a,b\\\n  ,c\nremote.storage.uri=s3\\://b/p\nx=\\u00e9\n"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def value(random: Random) -> str:
    way = random.random()
    if way < 0.3:
        return one(random, TEXTS)
    if way < 0.45:
        return str(number(random))
    if way < 0.5:
        return one(random, CHARACTERS) * one(random, (1, 3, 400))
    if way < 0.55:
        return PEM if way < 0.52 else spoiled_text(random, PEM)
    return spoiled_text(random, one(random, TEXTS), TEXTS)


def _some(names: Sequence[str], needed: Mapping[str, str]) -> Callable[[Random], bytes]:
    """Up to four of the options with other values than is usual, beside those that are needed."""

    def make(random: Random) -> bytes:
        given = dict(needed)
        for _ in range(1 + below(random, 4)):
            name = one(random, names)
            if random.random() < 0.05:
                name = spoiled_text(random, name)
            given[name] = value(random)
        if random.random() < 0.05:
            given.pop(one(random, list(given)))
        return json.dumps(given).encode()

    return make


def _given(data: bytes) -> dict[str, str]:
    """What Spark hands over: names and values are texts."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return {str(name): str(each) for name, each in found.items()} if isinstance(found, dict) else {}


def _all(*looks: Callable[[], object]) -> None:
    """Each is tried; raises what the last one was refused with, unless one was not."""
    refused: list[TieredStreamError] = []
    for look in looks:
        try:
            look()
        except TieredStreamError as error:
            refused.append(error)
    if len(refused) == len(looks):
        raise refused[-1]


def options(data: bytes) -> None:
    given = _given(data)
    _all(lambda: parse_options(given, streaming=True), lambda: parse_options(given, streaming=False))


def client_properties(data: bytes) -> None:
    given = _given(data)
    _all(lambda: BrokerConfig.parse(given), lambda: producer_config(given), lambda: connection_config(given))


def ingest_settings(data: bytes) -> None:
    given = _given(data)
    _all(
        lambda: check_names(given),
        lambda: table_spec(given),
        lambda: topic_overrides(given),
        lambda: GivenOptions(given).read(ROUTE),
    )


OFFSETS = {"topic": {"0": 23, "1": -1, "12": -2}, "other": {"7": 9_007_199_254_740_993}}
NOTES = (
    'startingOffsets={"topic":{"0":5}}',
    'ending={"position":"-60000","time":1700000000000,"offsets":{"topic":{"0":50}}}',
)
LOGGED = OFFSETS, {"topic": {"0": 23}, **{note: {} for note in NOTES}}
ASSIGNED = {"topic": [0, 1, 7], "other": [2]}


def offset_json(data: bytes) -> None:
    text = data.decode(errors="replace")

    def there_and_back() -> None:
        position = _read(ENDING_OFFSETS, text)
        assert position is not None and _read(ENDING_OFFSETS, offsets_to_json(position.offsets)) == position

    _all(there_and_back, lambda: _read(STARTING_OFFSETS_BY_TIMESTAMP, text), lambda: _read(ASSIGN, text))


def _read(option: Option[T], text: str) -> T:
    return GivenOptions({option.name: text}).read(option)


def checkpoint_offsets(data: bytes) -> None:
    """Spark reads the JSON of its checkpoint and hands over what it says, whatever that is."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptDataError("Spark reads no JSON") from None
    LastOffsets().from_dict(found)


def key_store(data: bytes) -> None:
    """Without its password nothing but the form is checked."""
    for key in read_jks(data, None).keys:
        with suppress(TieredStreamError):
            key.decrypt("key-secret")


JWT = ".".join(
    urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"RS256"}', b'{"exp":1793600000}', b"x")
)
TOKEN_ANSWERS = [{"access_token": JWT, "expires_in": 60}, {"id_token": "opaque", "expires_in": 1e3}, {"error": "no"}]


def token_answer(data: bytes) -> None:
    _all(*(partial(token_of, "kafka.x", status, data) for status in (200, 401, 503)))


def _texts(texts: Sequence[str], words: Sequence[str] = ()) -> Callable[[Random], bytes]:
    return lambda random: spoiled_text(random, one(random, texts), words).encode(errors="replace")


@cache
def folder() -> Path:
    root = Path("/dev/shm")
    kept = tempfile.TemporaryDirectory(prefix="fuzz-", dir=root if root.is_dir() else None)
    _folders.append(kept)
    return Path(kept.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the interpreter ends


def properties_file(random: Random) -> bytes:
    text = spoiled_text(
        random, PROPERTIES, ("\\u00", "\\uD83D", "\\\n", "!", "= =", "\\u0000", "\r\n", "subscribe=x")
    ).encode()
    return spoiled(random, text) if random.random() < 0.2 else text


def settings_file(data: bytes) -> None:
    path = folder() / "settings.properties"
    path.write_bytes(data)
    read_settings(path)


TIMES = ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00.123456+01:00", "1793491200000", "-90m", "-3h", "2026-W45-1", "0")


def times(data: bytes) -> None:
    first, _, second = data.decode(errors="replace").partition("|")
    _all(lambda: parse_range(first, second or None, 1_793_600_000_000), lambda: parse_assignments([first], "--option"))


TARGETS = (
    Target("options", _some([each.name for each in OPTIONS], NEEDED), options),
    Target(
        "gateway-settings",
        _some([each.name for each in GATEWAY_OPTIONS], {**NEEDED, "gateway.advertised.host": "gateway"}),
        lambda data: GatewaySettings.parse(_given(data)),
    ),
    Target("client-properties", _some(CLIENT_NAMES, {"bootstrap.servers": "broker:9092"}), client_properties),
    Target(
        "ingest-settings",
        _some(
            ("ingest.table", "ingest.lane", "ingest.targetFileSize", "ingest.storage.s3.endpoint.url", "ingest.commit",
             "ingest.storage.aws.access.key.id", "ingest.tableProperty.delta.x", "ingest.dayColumn", "ingest.no.such",
             "ingest.route", "ingest.topic.a.dayColumn"),
            {"ingest.table": "s3a://lake/t"},
        ),
        ingest_settings,
    ),
    Target(
        "jaas",
        _texts(JAAS, ("required", "=", ";", '"', "'", "\\")),
        lambda data: parse_jaas(data.decode(errors="replace")),
    ),
    Target("key-stores", lambda random: spoiled(random, one(random, KEY_STORES)), key_store),
    Target("token-answers", lambda random: spoiled_json(random, one(random, TOKEN_ANSWERS)), token_answer),
    Target("offset-json", lambda random: spoiled_json(random, one(random, (OFFSETS, OFFSETS, ASSIGNED))), offset_json),
    Target("checkpoint-offsets", lambda random: spoiled_json(random, one(random, LOGGED)), checkpoint_offsets),
    Target("properties-files", properties_file, settings_file),
    Target("times", _texts([f"{a}|{b}" for a in TIMES for b in TIMES], TIMES), times),
)  # fmt: skip

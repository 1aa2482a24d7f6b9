"""Ways to set a job up wrongly, each with what every message about it must name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tests.broker.secure import login_module
from tests.setups.place import OTHER_BUCKET, Place
from tests.setups.refusing_s3 import DECRYPT, GET_OBJECT, LIST_BUCKET
from tests.stack.processes import free_ports

Settings = Mapping[str, str]


@dataclass(frozen=True)
class Way:
    """One wrong setup.

    `setup` is a block in which the services behave so, and that gives the settings which replace right ones. Settings
    whose names begin with `removed` are left out. `fix` is in each message about the setup.
    """

    title: str
    shown: str
    """The settings, for the page."""
    setup: Callable[[Place], AbstractContextManager[Settings]]
    fix: str
    removed: tuple[str, ...] = ()
    ends_well: bool = False
    """True: records are read all the same, so warnings name the fix."""
    only_doctor: bool = False
    """True: reads need nothing that is wrong, so only the doctor names it."""


def _given(**settings: str) -> Callable[[Place], AbstractContextManager[Settings]]:
    return lambda place: nullcontext({name.replace("_", "."): value for name, value in settings.items()})


def _from(settings: Callable[[Place], Settings]) -> Callable[[Place], AbstractContextManager[Settings]]:
    return lambda place: nullcontext(settings(place))


def _refusing(*permissions: str, **settings: str) -> Callable[[Place], AbstractContextManager[Settings]]:
    more = {name.replace("_", "."): value for name, value in settings.items()}

    @contextmanager
    def setup(place: Place) -> Iterator[Settings]:
        with place.refusing(*permissions) as endpoint:
            yield {**endpoint, **more}

    return setup


def _own_options(place: Place) -> dict[str, str]:
    """The bucket and the access to it by `remote.storage.*`, in place of the broker's properties."""
    pasted = "rsm.config.storage."
    access = {
        name.replace(pasted, "remote.storage."): value
        for name, value in place.settings().items()
        if name.startswith((f"{pasted}aws.", f"{pasted}s3.")) and not name.endswith("bucket.name")
    }
    return {"remote.storage.uri": place.bucket_uri, **access}


def _mechanism(place: Place) -> Settings:
    module = login_module("SCRAM-SHA-256", "alice", "alice-secret")
    return {**place.site.login("alice"), "kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": module}


def _login_unasked(place: Place) -> Settings:
    return {**place.site.login("alice"), "kafka.bootstrap.servers": place.site.stack.bootstrap_servers}


_PASTED = ("remote.log.storage.", "rsm.")
_KEY = "rsm.config.storage.aws."
_SERVERS = "kafka.bootstrap.servers"
_PROTOCOL = "kafka.security.protocol"

WAYS: dict[str, Way] = {
    "no storage": Way(
        "No storage", "no `rsm.config.*` and no `remote.storage.*`", _given(),
        "remote.storage.uri", _PASTED, ends_well=True,
    ),
    "no layout": Way(
        "No layout", "`remote.storage.uri=s3://my-tier` without `remote.storage.layout`", _from(_own_options),
        "set remote.storage.layout=aiven and rsm.config.key.prefix=kafka/", _PASTED,
    ),
    "wrong layout": Way(
        "Wrong layout", "`remote.storage.layout=local`",
        _from(lambda place: {**_own_options(place), "remote.storage.layout": "local"}),
        "set remote.storage.layout=aiven and rsm.config.key.prefix=kafka/", _PASTED,
    ),
    "wrong prefix": Way(
        "Wrong key prefix", "`rsm.config.key.prefix=other/`", _given(rsm_config_key_prefix="other/"),
        "set rsm.config.key.prefix=kafka/",
    ),
    "missing bucket": Way(
        "Bucket that does not exist", "`rsm.config.storage.s3.bucket.name=my-teir`",
        _given(rsm_config_storage_s3_bucket_name="my-teir"), "correct",
    ),
    "other bucket": Way(
        "Another bucket", "`rsm.config.storage.s3.bucket.name=other-tier`",
        _given(rsm_config_storage_s3_bucket_name=OTHER_BUCKET),
        "set rsm.config.storage.s3.bucket.name and rsm.config.key.prefix",
    ),
    "wrong region": Way(
        "Wrong region", "`rsm.config.storage.s3.region=eu-west-1`", _given(rsm_config_storage_s3_region="eu-west-1"),
        "set rsm.config.storage.s3.region=us-east-1", only_doctor=True,
    ),
    "wrong secret key": Way(
        "Wrong secret access key", f"`{_KEY}secret.access.key`", _given(rsm_config_storage_aws_secret_access_key="no"),
        "secret",
    ),
    "unknown access key": Way(
        "Unknown access key id", f"`{_KEY}access.key.id`", _given(rsm_config_storage_aws_access_key_id="nobody"),
        "access key id",
    ),
    "no s3:GetObject": Way(
        "No `s3:GetObject`", "the identity may list the bucket only", _refusing(GET_OBJECT), "grant s3:GetObject on",
    ),
    "no s3:ListBucket": Way(
        "No `s3:ListBucket`", "the identity may get objects only", _refusing(LIST_BUCKET), "grant s3:ListBucket on",
        only_doctor=True,
    ),
    "no s3:ListBucket, wrong prefix": Way(
        "No `s3:ListBucket`, and a wrong key prefix", "`rsm.config.key.prefix=other/`",
        _refusing(LIST_BUCKET, rsm_config_key_prefix="other/"), "grant s3:ListBucket on",
    ),
    "no kms:Decrypt": Way(
        "No `kms:Decrypt`", "objects are encrypted by a key of KMS", _refusing(DECRYPT), "grant kms:Decrypt on",
    ),
    "no READ on the topic": Way(
        "No READ on the topic", "the user has DESCRIBE only", _from(lambda place: place.site.login("bob")),
        "grant",
    ),
    "no READ on the metadata topic": Way(
        "No READ on `__remote_log_metadata`", "the user has DESCRIBE only",
        _from(lambda place: place.site.login("carol")), "grant READ on", ends_well=True,
    ),
    "wrong topic": Way("Topic that does not exist", "`subscribe=order`", _given(subscribe="order"), "'orders'"),
    "wrong port": Way(
        "Port of the S3 server", f"`{_SERVERS}`",
        _from(lambda place: {_SERVERS: f"127.0.0.1:{place.site.tier_by_lake.port}"}), f"correct the host and port in "
        f"{_SERVERS}",
    ),
    "TLS not used": Way(
        "Listener of TLS, without TLS", f"`{_PROTOCOL}` is not set",
        _from(lambda place: {_SERVERS: place.site.stack.broker.address("TLS")}), f"set {_PROTOCOL} to SSL",
    ),
    "TLS not spoken": Way(
        "Plain listener, with TLS", f"`{_PROTOCOL}=SSL`", _from(lambda place: place.site.tls("PLAINTEXT")),
        f"set {_PROTOCOL} to PLAINTEXT",
    ),
    "unknown authority": Way(
        "Authority that is not trusted", "`kafka.ssl.truststore.location`",
        _from(lambda place: place.site.tls("TLS", place.site.stranger)), "kafka.ssl.truststore.location",
    ),
    "another host's certificate": Way(
        "Certificate of another host", f"`{_SERVERS}`", _from(lambda place: place.site.tls("OTHERNAME")),
        "connect by a name that the certificate has",
    ),
    "wrong password": Way(
        "Wrong password", "`kafka.sasl.jaas.config`", _from(lambda place: place.site.login("alice", "hunter2")),
        "kafka.sasl.",
    ),
    "no login": Way(
        "No login where one is needed", f"`{_PROTOCOL}` is not set",
        _from(lambda place: {_SERVERS: place.site.stack.broker.address("SASL")}),
        f"set {_PROTOCOL} to SASL_PLAINTEXT and kafka.sasl.mechanism to PLAIN",
    ),
    "login not asked for": Way(
        "Login where none is needed", f"`{_PROTOCOL}=SASL_PLAINTEXT`", _from(_login_unasked),
        f"set {_PROTOCOL} to PLAINTEXT",
    ),
    "wrong mechanism": Way(
        "Wrong mechanism", "`kafka.sasl.mechanism=SCRAM-SHA-256`", _from(_mechanism),
        "set kafka.sasl.mechanism to PLAIN",
    ),
    "nobody listens": Way(
        "Port where nobody listens", f"`{_SERVERS}`",
        _from(lambda place: {_SERVERS: f"127.0.0.1:{free_ports(1)[0]}"}), f"({_SERVERS}",
    ),
}  # fmt: skip

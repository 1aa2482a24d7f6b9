"""Ways to set a job up wrongly, each with what every message about it must name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tests.broker.secure import login_module
from tests.rigs.stack.processes import free_ports
from tests.setups.place import OTHER_BUCKET, Place
from tests.setups.refusing_s3 import DECRYPT, GET_OBJECT, LIST_BUCKET

Settings = Mapping[str, str]


@dataclass(frozen=True)
class Way:
    """One wrong setup.

    `setup` is a block in which the services behave so, and that gives the settings which replace right ones. Settings
    whose names begin with `removed` are left out. One of `fixes` is in each message about the setup.
    """

    title: str
    shown: str
    """The settings, for the page."""
    setup: Callable[[Place], AbstractContextManager[Settings]]
    fixes: tuple[str, ...]
    removed: tuple[str, ...] = ()
    only_doctor: bool = False
    """True: reads need nothing that is wrong, so only the doctor names it."""
    unconcerned: tuple[str, ...] = ()
    """Commands that do not need what is wrong."""


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
        "No storage", "no `rsm.config.*` and no `remote.storage.*`", _given(), ("Set it, or copy the brokers'",
        "set remote.storage.uri"), _PASTED, unconcerned=("segments",),
    ),
    "no layout": Way(
        "No layout", "`remote.storage.uri=s3://my-tier` without `remote.storage.layout`", _from(_own_options),
        ("set remote.storage.layout=aiven and rsm.config.key.prefix=kafka/",), _PASTED,
    ),
    "wrong layout": Way(
        "Wrong layout", "`remote.storage.layout=local`",
        _from(lambda place: {**_own_options(place), "remote.storage.layout": "local"}),
        ("set remote.storage.layout=aiven and rsm.config.key.prefix=kafka/",), _PASTED,
    ),
    "wrong prefix": Way(
        "Wrong key prefix", "`rsm.config.key.prefix=other/`", _given(rsm_config_key_prefix="other/"),
        ("set rsm.config.key.prefix=kafka/",),
    ),
    "missing bucket": Way(
        "Bucket that does not exist", "`rsm.config.storage.s3.bucket.name=my-teir`",
        _given(rsm_config_storage_s3_bucket_name="my-teir"),
        ("correct its name, or create the bucket", "correct the bucket's name (setting rsm."),
    ),
    "other bucket": Way(
        "Another bucket", "`rsm.config.storage.s3.bucket.name=other-tier`",
        _given(rsm_config_storage_s3_bucket_name=OTHER_BUCKET),
        ("set rsm.config.storage.s3.bucket.name and rsm.config.key.prefix to what the brokers' own",),
    ),
    "wrong region": Way(
        "Wrong region", "`rsm.config.storage.s3.region=eu-west-1`; the S3 server names its region, and the request is "
        "sent again", _given(rsm_config_storage_s3_region="eu-west-1"),
        ("set rsm.config.storage.s3.region=us-east-1",), only_doctor=True,
    ),
    "wrong secret key": Way(
        "Wrong secret access key", f"`{_KEY}secret.access.key=…`",
        _given(rsm_config_storage_aws_secret_access_key="hunter2"),
        (f"correct {_KEY}secret.access.key", f"correct the secret access key ({_KEY}secret.access.key)"),
    ),
    "unknown access key": Way(
        "Unknown access key id", f"`{_KEY}access.key.id=…`", _given(rsm_config_storage_aws_access_key_id="nobody"),
        (f"correct {_KEY}access.key.id", f"correct the access key id ({_KEY}access.key.id)"),
    ),
    "no s3:GetObject": Way(
        "No `s3:GetObject`", "the identity is authorized to list the bucket only", _refusing(GET_OBJECT),
        ("grant s3:GetObject on",),
    ),
    "no s3:ListBucket": Way(
        "No `s3:ListBucket`", "the identity is authorized to get objects only", _refusing(LIST_BUCKET),
        ("grant s3:ListBucket on",), only_doctor=True,
    ),
    "no s3:ListBucket, wrong prefix": Way(
        "No `s3:ListBucket`, and a wrong key prefix", "`rsm.config.key.prefix=other/`",
        _refusing(LIST_BUCKET, rsm_config_key_prefix="other/"), ("grant s3:ListBucket on",),
    ),
    "no kms:Decrypt": Way(
        "No `kms:Decrypt`", "the objects are encrypted by a key of KMS", _refusing(DECRYPT), ("grant kms:Decrypt on",),
    ),
    "no READ on the topic": Way(
        "No READ on the topic", "the user has DESCRIBE only", _from(lambda place: place.site.login("bob")),
        ("grant READ on the topic", "--operation READ"), unconcerned=("segments",),
    ),
    "no READ on the metadata topic": Way(
        "No READ on `__remote_log_metadata`", "the user has DESCRIBE only",
        _from(lambda place: place.site.login("carol")), ("grant READ on the topic",),
    ),
    "wrong topic": Way(
        "Topic that does not exist", "`subscribe=order`; `lag` takes the topic from the checkpoint",
        _given(subscribe="order"), ("Topics with a similar name: 'orders'",), unconcerned=("lag",),
    ),
    "wrong port": Way(
        "Port of the S3 server", f"`{_SERVERS}=s3.example:9000`",
        _from(lambda place: {_SERVERS: f"127.0.0.1:{place.tier.port}"}),
        (f"correct the host and port in {_SERVERS}",),
    ),
    "TLS not used": Way(
        "Listener with TLS, reader without", f"`{_PROTOCOL}` is not set",
        _from(lambda place: {_SERVERS: place.site.stack.broker.address("TLS")}), (f"set {_PROTOCOL} to SSL",),
    ),
    "TLS not spoken": Way(
        "Reader with TLS, listener without", f"`{_PROTOCOL}=SSL`", _from(lambda place: place.site.tls("PLAINTEXT")),
        ("find out from the cluster's owner which address has SSL",),
    ),
    "unknown authority": Way(
        "Authority that is not trusted", "`kafka.ssl.truststore.location` has another authority",
        _from(lambda place: place.site.tls("TLS", place.site.stranger)),
        ("trust the authority that issued it, if the server's owner", "(for brokers: kafka.ssl.truststore.location)"),
    ),
    "another host's certificate": Way(
        "Certificate of another host", f"`{_SERVERS}` has a name that the certificate lacks",
        _from(lambda place: place.site.tls("OTHERNAME")), ("connect by a name that the certificate has",),
    ),
    "wrong password": Way(
        "Wrong password", "`kafka.sasl.jaas.config` has another password",
        _from(lambda place: place.site.login("alice", "hunter2")),
        ("check kafka.sasl.*", "correct username and password"),
    ),
    "no login": Way(
        "No login where one is needed", f"`{_PROTOCOL}` is not set",
        _from(lambda place: {_SERVERS: place.site.stack.broker.address("PLAIN")}),
        (f"set {_PROTOCOL} to SASL_PLAINTEXT and kafka.sasl.mechanism to PLAIN",),
    ),
    "login not asked for": Way(
        "Login where none is needed", f"`{_PROTOCOL}=SASL_PLAINTEXT`", _from(_login_unasked),
        ("find out from the cluster's owner which address has SASL_PLAINTEXT",),
    ),
    "wrong mechanism": Way(
        "Wrong mechanism", "`kafka.sasl.mechanism=SCRAM-SHA-256`", _from(_mechanism),
        ("find out from the cluster's owner which mechanism your user has",),
    ),
    "nobody listens": Way(
        "Port where nobody listens", f"`{_SERVERS}=broker1:9092`",
        _from(lambda place: {_SERVERS: f"127.0.0.1:{free_ports(1)[0]}"}),
        (f"Correct {_SERVERS}, or start the brokers", "correct the port, or start the server"),
    ),
}  # fmt: skip

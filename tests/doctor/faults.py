"""Faults as they are found in the wild, each planted by settings or folders, and what `doctor` must say of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable, Schema

from tests.delta.committing import planned
from tests.delta.made_batches import plain
from tests.doctor.site import CUT, HADOOP_AWS, HOLED, LAKE, LOCAL, TIERED, Site
from tests.golden import STORES
from tests.rigs.stack.processes import free_ports
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_folder import UploadThreads
from tiered_stream.delta.write.table_writer import TableWriter
from tiered_stream.model import TopicPartition
from tiered_stream.options.offset_json import LastOffsets, Notes, StreamOffsets

S3A_TABLE = {"ingest.table": f"s3a://{LAKE}/orders", "ingest.checkpointLocation": f"s3a://{LAKE}/checkpoints/orders"}


@dataclass(frozen=True)
class Planted:
    """What makes the fault: settings, Spark's, and flags of the command."""

    settings: dict[str, str]
    spark_conf: Sequence[str] = ()
    flags: Sequence[str] = ()


@dataclass(frozen=True)
class Fault:
    """`check` begins the finding's name; `found` and `mend` are said in it. A warning does not change the exit code.

    The check `also` fails because of the same fault.
    """

    plant: Callable[[Site, Path], Planted]
    check: str
    found: str
    mend: str
    status: str = "failed"
    code: int = 1
    also: str = ""


def _settings(**settings: str) -> Callable[[Site, Path], Planted]:
    return lambda _site, _folder: Planted({name.replace("_", "."): value for name, value in settings.items()})


def _as(user: str, password: str | None = None, **settings: str) -> Callable[[Site, Path], Planted]:
    return lambda site, _: Planted({**site.login(user, password), **settings})


def _no_token_endpoint(site: Site, _folder: Path) -> Planted:
    oauthbearer = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="alice" clientSecret="hunter2";',
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{free_ports(1)[0]}/token",
        "sasl.login.retry.backoff.max.ms": "0",
    }
    return Planted({**site.login("alice"), **{f"kafka.{name}": value for name, value in oauthbearer.items()}})


def _no_endpoint(_site: Site, _folder: Path) -> Planted:
    return Planted({"remote.storage.s3.endpoint.url": f"http://127.0.0.1:{free_ports(1)[0]}"})


def _at(listener: str) -> Callable[[Site, Path], Planted]:
    return lambda site, _: Planted({"kafka.bootstrap.servers": site.stack.broker.address(listener)})


def _other_columns(_site: Site, folder: Path) -> Planted:
    fields = [{"name": "offset", "type": "string", "nullable": True, "metadata": {}}]
    DeltaTable.create(str(folder / "table"), Schema.from_json(json.dumps({"type": "struct", "fields": fields})))
    return Planted({})


def _no_bucket(site: Site, _folder: Path) -> Planted:
    return Planted({"ingest.table": "s3a://no-such-lake/orders"}, [HADOOP_AWS, *site.lake_conf()])


def _wrong_lake_secret(site: Site, _folder: Path) -> Planted:
    return Planted(
        {"ingest.table": f"s3a://{LAKE}/orders"},
        [HADOOP_AWS, *site.lake_conf(), "spark.hadoop.fs.s3a.secret.key=hunter2"],
    )


def _landed(site: Site, folder: Path) -> Planted:
    """A table with records that another query has landed, whose checkpoint is lost."""
    files = TableSpec((folder / "table").as_uri())
    create_table(files, table_schema(True, None), {})
    writer = TableWriter(files, 0, UploadThreads())
    writer.add(TopicPartition(TIERED, 0), plain(60, 20))
    commits = TableCommits(planned(files), lambda *_: None)
    commits.commit("an earlier query", 0, writer.finish())
    return Planted({})


def _planned_before(site: Site, folder: Path) -> Planted:
    """The same, and a start that was refused for it; now the offsets are corrected, but not the checkpoint."""
    partition = TopicPartition(TIERED, 0)
    plan = LastOffsets().to_dict(StreamOffsets({partition: 91}, Notes(start={partition: 20})))
    (folder / "checkpoint" / "offsets").mkdir(parents=True)
    (folder / "checkpoint" / "offsets" / "0").write_text("\n".join(["v1", "{}", json.dumps(plan)]))
    _landed(site, folder)
    return Planted({"startingOffsets": json.dumps({TIERED: {"0": 80}})})


def _checkpoint(topic: str, offset: int) -> Callable[[Site, Path], Planted]:
    """One that has committed a micro-batch up to the offset, as Spark writes it."""

    def plant(_: Site, folder: Path) -> Planted:
        for log, lines in {
            "offsets": ["v1", "{}", json.dumps({topic: {"0": offset}})],
            "commits": ["v1", "{}"],
        }.items():
            (folder / "checkpoint" / log).mkdir(parents=True)
            (folder / "checkpoint" / log / "0").write_text("\n".join(lines))
        return Planted({"subscribe": topic})

    return plant


FAULTS: dict[str, Fault] = {
    "a misspelt option": Fault(
        _settings(remote_storage_ury="s3://b"), "settings", "remote.storage.uri", "correct the setting", code=2
    ),
    "a misspelt setting of the job": Fault(
        _settings(ingest_tabel="t"), "settings", "ingest.table", "correct the setting", code=2
    ),
    "a misspelt Kafka property": Fault(
        _settings(kafka_sasl_mechanisn="PLAIN"), "settings", "kafka.sasl.mechanism?", "correct or remove",
        "warning", 0,
    ),
    "an advertised listener out of reach": Fault(
        _at("AWAY"), "advertised listeners", "broker 1 advertises 127.0.0.1:", "advertised.listeners"
    ),
    "a wrong password": Fault(
        _as("alice", "hunter2"), "login", "refused the login", "username and password in kafka.sasl.jaas.config"
    ),
    "a token endpoint that is away": Fault(
        _no_token_endpoint, "login", "the token endpoint was not reached", "path to the token endpoint",
    ),
    "a wrong password of a key store": Fault(
        _settings(kafka_security_protocol="SSL", kafka_ssl_keystore_location=str(STORES / "key.jks"),
                  kafka_ssl_keystore_password="hunter2"),
        "settings", "check kafka.ssl.keystore.password", "correct the setting", code=2,
    ),
    "a setting without effect": Fault(
        _settings(kafka_max_poll_records="5"), "settings", "kafka.max.poll.records has no effect", "correct or remove",
        "warning", 0,
    ),
    "a login where none is asked for": Fault(
        lambda site, _: Planted({**site.login("alice"), "kafka.bootstrap.servers": site.stack.bootstrap_servers,
                                 "kafka.default.api.timeout.ms": "3000"}),
        "login", "the protocol PLAINTEXT, without logins", "the setting that the message names",
    ),
    "an expired certificate": Fault(
        lambda site, _: Planted(site.tls("EXPIREDTLS")), "bootstrap servers", "expired",
        "renew the server's certificate",
    ),
    "a certificate for another host": Fault(
        lambda site, _: Planted(site.tls("OTHERTLS")), "bootstrap servers", "127.0.0.1", "connect by a name"
    ),
    "an unknown authority": Fault(
        lambda site, _: Planted(site.tls("TLS", site.stranger)), "bootstrap servers", "TLS failed",
        "kafka.ssl.truststore.location",
    ),
    "a topic that is missing": Fault(_settings(subscribe="nowhere"), "topics", "'nowhere'", "correct subscribe"),
    "a topic that is not tiered": Fault(
        _settings(subscribe=LOCAL), "tiering of the topics", LOCAL, "remote.storage.enable=true", "warning", 0
    ),
    "no READ on the topic": Fault(_as("bob"), "READ on the topics", TIERED, "--operation READ"),
    "no READ on the metadata topic": Fault(
        _as("carol"), "metadata topic", "__remote_log_metadata", "grant READ on the topic __remote_log_metadata",
        also="locator",
    ),
    "a wrong bucket": Fault(
        _settings(remote_storage_uri="s3://no-such-bucket"), "bucket",
        "no-such-bucket (option remote.storage.uri) does not exist", "as the message says",
    ),
    "a wrong secret key": Fault(
        lambda _site, _: Planted({"remote.storage.aws.secret.access.key": "hunter2"}), "bucket",
        "SignatureDoesNotMatch; correct remote.storage.aws.secret.access.key", "as the message says",
    ),
    "an unknown access key": Fault(
        lambda _site, _: Planted({"remote.storage.aws.access.key.id": "nobody"}), "bucket",
        "correct remote.storage.aws.access.key.id", "as the message says",
    ),
    "an S3 endpoint that is down": Fault(
        _no_endpoint, "storage endpoint", "(option remote.storage.s3.endpoint.url) could not be reached",
        "correct the endpoint",
    ),
    "a wrong prefix": Fault(
        lambda site, _: Planted({"remote.storage.uri": f"s3://{site.stack.bucket}/backup"}), "segment objects",
        "set remote.storage.uri=s3://", "the setting that the message names",
    ),
    "a wrong layout": Fault(
        _settings(remote_storage_layout="aiven"), "segment objects", "set remote.storage.layout=local",
        "the setting that the message names",
    ),
    "a segment that is gone from the bucket": Fault(
        _settings(subscribe=HOLED), "segment objects", "1 other segments can be read", "restore the object"
    ),
    "a table with other columns": Fault(_other_columns, "table ", "has no column", "ALTER TABLE"),
    "no bucket for the table": Fault(
        _no_bucket, "store of the table", "correct its name, or create the bucket", "as the message says"
    ),
    "a wrong secret for the table's bucket": Fault(
        _wrong_lake_secret, "store of the table", "SignatureDoesNotMatch; correct ", "as the message says"
    ),
    "no hadoop-aws": Fault(
        lambda site, _: Planted(S3A_TABLE, site.lake_conf()), "hadoop-aws", "neither in",
        "org.apache.hadoop:hadoop-aws:3.5.0 to spark.jars.packages",
    ),
    "a table with records of a query whose checkpoint is lost": Fault(
        _landed, "records of other queries", f"{TIERED}-0 20 to 80. The query an earlier query landed them",
        'startingOffsets={"' + TIERED + '":{"0":80}}',
    ),
    "a checkpoint with the plan of a start that was refused": Fault(
        _planned_before, "records of other queries", f"{TIERED}-0 20 to 80", "delete the folder of a refused start",
    ),
    "a checkpoint below the log start": Fault(
        _checkpoint(CUT, 20), "offsets of the checkpoint", "are wanted, but it holds 60 to",
        "failOnDataLoss=false",
    ),
    "a checkpoint beyond the log": Fault(
        _checkpoint(TIERED, 5_000), "offsets of the checkpoint", "went back from 5000 to 91", "created again"
    ),
}  # fmt: skip

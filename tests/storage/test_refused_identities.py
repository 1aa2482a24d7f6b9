"""Without an identity, or with a wrong one, every command ends with who refused what, and with the fix."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.docs.identities import SECRETS, keep_refused
from tests.inspection.test_query_checkpoint import write_checkpoint
from tests.rigs.cloud import failures
from tests.rigs.cloud.failures import Failure
from tests.rigs.cloud.front import Cloud
from tests.rigs.cloud.signers import VENDORS, Lake, fill
from tests.rigs.cloud.tiered_orders import TieredOrders
from tests.setups.place import TOPIC
from tests.setups.surfaces import Outcome, SparkProgram, without_ids
from tiered_stream import scan
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.errors import ConfigurationError, StorageAccessError, TableAccessError
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage.identity import access_tokens, google_identity

SLOW = "`credential_process` hangs"


def command(lake: Lake, name: str, *arguments: str) -> str:
    ended = run(name, lake.options(), *arguments)
    assert ended.exit_code, ended.output
    return ended.output


def lag(lake: Lake) -> str:
    checkpoint = write_checkpoint(lake.folder / "checkpoint", 1, f'{{"{TOPIC}":{{"0":10}}}}')
    return command(lake, "lag", "--checkpoint", str(checkpoint))


def replay(lake: Lake) -> str:
    return command(lake, "replay", "--from", "0", "--into", str(lake.folder / "replayed"), "--dry-run")


def query(lake: Lake) -> str:
    rows = 0
    with pytest.raises(StorageAccessError) as raised:
        for batch in scan(lake.options()):
            rows += batch.num_rows
    assert rows == 0
    return str(raised.value)


def table(lake: Lake) -> str:
    with pytest.raises((StorageAccessError, TableAccessError, ConfigurationError)) as raised:
        lake._deltalake()
    return str(raised.value)


SURFACES: Mapping[str, Callable[[Lake], str]] = {
    "scan": query,
    "segments": lambda lake: command(lake, "segments"),
    "plan": lambda lake: command(lake, "plan"),
    "cat": lambda lake: command(lake, "cat"),
    "lag": lag,
    "export": lambda lake: command(lake, "export", "--into", str(lake.folder / "exported.jsonl")),
    "replay --dry-run": replay,
    "verify --storage": lambda lake: command(lake, "verify", "--storage"),
    "doctor": lambda lake: command(lake, "doctor"),
    "table": table,
}


def with_spark(lake: Lake) -> Iterator[tuple[str, Outcome]]:
    """A plain query, the job, and the comparison of a table that has no row, in one Spark session."""
    settings, local = lake.folder / "orders.properties", lake.folder / "local"
    settings.write_text("".join(f"{name}={value}\n" for name, value in lake.options().items()))
    create_table(TableSpec(local.as_uri(), TableStorage()), table_schema(include_headers=False, day_column=None), {})
    with SparkProgram(lake.folder) as spark:
        yield "query", spark.query(settings)
        yield "land", spark.job(settings, lake.folder)
        yield "verify", spark.command("verify", settings, lake.folder, "--table", str(local))


def faults(surface: str, said: str, failure: Failure) -> list[tuple[str, str, str]]:
    assert not SECRETS.search(said), surface
    # deltalake has words of its own for who refused a table, and needs another fix.
    expected = (r"ingest\.storage\.|credentials|correct its|give the pod",) if surface == "table" else failure.names
    return [(surface, each, said) for each in expected if not re.search(each, said)]


def filled(
    vendor: str, cloud: Cloud, orders: TieredOrders, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> tuple[Lake, Failure]:
    for module in (access_tokens, google_identity):  # which report an earlier test's failure for a second
        monkeypatch.setattr(module, "_sources", PerProcess())
    failure = failures.ALL[vendor][name]
    return fill(VENDORS[vendor], cloud, folder, name, monkeypatch, failure.make, orders), failure


def check(
    vendor: str, cloud: Cloud, orders: TieredOrders, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake, failure = filled(vendor, cloud, orders, folder, monkeypatch, name)
    wrong: list[tuple[str, str, str]] = []
    seconds, says = dict[str, float](), ""
    for surface, use in SURFACES.items():
        began = time.monotonic()
        said = " ".join(use(lake).split())
        seconds[surface] = time.monotonic() - began
        says = said if surface == "scan" else says
        wrong += faults(surface, said, failure)
    assert wrong == []
    if "KEEP" in os.environ:
        keep_refused(vendor, name, seconds, without_ids(lake.shown(says)))


def check_with_spark(
    vendor: str, cloud: Cloud, orders: TieredOrders, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake, failure = filled(vendor, cloud, orders, folder, monkeypatch, name)
    wrong: list[tuple[str, str, str]] = []
    seconds = dict[str, float]()
    for surface, ended in with_spark(lake):
        assert ended.status, (surface, ended)
        seconds[surface] = ended.seconds
        wrong += faults(surface, " ".join(ended.says.split()), failure)
    assert wrong == []
    if "KEEP" in os.environ:
        keep_refused(vendor, name, seconds)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == SLOW else []) for name in failures.AWS]
)
def test_who_refused_access_to_s3_is_named(
    aws: Cloud, orders_broker: TieredOrders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check("AWS", aws, orders_broker, tmp_path, monkeypatch, name)


@pytest.mark.parametrize("name", failures.AZURE)
def test_who_refused_access_to_azure_is_named(
    azure_cloud: Cloud, orders_broker: TieredOrders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check("Azure", azure_cloud, orders_broker, tmp_path, monkeypatch, name)


@pytest.mark.parametrize("name", failures.GOOGLE)
def test_who_refused_access_to_google_is_named(
    google_cloud: Cloud, orders_broker: TieredOrders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check("Google", google_cloud, orders_broker, tmp_path, monkeypatch, name)


@pytest.mark.slow
@pytest.mark.starts_spark
@pytest.mark.parametrize("name", failures.AWS)
def test_spark_names_who_refused_access_to_s3(
    aws: Cloud, orders_broker: TieredOrders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check_with_spark("AWS", aws, orders_broker, tmp_path, monkeypatch, name)


@pytest.mark.slow
@pytest.mark.starts_spark
@pytest.mark.parametrize("name", failures.AZURE)
def test_spark_names_who_refused_access_to_azure(
    azure_cloud: Cloud, orders_broker: TieredOrders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check_with_spark("Azure", azure_cloud, orders_broker, tmp_path, monkeypatch, name)


@pytest.mark.slow
@pytest.mark.starts_spark
@pytest.mark.parametrize("name", failures.GOOGLE)
def test_spark_names_who_refused_access_to_google(
    google_cloud: Cloud, orders_broker: TieredOrders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check_with_spark("Google", google_cloud, orders_broker, tmp_path, monkeypatch, name)


def test_brokers_send_nothing_that_s3_refuses_unless_no_storage_is_to_be_read(
    aws: Cloud, orders_broker: TieredOrders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = filled("AWS", aws, orders_broker, tmp_path, monkeypatch, "wrong secret")
    with pytest.raises(StorageAccessError, match="SignatureDoesNotMatch"):
        list(scan(lake.options() | {"remote.fallback": "broker"}))
    rows = sum(batch.num_rows for batch in scan(lake.options() | {"remote.log.locator": "none"}))
    assert rows == orders_broker.records

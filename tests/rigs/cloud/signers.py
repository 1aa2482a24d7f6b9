"""Who signs requests at which host, by the access path of the product and by the origin of the identity.

lake = CLOUDS["AWS"].fill(aws, folder, "keys in the settings")
lake.measure("segments")
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import obstore
import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.archives import PLAIN, archive_options, consumed, planned, read_all
from tests.cli.running import run
from tests.delta.made_batches import ORDERS, plain
from tests.golden import golden
from tests.rigs.cloud.connectors import REGION, Session, in_azure, in_google, in_s3
from tests.rigs.cloud.front import Cloud, Seen
from tests.rigs.cloud.origins import AWS, AZURE, GOOGLE, Given, Origin
from tests.rigs.cloud.tiered_orders import TieredOrders
from tests.rigs.stack.azurite import ACCOUNT
from tests.rigs.stack.spark import ROOT, spark_environment
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, create_table
from tiered_stream.delta.commit.transaction import BatchCommit
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.delta.write.data_folder import UploadThreads
from tiered_stream.delta.write.table_writer import TableWriter
from tiered_stream.errors import TieredStreamError
from tiered_stream.options.given_options import declared
from tiered_stream.options.parsing import StorageOptions, StoreAccess
from tiered_stream.storage.azure import AzureContainer
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.open_store import open_writable

QUICK = ("segments", "uploads", "deltalake", "doctor")
_NAMES = {name: option.name for name, option in declared(StoreAccess).items()}
TOPIC = "s32-appendtime"
"""Topic of the golden archive that is in the buckets."""
Objects = Sequence[tuple[str, bytes]]
"""Objects with their keys."""


@dataclass(frozen=True)
class Vendor:
    """One cloud: the fixture that serves it, the origins of identities, and how a bucket with objects is made.

    `is_storage` says of a host whether it is the storage's. `session` returns what Spark needs for an identity,
    and may write files into a folder.
    """

    fixture: str
    origins: Mapping[str, Origin]
    make: Callable[[Any, str, Objects], str]
    is_storage: Callable[[str], bool]
    session: Callable[[Given, Path], Session]


@dataclass
class Lake:
    """A bucket with the golden archive or with the segments of `orders`, and an identity to read and write it."""

    vendor: Vendor
    cloud: Cloud
    folder: Path
    uri: str
    name: str
    given: Given
    orders: TieredOrders | None = None
    asked: set[str] = field(default_factory=set)
    """Hosts other than the storage's that were asked."""

    def options(self) -> dict[str, str]:
        settings = {_NAMES[name]: value for name, value in self.given.settings.items()}
        region = {"remote.storage.s3.region": REGION} if self.uri.startswith("s3:") else {}
        storage = {"remote.storage.uri": self.uri, **region, **settings}
        if self.orders is not None:
            return self.orders.options(storage)
        return archive_options(PLAIN, {"subscribe": TOPIC}, storage=storage)

    def storage(self) -> TableStorage:
        region = {"s3_region": REGION} if self.uri.startswith("s3:") else {}
        return TableStorage(**region, **self.given.settings)  # type: ignore[arg-type]

    def measure(self, path: str) -> str:
        """Use the access path, and return who signed at which host, or why nobody did."""
        self.cloud.requests.clear()
        try:
            fault = getattr(self, f"_{path.replace('-', '_')}")()
        except TieredStreamError as error:
            fault = str(error)
        return self.shown(self._signed(self.cloud.requests) if not fault else f"refused: {fault}")

    def shown(self, text: str) -> str:
        """Return the text with names in place of what differs from run to run."""
        return text.replace(str(self.folder), "FOLDER").replace(self.name, "lake")

    def _signed(self, requests: Sequence[Seen]) -> str:
        own = [each for each in requests if self.vendor.is_storage(each.host)]
        self.asked |= {each.host for each in requests} - {each.host for each in own}
        refused = [each for each in own if each.status in (400, 401, 403)]
        assert not refused, refused
        return "; ".join(sorted({f"`{each.identity}` at `{each.host}`" for each in own}))

    def _segments(self) -> str:
        options = self.options()
        rows = consumed(PLAIN, "read_committed")
        assert read_all(planned(options), options) == {each: rows[each] for each in rows if each.topic == TOPIC}
        return ""

    def _uploads(self) -> str:
        open_writable(self.storage().at(self.uri), TABLES).put("uploaded", b"data")
        return ""

    def _deltalake(self) -> str:
        files = TableSpec(f"{self.uri}/bronze/orders", self.storage())
        create_table(files, table_schema(include_headers=False, day_column=None), {})
        table = DeltalakeTable(files)
        table.prepare()
        writer = TableWriter(files, 0, UploadThreads())
        writer.add(ORDERS, plain(10, 0))
        written = writer.finish()
        writer.close()
        table.begin().commit(BatchCommit("query", 0, written))
        return ""

    def _doctor(self) -> str:
        ended = run("doctor", self.options())
        failed = [line for line in ended.output.splitlines() if line.startswith("✗")]
        return "" if ended.exit_code == 0 else (failed[0] if failed else ended.output)

    def spark_program(self, module: str, **more: object) -> subprocess.Popen[str]:
        """Start a module with Spark, which gets options, the place of tables, its session, and `more`, as JSON."""
        session = self.vendor.session(self.given, self.folder)
        place = re.sub("^s3:", "s3a:", self.uri)
        own = {"groups": session.groups, "settings": dict(session.settings)}
        asked = {"options": self.options(), "place": place, **own, **more}
        return subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asked)],
            env={**spark_environment(), **session.environment}, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def with_spark(self) -> dict[str, str]:
        """Land the archive with delta-spark, verify the table, and return the cells of both."""
        self.cloud.requests.clear()
        with self.spark_program(__name__) as program, ThreadPoolExecutor() as threads:
            assert program.stdout is not None and program.stdin is not None and program.stderr is not None
            log = threads.submit(program.stderr.read)
            landed = program.stdout.readline().strip()
            commits = [each for each in self.cloud.requests if _is_commit(each)]
            cell = f"refused: {landed}" if landed != "ok" else self._signed(commits)
            self.cloud.requests.clear()
            program.stdin.close()
            verified = program.stdout.readline().strip()
        assert verified, log.result()[-4000:]
        found = {
            "delta-spark": cell,
            "verify": self._signed(self.cloud.requests) if verified == "ok" else f"refused: {verified}",
        }
        return {path: self.shown(each) for path, each in found.items()}


def _is_commit(request: Seen) -> bool:
    """Return whether the request writes to a table's log. Google's connector has names of objects in its bodies."""
    return (request.method == "PUT" and "_delta_log/" in request.path) or request.path.startswith("/upload/")


def fill(
    vendor: Vendor, cloud: Any, folder: Path, origin: str, monkeypatch: pytest.MonkeyPatch, make: Origin | None = None,
    orders: TieredOrders | None = None,
) -> Lake:  # fmt: skip
    """Make a bucket of the origin's own with the archive, or with `orders`, and use the identity in this process.

    `make` makes the identity; None: the vendor has the origin.
    """
    name = f"lake-{zlib.crc32(origin.encode()):x}"
    uri = vendor.make(cloud, name, orders.objects if orders else _archive())
    given = (make or vendor.origins[origin])(cloud, folder)
    given.use(monkeypatch)
    return Lake(vendor, cloud, folder, uri, name, given, orders)


@cache
def _archive() -> Objects:
    folder = golden(PLAIN).bucket
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and f"/{TOPIC}-" in str(path))
    return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files]


def _in_aws(aws: Any, name: str, objects: Objects) -> str:
    aws.home = REGION
    bucket = aws.bucket(name, REGION)
    for key, data in objects:
        aws.put(bucket, key, data)
    return f"s3://{name}"


def _in_azure(azure: Any, name: str, objects: Objects) -> str:
    uri = f"abfss://{name}@{ACCOUNT}.dfs.{azure.domain}"
    if name not in azure.made:
        azure.create_container(name)
        client = AzureContainer(StorageOptions(uri=uri, azure_account_key=azure.key)).connect(60)
        for key, data in objects:
            obstore.put(client, key, data)
        azure.made.add(name)
    return uri


def _in_google(google: Any, name: str, objects: Objects) -> str:
    if name not in google.made:
        google.create_bucket(name)
        for key, data in objects:
            google.upload(name, key, data)
        google.made.add(name)
    return f"gs://{name}"


VENDORS = {
    "AWS": Vendor("aws", AWS, _in_aws, lambda host: ".s3." in host, in_s3),
    "Azure": Vendor("azure_cloud", AZURE, _in_azure, lambda host: ".blob." in host, in_azure),
    "Google": Vendor("google_cloud", GOOGLE, _in_google, lambda host: host.startswith("storage."), in_google),
}


def main(asked: Mapping[str, Any]) -> None:
    """Land and verify, and print `ok` or the error after each; verify once the standard input has ended."""
    from tests.rigs.stack.spark import SHORT_LIVED, spark_session
    from tiered_stream import land, verify

    spark = spark_session("signers", asked["groups"], {**SHORT_LIVED, **asked["settings"]})
    options, place = asked["options"], asked["place"]
    table = f"{place}/bronze/all"

    def landed() -> bool:
        begin("direct").awaitTermination()
        return True

    def begin(lane: str) -> StreamingQuery:
        given = options | {"ingest.commit": "spark"}
        return land(spark, options=given, table=table, checkpoint=f"{place}/checkpoint", lane=lane)

    def verified() -> bool:
        begin("auto").awaitTermination()  # if the direct lane was refused
        return verify(spark, options=options, table=table).equal

    for step in (landed, verified):
        try:
            said = "ok" if step() else "the table differs"
        except Exception as error:  # noqa: BLE001 - the test shows whatever it is
            said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        sys.stdout.write(f"{said.partition(' : ')[0]}\n")  # without the errors of each provider of Java's chain
        sys.stdout.flush()
        sys.stdin.readline()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""`make dist`: what it packs is all that a cluster's workers need."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything, landed
from tests.delta.test_connect import check_client
from tests.dist.packed_environment import pack, unpack, with_python_by_path
from tests.jobs.submitted import jars
from tests.rigs.stack.processes import LONG, ServiceProcess, free_ports, listens
from tests.rigs.stack.spark import DELTA, LOCAL, ROOT, SHORT_LIVED, SPARK_SUBMIT, spark_environment, write_conf
from tests.rigs.stack.spark_cluster import BARE_PATH, SparkCluster

COMPILES_AND_DECODES = """
import pyarrow as pa
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder

proto = 'syntax = "proto3"; message Note { string text = 1; }'
decoder = ProtobufDecoder(compiled_proto({"note.proto": proto}), "Note")
print([each["text"] for each in decoder.decode(pa.array([b"\\n\\x06a note"], pa.binary())).column.to_pylist()])
"""

CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It, unpacked."""
    return unpack(packed, tmp_path_factory.mktemp("environment"))


def test_the_environment_has_the_compiled_decoder_and_nothing_that_tasks_do_not_run(packed: Path) -> None:
    with tarfile.open(packed) as archive:
        files = {each.name: each.size for each in archive.getmembers()}
    assert [name for name in files if "/kernel_cache/" in name and name.endswith(".nbc")]
    assert [name for name in files if "/botocore/data/s3/" in name]
    unneeded = (
        "/pyspark/", "pyvenv.cfg", "/pytest/", "/mypy/", "/grpc/", "/setuptools/", "/polars/", "/tests/",
        "arrow_flight", "/botocore/data/ec2/",
    )  # fmt: skip
    assert [name for name in files if any(each in name for each in unneeded)] == []
    assert sum(files.values()) < 800e6


def test_workers_with_nothing_of_ours_read_and_land_by_both_lanes(packed: Path, tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "cluster", bare=True) as cluster:
        submitted = submit(cluster.master, packed, tmp_path)
    found = json.loads((tmp_path / "found.json").read_text()) if submitted == 0 else {}
    assert found == {"equal": True, "read": everything(ODD).num_rows}, (tmp_path / "job.log").read_text()[-8000:]
    for lane in ("direct", "spark"):
        assert landed(tmp_path / lane).equals(everything(ODD))


def submit(master: str, packed: Path, folder: Path) -> int:
    """The exit status."""
    spark = {**LOCAL, **DELTA, **SHORT_LIVED, **jars("delta"), "spark.master": master}
    spark |= {"spark.driver.memory": "1g", "spark.executor.memory": "600m"}
    write_conf(folder / "spark.conf", spark)
    command = [SPARK_SUBMIT, "--properties-file", folder / "spark.conf", "--archives", f"{packed}#environment"]
    with (folder / "job.log").open("wb") as log:
        return subprocess.run(
            [*map(str, command), str(ROOT / "tests" / "dist" / "packed_driver.py"), str(folder)],
            cwd=folder, env=with_python_by_path(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=LONG,
            check=False,
        ).returncode  # fmt: skip


def test_a_worker_compiles_a_schema_of_protobuf_and_decodes_by_it(environment: Path) -> None:
    done = subprocess.run(
        [environment / "bin" / "python", "-c", COMPILES_AND_DECODES],
        env={"PATH": BARE_PATH}, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == ("['a note']", 0), done.stderr


def test_a_client_of_a_connect_server_with_nothing_but_the_environment(environment: Path, tmp_path: Path) -> None:
    with connect_server(tmp_path, environment / "bin" / "python") as address:
        check_client(tmp_path, address)


@contextmanager
def connect_server(folder: Path, python: Path) -> Iterator[str]:
    """One that knows of no Python but this; its address."""
    (port,) = free_ports(1)
    spark = {**LOCAL, **DELTA, **SHORT_LIVED, **jars("delta"), "spark.connect.grpc.binding.address": "127.0.0.1"}
    spark["spark.connect.grpc.binding.port"] = str(port)
    write_conf(folder / "connect.conf", spark)
    own = {"PATH": BARE_PATH, "PYSPARK_PYTHON": str(python)}
    own |= {name: value for name, value in spark_environment().items() if name in ("SPARK_HOME", "JAVA_HOME")}
    command = ["env", "-i", *(f"{name}={value}" for name, value in own.items()), str(SPARK_SUBMIT)]
    command += ["--properties-file", str(folder / "connect.conf"), "--class", CONNECT_SERVER]

    server = ServiceProcess("Spark Connect server", command, folder / "connect.log")
    server.start(lambda: listens(port))
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.stop(grace=10)

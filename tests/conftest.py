"""Fixtures that every test may ask for.

Tests that start a service have the marker `stack`, by which `make test-unit` leaves them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kerberos.secured_hdfs import SecuredHdfs
    from tests.replay.topics import ReplayedTopics
    from tests.stack.azurite import Azurite
    from tests.stack.fake_gcs import FakeGcs
    from tests.stack.hdfs import Hdfs
    from tests.stack.tiered_stack import TieredStack
    from tests.stack.versitygw import VersityGateway

SERVICES = {"stack", "spark", "lake", "azurite", "fake_gcs", "hdfs", "secured_hdfs"}

# A run of CI says something of the commit, not of what was drawn; everyone else's looks further each time.
settings.register_profile(
    "slow machines too", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("slow machines too")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses a service's fixture."""
    for item in items:
        if SERVICES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.stack)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredStack]:
    """Broker and S3 endpoint for the whole session; tests keep apart by topic names (`topic`)."""
    from tests.stack.tiered_stack import TieredStack

    with TieredStack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="session")
def topics(stack: TieredStack) -> ReplayedTopics:
    """Topics of every kind that a replay and a verification read."""
    from tests.replay.topics import fill_topics

    return fill_topics(stack, seed=1)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark for the whole session, with Delta, Spark's own `kafka` source and `s3a`."""
    from tests.stack.spark import SHORT_LIVED, spark_session

    session = spark_session("tiered_stream tests", ("delta", "spark-kafka", "spark-avro", "s3a"), SHORT_LIVED)
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[VersityGateway]:
    """An S3 endpoint of the test's own, with conditional puts."""
    from tests.stack.versitygw import VersityGateway, why_no_versitygw

    if missing := why_no_versitygw():
        pytest.skip(missing)
    gateway = VersityGateway(tmp_path / "versitygw", tmp_path / "lake")
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azure Blob Storage's emulator, with the container `contract`."""
    from tests.stack.azurite import Azurite, why_no_azurite

    if missing := why_no_azurite():
        pytest.skip(missing)
    server = Azurite(tmp_path_factory.mktemp("azurite"))
    try:
        server.start()
        server.create_container("contract")
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    """A stand-in for Google Cloud Storage, with the bucket `contract`."""
    from tests.stack.fake_gcs import FakeGcs, why_no_fake_gcs

    if missing := why_no_fake_gcs():
        pytest.skip(missing)
    server = FakeGcs(tmp_path_factory.mktemp("fake-gcs"))
    try:
        server.start()
        server.create_bucket("contract")
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """HDFS with one data node; tests keep apart by folders."""
    from tests.stack.hdfs import Hdfs

    server = Hdfs(tmp_path_factory.mktemp("hdfs"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def secured_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredHdfs]:
    """HDFS that asks for a Kerberos login, and its KDC; tests keep apart by folders."""
    from tests.kerberos.kdc import why_no_kerberos
    from tests.kerberos.secured_hdfs import started

    if missing := why_no_kerberos():
        pytest.skip(missing)
    with started(tmp_path_factory.mktemp("secured-hdfs")) as server:
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; the topic is not created."""
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name)[:200].strip("-")

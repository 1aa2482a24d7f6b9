"""Fixtures that every test may ask for.

Tests that start a service have the marker `stack`, by which `make test-unit` leaves them out.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.depth import DEEP, EXAMPLES, examples, left_out
from tests.rigs.cloud.namespace import INSIDE, CloudTests, is_inside, why_not_inside
from tests.rigs.stack.shared import ServicesOfRun, folder_of_run, shared
from tests.scheduling import Scheduling, write_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.delta.clouds import Cloud
    from tests.kerberos.secured_hdfs import SecuredHdfs
    from tests.replays.topics import ReplayedTopics
    from tests.rigs.cloud.aws import Aws
    from tests.rigs.cloud.azure import Azure
    from tests.rigs.cloud.front import Front
    from tests.rigs.cloud.google import Google
    from tests.rigs.stack.azurite import Azurite
    from tests.rigs.stack.fake_gcs import FakeGcs
    from tests.rigs.stack.hdfs import Hdfs
    from tests.rigs.stack.s3proxy import S3Proxy
    from tests.rigs.stack.tiered_stack import TieredStack
    from tests.rigs.stack.versitygw import VersityGateway
    from tests.services import Cluster

SERVICES = {
    "cluster",
    "restarted_stack",
    "s3proxy",
    "spark",
    "lake",
    "azurite",
    "fake_gcs",
    "hdfs",
    "secured_hdfs",
    *INSIDE,
}

# A run of CI says something of the commit, not of what was drawn; everyone else's looks further each time.
settings.register_profile(
    "deep" if DEEP else "quick",
    max_examples=examples(EXAMPLES),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("deep" if DEEP else "quick")

_COSTLY = {"stack", "costly"}
_OF_RUN = pytest.StashKey[ServicesOfRun]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--few-cases", action="store_true", help="take two thirds of the cases of costly tests for slow")
    parser.addoption("--slow-part", metavar="N/M", help="run the N-th of M equal parts of the slow tests, from 1 on")
    parser.addoption("--order", metavar="SEED", help="run files and tests in the random order that a seed gives")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CloudTests())
    if not hasattr(config, "workerinput"):
        config.stash[_OF_RUN] = ServicesOfRun()
        config.stash[_OF_RUN].__enter__()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _OF_RUN in config.stash:
        config.stash[_OF_RUN].__exit__(None, None, None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test that uses a service, and in a deep run as slow every test that draws examples."""
    for item in items:
        if SERVICES & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("starts_spark"):
            item.add_marker(pytest.mark.stack)
        if is_inside(item) and (missing := why_not_inside(item)):
            item.add_marker(pytest.mark.skip(reason=missing))
        if DEEP and (item.get_closest_marker("drawn") or is_hypothesis_test(getattr(item, "obj", None))):
            item.add_marker(pytest.mark.slow)
    if config.getoption("few_cases"):
        marks = [{mark.name for mark in item.iter_markers()} for item in items]
        quick = [item for item, names in zip(items, marks, strict=True) if names & _COSTLY and "slow" not in names]
        for position in left_out((item.nodeid.partition("[")[0], _values(item)) for item in quick):
            quick[position].add_marker(pytest.mark.slow)
    if part := config.getoption("slow_part"):
        number, parts = map(int, part.split("/"))
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = slow[number - 1 :: parts]
    if seed := config.getoption("order"):
        random.Random(seed).shuffle(items)  # pytest puts tests that share a fixture's parameter together again


def _values(item: pytest.Item) -> dict[str, int]:
    return item.callspec.indices if hasattr(item, "callspec") else {}


gc.disable()  # until the tests are collected


@pytest.hookimpl(tryfirst=True)  # before xdist's own, after which the scheduler begins
def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the scheduler the tests' groups.

    Keep the garbage collector from the hundred thousands of objects of modules and tests, which all stay.
    """
    if worker := getattr(session.config, "workerinput", None):
        write_groups(session.items, worker["workerid"], folder_of_run() / "groups")
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries complain of what is left when the process ends
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling | None:
    if config.getoption("dist") != "loadscope":
        return None
    return Scheduling(config, log, folder_of_run() / "groups", longest_first=not config.getoption("order"))


@pytest.fixture(autouse=True)
def _level_of_own_logger() -> Iterator[None]:
    """Commands let the package log at INFO, which would show lines in tests that expect none."""
    own = logging.getLogger("tiered_stream")
    level = own.level
    yield
    own.setLevel(level)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The broker with a listener for each way to log in, and its tier's endpoint; tests keep apart by topic names."""
    from tests import services

    return shared(services.cluster)


@pytest.fixture(scope="session")
def stack(cluster: Cluster) -> TieredStack:
    """Broker and S3 endpoint for the whole run; tests keep apart by topic names (`topic`)."""
    return cluster.stack


@pytest.fixture(scope="session")
def restarted_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredStack]:
    """Broker and S3 endpoint of this process, for tests that stop and start them."""
    from tests.rigs.stack.tiered_stack import TieredStack

    with TieredStack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="session")
def s3proxy() -> S3Proxy:
    """An S3 endpoint of the run; its buckets are folders in `base_dir`."""
    from tests import services

    return shared(services.s3proxy)


@pytest.fixture(scope="session")
def topics(cluster: Cluster) -> ReplayedTopics:
    """Topics of every kind that a replay and a verification read."""
    from tests import services

    return shared(services.replayed_topics)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark for the whole session, with Delta, Spark's own `kafka` source and `s3a`."""
    from tests.rigs.stack.spark import FEW_ROWS, SHORT_LIVED, spark_session

    groups = ("delta", "spark-kafka", "spark-avro", "s3a")
    session = spark_session("tiered_stream tests", groups, {**SHORT_LIVED, **FEW_ROWS})
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[VersityGateway]:
    """An S3 endpoint of the test's own, with conditional puts."""
    from tests.rigs.stack.versitygw import VersityGateway, why_no_versitygw

    if missing := why_no_versitygw():
        pytest.skip(missing)
    with VersityGateway(tmp_path / "versitygw", tmp_path / "lake") as gateway:
        yield gateway


@pytest.fixture(scope="session")
def azurite() -> Azurite:
    """Azure Blob Storage's emulator, with the container `contract`."""
    from tests import services
    from tests.rigs.stack.azurite import why_no_azurite

    if missing := why_no_azurite():
        pytest.skip(missing)
    return shared(services.azurite)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.stack) for name in ("azurite", "fake_gcs")])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """Each emulator of Azure's and Google's storage in turn."""
    from tests.delta.clouds import azure, google

    server = request.getfixturevalue(request.param)
    return azure(server) if request.param == "azurite" else google(server)


@pytest.fixture(scope="session")
def fake_gcs() -> FakeGcs:
    """A stand-in for Google Cloud Storage, with the bucket `contract`."""
    from tests import services
    from tests.rigs.stack.fake_gcs import why_no_fake_gcs

    if missing := why_no_fake_gcs():
        pytest.skip(missing)
    return shared(services.fake_gcs)


@pytest.fixture(scope="session")
def hdfs() -> Hdfs:
    """HDFS with one data node; tests keep apart by folders."""
    from tests import services

    return shared(services.hdfs)


@pytest.fixture(scope="session")
def secured_hdfs() -> SecuredHdfs:
    """HDFS that asks for a Kerberos login, and its KDC; tests keep apart by folders."""
    from tests import services
    from tests.kerberos.kdc import why_no_kerberos

    if missing := why_no_kerberos():
        pytest.skip(missing)
    return shared(services.secured_hdfs)


@pytest.fixture(scope="session")
def cloud_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Servers of the namespaces for the hosts of one cloud at a time."""
    from tests.rigs.cloud.front import ADDRESSES, Front
    from tests.rigs.cloud.network import set_up

    front = Front(set_up(tmp_path_factory.mktemp("mounted"), ADDRESSES))
    yield front
    front.stop()


@pytest.fixture(scope="session")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """A cloud of each kind, started at its first use."""

    @cache
    def started(kind: type[Any]) -> Any:
        running = kind(tmp_path_factory.mktemp(kind.__name__.lower()))
        ending.callback(running.stop)
        return running

    with ExitStack() as ending:
        yield started


@pytest.fixture
def aws(cloud_front: Front, clouds: Callable[..., Aws]) -> Iterator[Aws]:
    """AWS at its own host names, without buckets and identities; the test runs in namespaces (`tests/rigs/cloud/`)."""
    from tests.rigs.cloud.aws import Aws

    with cloud_front.of(running := clouds(Aws)):
        yield running


@pytest.fixture
def azure_cloud(cloud_front: Front, clouds: Callable[..., Azure]) -> Iterator[Azure]:
    """Azure at its own host names, without identities; the test runs in namespaces (`tests/rigs/cloud/`)."""
    from tests.rigs.cloud.azure import Azure

    with cloud_front.of(running := clouds(Azure)):
        yield running


@pytest.fixture
def google_cloud(cloud_front: Front, clouds: Callable[..., Google]) -> Iterator[Google]:
    """Google Cloud at its own host names, without identities; the test runs in namespaces (`tests/rigs/cloud/`)."""
    from tests.rigs.cloud.google import Google

    with cloud_front.of(running := clouds(Google)):
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic name of the test's own; the topic is not created.

    After the test, all topics whose names begin with it are deleted, because the broker looks after each partition
    twice a second, and a run has hundreds of topics.
    """
    own = f"{request.node.name}-{zlib.crc32(request.node.path.as_posix().encode()):x}"
    name = "".join(letter if letter.isalnum() else "-" for letter in own)[-200:].strip("-")
    broker = request.getfixturevalue("cluster").stack.broker if "cluster" in request.fixturenames else None
    yield name
    if broker is not None:
        from tests.rigs.stack.topics import delete_topics_of

        delete_topics_of(broker, name)

"""An environment with what the wheel requires without extras: `scan`, `cat` and the gateway run there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conf.pack import build_wheel, copy_packages
from tests.cli.running import words
from tests.delta.archive import ODD, everything, options
from tests.gateway.running import INSTALLED, RunningGateway
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

SCAN = """
import json, sys
from importlib.util import find_spec
from tiered_stream import scan
print(sum(batch.num_rows for batch in scan(json.loads(sys.argv[1]))))
print([name for name in ("pyspark", "pandas", "delta", "deltalake", "Crypto", "pytest") if find_spec(name)])
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its Python; the packages are those of this environment, so that no index is needed."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "dist").mkdir()
    wheel = build_wheel(folder, folder / "dist")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    copy_packages(wheel, site, extras=())
    return folder / "venv" / "bin" / "python"


def run(python: Path, *arguments: str) -> str:
    done = subprocess.run([python, *arguments], cwd=python.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_topics_are_scanned(python: Path) -> None:
    assert run(python, "-c", SCAN, json.dumps(options(ODD))) == f"{everything(ODD).num_rows}\n[]\n"


def test_records_are_printed(python: Path) -> None:
    lines = run(python, "-m", "tiered_stream", "cat", *words(options(ODD)), "--format", r"%o\n").splitlines()
    assert len(lines) == everything(ODD).num_rows


def test_a_gateway_gives_locations_to_a_reader(python: Path, stack: TieredStack, topic: str, tmp_path: Path) -> None:
    create_tiered_topic(stack.broker, topic, partitions=1)
    produce_bulk(stack.broker, topic, 5_000)
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic)
    with RunningGateway(tmp_path / "gateway", stack.options(), program=[str(python), *INSTALLED[1:]]) as gateway:
        reading = {
            "kafka.bootstrap.servers": gateway.bootstrap_servers,
            "remote.signed.location.hosts": gateway.storage_endpoint,
            "remote.log.locator": "broker",
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        rows = len(read_topic(stack.broker, topic))
        assert run(python, "-c", SCAN, json.dumps(reading)) == f"{rows}\n[]\n"
        assert gateway.metric("signed_locations_total") > 0

"""The gateway as one file, which runs where nothing of the project is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.planning import locate_all, made_up_cluster
from tests.gateway.running import RunningGateway
from tests.rigs.stack.build import ROOT

PARTITIONS, SEGMENTS = 6, 20

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(["make", "build/release-venv/.installed"], cwd=ROOT, check=True)
    pex = ROOT / "build" / "release-venv" / "bin" / "pex"
    subprocess.run([sys.executable, "-m", "conf.pack_gateway", str(folder), str(pex)], cwd=ROOT, check=True)
    (file,) = folder.glob("tiered-stream-gateway-*.pyz")
    return file


def test_the_file_serves_without_the_project_and_without_variables_and_ends_at_sigterm(
    packed: Path, tmp_path: Path
) -> None:
    path = os.pathsep.join([str(Path(sys.base_prefix, "bin")), "/usr/bin", "/bin"])
    bare = ["env", "-i", f"PATH={path}", f"PEX_ROOT={tmp_path / 'unpacked'}", f"HOME={tmp_path / 'no such folder'}"]
    version = subprocess.run([*bare, str(packed), "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert version.stdout.startswith("tiered-stream 0.")
    with made_up_cluster(PARTITIONS, SEGMENTS) as (servers, folder):
        storage = {"remote.storage.uri": folder.as_uri(), "gateway.signed.location.lifetime.seconds": "0"}
        program = [*bare, str(packed)]
        with RunningGateway(tmp_path / "gateway", {"kafka.bootstrap.servers": servers, **storage}, program) as gateway:
            assert locate_all(gateway, PARTITIONS, SEGMENTS, times=1) == [PARTITIONS * SEGMENTS]
            gateway.stop()
            assert gateway.process.status == 0


def test_a_wrong_setting_is_refused_with_status_2(packed: Path, tmp_path: Path) -> None:
    settings = tmp_path / "gateway.properties"
    settings.write_text("getway.listener.host=0.0.0.0\n")
    refused = subprocess.run([str(packed), "--config", str(settings)], capture_output=True, text=True, check=False)
    assert (refused.returncode, "getway.listener.host" in refused.stderr) == (2, True)

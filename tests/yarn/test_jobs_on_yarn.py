"""The job on YARN, in client and in cluster mode; its workers have nothing but the packed environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything, landed, options
from tests.stack.yarn import Yarn
from tests.yarn.submitted import YarnJob

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def settings(folder: Path, topics: str = ODD, **more: str) -> dict[str, str]:
    own = {"ingest.table": str(folder / "table"), "ingest.checkpointLocation": str(folder / "checkpoint")}
    return {**options(topics), **own, **{name.replace("_", "."): value for name, value in more.items()}}


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_the_job_lands_an_archive_by_the_packed_environment_alone(
    yarn: Yarn, packed: Path, tmp_path: Path, mode: str, lane: str
) -> None:
    job = YarnJob(yarn, tmp_path / "job", mode, settings(tmp_path, ingest_lane=lane), packed)

    assert job.run() == 0, job.output()
    assert landed(tmp_path / "table").equals(everything(ODD))

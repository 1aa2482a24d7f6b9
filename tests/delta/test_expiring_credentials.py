"""No row is lost or duplicated while credentials expire again and again; LIFETIME and SECONDS change how long."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cloud.expiring import WAYS
from tests.rigs.cloud.signers import VENDORS, fill

pytestmark = pytest.mark.slow

LIFETIME, SECONDS = int(os.environ.get("LIFETIME", 20)), int(os.environ.get("SECONDS", 60))
"""Seconds for which credentials hold, and for which tables are landed: 60 and 600 are ten minutes of expiries."""


def landed(vendor: str, cloud: Any, origin: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.lifetime = LIFETIME
    lake = fill(VENDORS[vendor], cloud, folder, origin, monkeypatch)
    with lake.spark_program("tests.rigs.cloud.expiring", seconds=SECONDS, pause=LIFETIME / 8) as program:
        printed, log = program.communicate()
    assert program.returncode == 0, shown(log)
    assert int(printed.split()[-1]) >= len(WAYS)


def shown(log: str) -> str:
    """Return the lines about tables and errors, without Spark's plans."""
    return "\n".join(line[:1000] for line in log.splitlines() if re.search(r"^table |Error|Exception|refused", line))


def test_rows_are_landed_in_s3_once_while_credentials_of_a_task_expire(
    aws: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed("AWS", aws, "task of ECS", tmp_path, monkeypatch)
    assert len([key for key in aws.keys.values() if key.token]) > SECONDS / LIFETIME


def test_rows_of_azure_are_landed_once_while_tokens_expire(
    azure_cloud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed("Azure", azure_cloud, "managed identity of a machine", tmp_path, monkeypatch)
    assert len(azure_cloud.tokens) > SECONDS / LIFETIME


def test_rows_of_google_are_landed_once_while_tokens_expire(
    google_cloud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed("Google", google_cloud, "service account of a machine", tmp_path, monkeypatch)
    assert len(google_cloud.tokens) > SECONDS / LIFETIME

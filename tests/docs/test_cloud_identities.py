"""Each row of docs/cloud-identities.md is measured again, in the namespaces of the clouds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.identities import ASKED, SIGNED, keep, read_kept
from tests.rigs.cloud.front import Cloud
from tests.rigs.cloud.signers import QUICK, VENDORS, fill

Measure = Callable[[str, Cloud, str, Path, pytest.MonkeyPatch], None]
WRITE = "write it with KEEP=1, as tests/docs/identities.py says"


def check(cloud: str, origin: str, cells: dict[str, str]) -> None:
    if "KEEP" in os.environ:
        keep(SIGNED, cloud, origin, cells)
    kept = read_kept(SIGNED).get(cloud, {}).get(origin, {})
    assert {path: kept.get(path) for path in cells} == cells, WRITE


def quick(name: str, cloud: Cloud, origin: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = fill(VENDORS[name], cloud, folder, origin, monkeypatch)
    cells = {path: lake.measure(path) for path in QUICK}
    check(name, origin, cells | {ASKED: ", ".join(f"`{host}`" for host in sorted(lake.asked))})


def with_spark(name: str, cloud: Cloud, origin: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, origin, fill(VENDORS[name], cloud, folder, origin, monkeypatch).with_spark())


MEASURES = pytest.mark.parametrize("measure", [quick, pytest.param(with_spark, marks=pytest.mark.slow)])


@MEASURES
@pytest.mark.parametrize("origin", VENDORS["AWS"].origins)
def test_requests_to_s3_are_signed_as_the_page_says(
    aws: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, measure: Measure
) -> None:
    measure("AWS", aws, origin, tmp_path, monkeypatch)


@MEASURES
@pytest.mark.parametrize("origin", VENDORS["Azure"].origins)
def test_requests_to_azure_are_signed_as_the_page_says(
    azure_cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, measure: Measure
) -> None:
    measure("Azure", azure_cloud, origin, tmp_path, monkeypatch)


@MEASURES
@pytest.mark.parametrize("origin", VENDORS["Google"].origins)
def test_requests_to_google_are_signed_as_the_page_says(
    google_cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, measure: Measure
) -> None:
    measure("Google", google_cloud, origin, tmp_path, monkeypatch)

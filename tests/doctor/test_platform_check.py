"""The doctor names a managed platform, and what was never tried there."""

from __future__ import annotations

import pytest

from tiered_stream.doctor.environment import check_platform
from tiered_stream.doctor.finding import Examination, Finding, Status
from tiered_stream.doctor.spark_conf import SparkConf


def findings(**settings: str) -> list[Finding]:
    examination = Examination(lambda _: None)
    check_platform(examination, SparkConf(settings, None))
    return examination.findings


def test_a_platform_is_a_warning_that_says_what_was_never_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLUE_VERSION", "6.0")
    (finding,) = findings()
    assert (finding.check, finding.status) == ("platform", Status.WARNING)
    assert finding.found.startswith("AWS Glue (GLUE_VERSION=6.0): ")
    assert "tiered-stream verify" in finding.fix


def test_the_settings_file_shows_a_platform_too() -> None:
    (finding,) = findings(**{"spark.cluster.type": "trident"})
    assert finding.found.startswith("Microsoft Fabric")


def test_nothing_is_said_elsewhere() -> None:
    assert findings() == []

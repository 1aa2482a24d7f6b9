"""Tests of clouds run inside namespaces, and their results are reported outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.cloud.aws import Aws
from tests.rigs.cloud.namespace import VARIABLE, why_no_namespaces

_TESTS = """
import os, socket, pytest

def test_it_passes(aws):
    assert os.environ["TIERED_STREAM_TEST_CLOUD"]
    with pytest.raises(OSError, match="Network is unreachable"):
        socket.create_connection(("192.0.2.1", 443), 5)

def test_it_fails(aws):
    assert aws.home == "nowhere"

def test_it_is_skipped(aws):
    pytest.skip("a reason of its own")

def test_of_the_outside():
    assert "TIERED_STREAM_TEST_CLOUD" not in os.environ

def test_it_ends_the_process(aws):
    os._exit(7)

def test_it_passes_again(aws):
    pass
"""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the output of pytest for the tests above."""
    monkeypatch.delenv(VARIABLE, raising=False)
    (folder / "conftest.py").write_text("pytest_plugins = ['tests.conftest']")
    (folder / "test_clouds.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "--basetemp", folder / "base", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.stack
@pytest.mark.skipif(bool(why_no_namespaces()), reason=str(why_no_namespaces()))
def test_results_are_reported_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = run(tmp_path, monkeypatch)
    assert "2 failed, 3 passed, 1 skipped" in output
    assert "assert 'us-east-1' == 'nowhere'" in output
    assert "a reason of its own" in output
    assert "the pytest in the namespaces ended" in output


def test_tests_are_skipped_by_name_where_no_namespace_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    output = run(tmp_path, monkeypatch)
    assert "1 passed, 5 skipped" in output
    assert "there is no unshare on PATH" in output


def test_nothing_is_left_of_a_test_before(aws: Aws) -> None:
    assert (aws.buckets, aws.keys, aws.requests, aws.lookups) == ({}, {}, [], [])

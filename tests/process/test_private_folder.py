"""Folders that are the user's alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tiered_stream.process.private_folder import is_private_and_writable


def test_a_folder_that_a_group_may_write_to_is_not_used_and_the_log_says_why_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kernels"
    assert is_private_and_writable(folder)
    folder.chmod(0o2770)  # as Kubernetes leaves it where fsGroup is set
    with caplog.at_level(logging.WARNING):
        assert not is_private_and_writable(folder)
        assert not is_private_and_writable(folder)
    (record,) = caplog.records
    assert "drwxrws---" in record.message and "fsGroup" in record.message and str(folder) in record.message

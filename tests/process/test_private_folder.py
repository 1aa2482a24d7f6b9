"""Folders that are the user's alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
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


@pytest.fixture
def group_writes() -> Iterator[None]:
    """New files and folders are the group's, too, as on machines where each user has a group."""
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("group_writes")
def test_folders_above_a_new_folder_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "tiered_stream" / "kernels" / "key"
    assert is_private_and_writable(folder)
    for made in (folder, *list(folder.parents)[:3]):
        assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("group_writes")
def test_a_folder_below_one_that_others_may_write_to_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    assert not is_private_and_writable(shared / "kernels" / "key")
    assert f"may write to {shared} (mode drwxrwxr-x" in caplog.text
    shared.chmod(0o1777)  # as /tmp, where only an owner may replace a folder
    assert is_private_and_writable(shared / "kernels" / "key")


@pytest.mark.usefixtures("group_writes")
def test_a_link_above_a_folder_counts_as_the_folder_to_which_it_leads(tmp_path: Path) -> None:
    (tmp_path / "shared" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "shared" / "inner")
    assert not is_private_and_writable(tmp_path / "link" / "kernels")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give folders away")
def test_a_folder_below_another_users_folder_or_link_is_not_used(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.mkdir(mode=0o755)
    link.symlink_to(tmp_path)
    os.chown(theirs, 12345, -1)
    os.chown(link, 12345, -1, follow_symlinks=False)
    assert not is_private_and_writable(theirs / "kernels")
    assert not is_private_and_writable(link / "kernels")

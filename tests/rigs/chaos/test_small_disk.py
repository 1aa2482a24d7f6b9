"""A disk that can be filled, where mounting is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.chaos.small_disk import SmallDisk


def test_a_full_disk_takes_no_byte_until_it_is_free_again(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk") as disk:
        if not disk.mounted:
            pytest.skip("mounting is not allowed here")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "file").write_bytes(bytes(5000))
        disk.free()
        assert (disk.folder / "file").write_bytes(bytes(5000))
    assert not (tmp_path / "disk" / "file").exists()

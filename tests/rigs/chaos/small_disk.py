"""A file system of a few MiB that can be filled; mounting it takes root.

Only this process and those that it starts see it, so that it goes with them, however they end.
"""

from __future__ import annotations

import ctypes
import errno
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

_SIZE = "16m"
_CLONE_NEWNS = 0x20000
_libc = ctypes.CDLL(None)


class SmallDisk:
    """A context manager; where it could not be `mounted`, `folder` is a plain one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounted = False
        self._ballast = folder / "ballast"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        if _libc.unshare(_CLONE_NEWNS) == 0:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tiered-stream-chaos", str(self.folder)]
            self.mounted = all(_done(command) for command in (["mount", "--make-rprivate", "/"], mount))
        return self

    def __exit__(self, *_: object) -> None:
        if self.mounted:
            _done(["umount", "--lazy", str(self.folder)])

    def fill(self) -> None:
        """Leave no byte."""
        with self._ballast.open("wb", buffering=0) as ballast:
            try:
                while ballast.write(bytes(4096)) == 4096:
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


def _done(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0

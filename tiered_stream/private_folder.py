"""Folders for what we keep between processes, and may trust when we find it again."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def user_cache_folder() -> Path:
    """Where a user's caches are. Raises RuntimeError: the user has no home folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiered_stream"


def is_private_and_writable(folder: Path) -> bool:
    """Whether the folder is the user's alone to write to; it is made where it is not there."""
    # What lies in it is trusted: nobody else may have made it, or may write to it, or put a link there.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, ValueError):
        return False
    own = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022
    return own and os.access(folder, os.W_OK)

"""Folders for what we keep between processes, and may trust when we find it again."""

from __future__ import annotations

import logging
import os
import stat
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)


def user_cache_folder() -> Path:
    """Where a user's caches are. Raises RuntimeError: the user has no home folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiered_stream"


def is_private_and_writable(folder: Path) -> bool:
    """Whether the folder is the user's alone to write to; it is made where it is not there.

    The log says once why a folder that is there is not used.
    """
    # What lies in it is trusted: nobody else may have made it, or may write to it, or put a link there.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, ValueError):
        return False
    own = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode)
    if own and not status.st_mode & 0o022:
        return os.access(folder, os.W_OK)
    _say_once(folder, f"mode {stat.filemode(status.st_mode)}, user {status.st_uid}")
    return False


@cache
def _say_once(folder: Path, found: str) -> None:
    log.warning(
        "the folder %s is not used as a cache: others than user %d may write to it (%s). Take their right away "
        "(chmod 700); in Kubernetes, where fsGroup gives it to a group, put the cache (XDG_CACHE_HOME) on a volume "
        "without fsGroup", folder, os.getuid(), found,
    )  # fmt: skip

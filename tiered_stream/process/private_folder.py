"""Cache folders whose contents can be trusted, because only this user can write to them."""

from __future__ import annotations

import logging
import os
import stat
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)


def user_cache_folder() -> Path:
    """Return the folder for all caches of this package for the user; it may not exist yet.

    It is in `XDG_CACHE_HOME`, or else in `~/.cache`.

    Raises:
        RuntimeError: the user has no home folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiered_stream"


def is_private_and_writable(folder: Path) -> bool:
    """Return true if only this user can write to the folder, and can do so; a missing folder is created.

    False if the folder cannot be created, is a link, has another owner, or lets others write to it. In the last three
    cases, one warning for each folder gives the reason.
    """
    # The folder's contents are trusted, so nobody else may own it, write to it, or put a link in its place.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, ValueError):
        return False
    is_own = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode)
    if is_own and not status.st_mode & 0o022:
        return os.access(folder, os.W_OK)
    _warn_once(folder, f"mode {stat.filemode(status.st_mode)}, user {status.st_uid}")
    return False


@cache
def _warn_once(folder: Path, access: str) -> None:
    log.warning(
        "the folder %s is not used as a cache: others than user %d may write to it (%s). Take their right away "
        "(chmod 700); in Kubernetes, where fsGroup gives it to a group, put the cache (XDG_CACHE_HOME) on a volume "
        "without fsGroup", folder, os.getuid(), access,
    )  # fmt: skip

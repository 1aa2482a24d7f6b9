"""Cache folders whose contents can be trusted, because only this user can write to them."""

from __future__ import annotations

import logging
import os
import stat
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)


def user_cache_folder() -> Path:
    """Return the path of the user's folder for all caches of this package; the folder need not exist yet.

    The folder is `tiered_stream` in `XDG_CACHE_HOME`; if that variable is not set, in `~/.cache`.

    Raises:
        RuntimeError: the user has no home folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiered_stream"


def is_private_and_writable(folder: Path) -> bool:
    """Return true if this user, and nobody else, can write to the folder. If the folder is missing, it is created.

    Return false, too, if the folder cannot be created. A warning, once for each folder, gives the reason if the folder
    is a link, has another owner, or lets others write to it.
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

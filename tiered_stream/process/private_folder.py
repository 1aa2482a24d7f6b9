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
    """Return true if this user, and nobody else, can write to the folder or put another folder in its place.

    If the folder is missing, it is created, with its parents. If it cannot be created, the result is false. If the
    folder is a link, has another owner, or lets others write to it, the result is false, too, and one warning gives the
    reason. The same holds if others can replace a folder above it.
    """
    # The folder's contents are trusted, so nobody else may own it, write to it, or put a link or a folder in its place.
    try:
        _make(folder)
        status = folder.lstat()
        is_own = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022
        others = folder if not is_own else next(filter(_others_may_replace_in, _above(folder)), None)
        if others is None:
            return os.access(folder, os.W_OK)
        status = others.lstat()
    except (OSError, ValueError, RuntimeError):
        return False
    _warn_once(folder, others, f"mode {stat.filemode(status.st_mode)}, user {status.st_uid}")
    return False


def _above(folder: Path) -> dict[Path, None]:
    """Return, as keys, the folders above `folder`, including links among them and the folders to which they lead."""
    return dict.fromkeys((*folder.absolute().parents, *folder.resolve(strict=True).parents))


def _others_may_replace_in(above: Path) -> bool:
    """Return whether users other than this user and root may replace an entry of this user in the folder `above`.

    The owner of `above`, which may be a link, may do so. So may users who can write to `above`, unless it has the
    sticky bit. A mounted volume that root owns counts as safe, because root decides who shares it, such as the
    containers of a pod.
    """
    status = above.lstat()
    if status.st_uid not in (0, os.getuid()):
        return True
    if stat.S_ISLNK(status.st_mode) or not status.st_mode & 0o022 or status.st_mode & stat.S_ISVTX:
        return False
    return not (status.st_uid == 0 and above.is_mount())


def _make(folder: Path) -> None:
    """Create the folder and its missing parents, all of them with mode 700, whatever the umask is."""
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


@cache
def _warn_once(folder: Path, open_folder: Path, access: str) -> None:
    log.warning(
        "the folder %s is not used as a cache: others than user %d may write to %s (%s). Take their right away "
        "(chmod go-w); in Kubernetes, where fsGroup gives it to a group, put the cache (XDG_CACHE_HOME) on a volume "
        "without fsGroup", folder, os.getuid(), "it" if open_folder == folder else open_folder, access,
    )  # fmt: skip

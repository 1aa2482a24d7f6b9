"""A folder as an object store (`file:///folder`): each object is a file, and its key is the path below the folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tiered_stream import errors
from tiered_stream.data_limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.storage.cloud_endpoints import SEGMENTS
from tiered_stream.storage.object_store import ObjectStore, keys_below, range_in, too_short


class FileStore(ObjectStore):
    """Object store over the files below the folder `root`.

    A key that leads out of `root`, even by a symbolic link, is refused with a StorageAccessError.
    """

    def __init__(self, root: Path, place: str = SEGMENTS.place) -> None:
        """Open the store in the folder `root`. `place` is the setting that names the folder, for errors."""
        self._root = Path(os.path.realpath(root))
        self._place = place

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        with self._open(key) as file:
            size = os.fstat(file.fileno()).st_size
            # Compare the size first, because `read` allocates as many bytes as it is asked for.
            wanted = range_in(extent, size, self.describe(key))
            file.seek(wanted.start)
            data = file.read(len(wanted))
            if len(data) < len(wanted):
                raise too_short(self.describe(key), wanted, wanted.start + len(data))
            return data

    def size(self, key: str) -> int:
        with self._open(key) as file:
            return os.fstat(file.fileno()).st_size

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        if not self._root.is_dir():
            raise self._no_folder()
        self.before_request()
        self._path(prefix[: prefix.rfind("/") + 1])
        return keys_below(self._entries, prefix, after)

    def _entries(self, folder: str) -> Iterable[str]:
        """Return the names in a folder; names of folders end with a slash, and links to folders are left out.

        The result is empty if the folder is missing, or this process's user cannot read it.
        """
        try:
            with os.scandir(self._root / folder) as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_dir()) for entry in entries]
        except OSError:
            return []
        return [name + "/" * is_folder for name, is_folder, leads_to_folder in names if is_folder == leads_to_folder]

    def describe(self, key: str) -> str:
        return f"file://{self._root}/{key}"

    def _path(self, key: str) -> Path:
        path = Path(os.path.realpath(self._root / key))
        if not path.is_relative_to(self._root):
            raise errors.StorageAccessError(f"the object key {key!r} leads out of the folder {self._root}: refused")
        return path

    @contextmanager
    def _open(self, key: str) -> Iterator[BinaryIO]:
        self.before_request()
        try:
            # Opening a FIFO in the folder could block forever.
            with open(self._path(key), "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
                yield file
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            if not self._root.is_dir():
                raise self._no_folder(f"; wanted in it: {key}") from error
            raise errors.StorageObjectNotFoundError(f"{self.describe(key)} does not exist") from error
        except PermissionError as error:
            raise errors.StorageAccessError(
                f"{self.describe(key)} cannot be read: this process's user has no permission"
            ) from error
        except (OSError, ValueError) as error:  # ValueError: the key has a NUL character
            raise errors.StorageUnavailableError(f"{self.describe(key)!r} could not be read: {error}") from error

    def _no_folder(self, detail: str = "") -> errors.StorageBucketNotFoundError:
        return errors.StorageBucketNotFoundError(
            f"the folder {self._root} ({self._place}) does not exist{detail}; correct its name, or mount it here"
        )

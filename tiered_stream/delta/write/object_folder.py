"""Folder in an object store as a read-only file system of pyarrow, by means of this package's own store."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from tiered_stream.errors import CorruptDataError, StorageError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store


def open_object_folder(options: StorageOptions) -> fs.FileSystem:
    """Return a read-only file system of pyarrow whose root is the folder `options.uri`.

    Raises:
        ConfigurationError: the URI or the settings for access are malformed.
    """
    return fs.PyFileSystem(_ObjectFolder(open_store(options, TABLES)))


class _ObjectFolder(fs.FileSystemHandler):  # type: ignore[misc]
    """Read-only access to the objects of `store`; paths are keys.

    Methods raise FileNotFoundError if there is no such object, and OSError if the store cannot be read.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get_type_name(self) -> str:
        return "object store"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return the files and folders in a folder, without their sizes.

        A missing folder has none, because object stores have no folders.
        """
        folder = f"{selector.base_dir.rstrip('/')}/".lstrip("/")
        names: dict[str, fs.FileType] = {}
        with _os_errors():
            for key in self._store.list(folder):
                name, slash, _ = key.removeprefix(folder).partition("/")
                names.setdefault(name, fs.FileType.Directory if slash else fs.FileType.File)
        return [fs.FileInfo(folder + name, kind) for name, kind in names.items() if name]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        with _os_errors():
            data = self._store.get(path, ByteRange(0, self._store.size(path)))
        return pa.BufferReader(pa.py_buffer(data))

    def open_input_file(self, path: str) -> pa.NativeFile:
        with _os_errors():
            return pa.PythonFile(_ObjectFile(self._store, path), mode="r")

    def _info(self, path: str) -> fs.FileInfo:
        with _os_errors():
            try:
                return fs.FileInfo(path, fs.FileType.File, size=self._store.size(path))
            except StorageObjectNotFoundError:
                has_files = next(self._store.list(f"{path.rstrip('/')}/"), None) is not None
        return fs.FileInfo(path, fs.FileType.Directory if has_files else fs.FileType.NotFound)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("the folder is read-only")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


@contextmanager
def _os_errors() -> Iterator[None]:
    """Turn the store's errors in the `with` block into OSError, or FileNotFoundError for a missing object."""
    try:
        yield
    except StorageObjectNotFoundError as error:
        raise FileNotFoundError(str(error)) from error
    except (StorageError, CorruptDataError) as error:
        raise OSError(str(error)) from error


class _ObjectFile(io.RawIOBase):
    """Object as a file with random access; each read is one ranged GET."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._size = store.size(key)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        with _os_errors():
            data = self._store.get(self._key, ByteRange(self._at, max(end, self._at)))
        self._at += len(data)
        return bytes(data)

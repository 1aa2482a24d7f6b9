"""Access to a table's folder, local or in S3, for tasks that write files, for `pyarrow` and for `deltalake`."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from tiered_stream.delta.ingest_settings import S3_SCHEMES, TableFiles, TableStorage
from tiered_stream.delta.upload_threads import UploadThreads
from tiered_stream.errors import ConfigurationError
from tiered_stream.process import PerProcess

_REGION_OF_OTHER_SERVICES = "us-east-1"
_ABSOLUTE = re.compile(r"((?:[a-zA-Z][\w+.-]*:(?://[^/]*)?)?)(/.*)", re.DOTALL)
"""Pattern of an absolute path: scheme and authority, which may be missing, and the rest from the first slash."""
_CREDENTIALS = re.compile(r"//[^/]*@")
_DOTS = frozenset((".", ".."))
_CACHED_BYTES = 32 << 20
"""Bytes at the end of a growing file that stay in the page cache; a smaller file is left to the kernel."""
_MOST_TIME_WRITING_BACK = 0.2
"""Maximum share of a task's time for dropping pages; beyond it the disk cannot keep up, and the kernel takes over."""


def delta_storage_options(storage: TableStorage) -> dict[str, str]:
    """Return the `storage_options` of `DeltaTable`; without credentials in `storage`, AWS's own chain finds them."""
    endpoint = storage.s3_endpoint_url
    options = {
        "AWS_ACCESS_KEY_ID": storage.access_key_id,
        "AWS_SECRET_ACCESS_KEY": storage.secret_access_key,
        "AWS_SESSION_TOKEN": storage.session_token,
        "AWS_REGION": region_of(storage),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint and endpoint.startswith("http:") else None,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": None if storage.s3_path_style else "true",
        "AWS_SKIP_SIGNATURE": "true" if storage.anonymous else None,
        "AWS_SERVER_SIDE_ENCRYPTION": storage.encryption,
    }
    return {name: value for name, value in options.items() if value is not None}


def region_of(storage: TableStorage) -> str | None:
    """Return the AWS region for request signatures; None if AWS's own chain is to find it."""
    return storage.s3_region or (_REGION_OF_OTHER_SERVICES if storage.s3_endpoint_url else None)


def uri_of(path: str) -> str | None:
    """Return the URI of a path with a scheme (`file:///folder`, `s3://bucket/prefix`, other), or None without a scheme.

    Raises:
        ConfigurationError: `normal_path` refuses the path.
    """
    path = normal_path(path)
    parts = urlsplit(path)
    if parts.scheme in S3_SCHEMES:
        return parts._replace(scheme="s3").geturl().rstrip("/")
    if parts.scheme == "file":
        return Path(parts.path).as_uri()  # Hadoop takes a path's characters literally: %20 is not a blank
    return path if parts.scheme else None


def local_uri(path: str) -> str:
    """Return the `file:///folder` URI of a path without a scheme. Raises ConfigurationError if `normal_path` does."""
    return Path(normal_path(str(Path(path).absolute()))).as_uri()


def normal_path(path: str) -> str:
    """Return the path without `.` and `..`, as Hadoop's `Path` resolves them.

    A relative path, or a path without such names, is returned unchanged. `..` removes the name before it, even if that
    name is a symbolic link. Libraries differ here: some take the names in S3 literally, and some resolve links. So
    every library gets the resolved path.

    Raises:
        ConfigurationError: the path leads above its root, or is in S3 and has `%2e` in place of a dot.
    """
    match = _ABSOLUTE.fullmatch(path)
    names = match[2].split("/") if match else []
    in_s3 = urlsplit(path).scheme in S3_SCHEMES
    escaped = next((name for name in names if in_s3 and name not in _DOTS and _unescaped(name) in _DOTS), None)
    if escaped is not None:
        raise _refused(path, f"libraries read {escaped} in it in different ways")
    if match is None or not _DOTS.intersection(names):
        return path
    found: list[str] = []
    for name in filter(None, names):
        if name == ".." and not found:
            raise _refused(path, "it leads above its root")
        if name == "..":
            found.pop()
        elif name != ".":
            found.append(name)
    return f"{match[1]}/{'/'.join(found)}"


def _unescaped(name: str) -> str:
    return name.lower().replace("%2e", ".")


def _refused(path: str, why: str) -> ConfigurationError:
    shown = _CREDENTIALS.sub("//", path)
    return ConfigurationError(f"the path {shown}: {why}. Write it without . and ..")


_folders: PerProcess[fs.FileSystem] = PerProcess()


def open_folder(uri: str, storage: TableStorage) -> fs.FileSystem:
    """Return a pyarrow file system rooted at the table's folder; the tasks of a process share it."""
    return _folders.get({"uri": uri, "storage": storage}, lambda: _make_folder(uri, storage))


def _make_folder(uri: str, storage: TableStorage) -> fs.FileSystem:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return fs.SubTreeFileSystem(unquote(parts.path), fs.LocalFileSystem())
    return fs.SubTreeFileSystem(f"{parts.netloc}/{parts.path.strip('/')}", _s3(storage))


class DataFolder(Protocol):
    """Folder of a table to which one task writes data files; paths are relative to it. Methods raise `OSError`."""

    most_bytes: int
    """Maximum size of one file in bytes; a file of this size must be finished."""

    def open(self, path: str) -> Any:
        """Open a new file, to which pyarrow can write."""
        ...

    def grown(self, file: Any) -> None:
        """Act on a file after a row group was written to it, for example by freeing page cache."""
        ...

    def waiting_bytes(self, file: Any) -> int:
        """Return how many bytes written to the file are still in memory."""
        ...

    def finish(self, path: str, file: Any) -> None:
        """Finish a completely written file; it is in the folder once `wait` returns."""
        ...

    def wait(self) -> None:
        """Wait until all finished files are in the folder."""
        ...

    def close(self) -> None:
        """Release all resources; files that are not in the folder yet may be lost."""
        ...


def open_data_folder(files: TableFiles, threads: UploadThreads) -> DataFolder:
    """Return the table's folder for one task to write to; `threads` upload its files if the folder is in S3."""
    if urlsplit(files.uri).scheme == "s3":
        from tiered_stream.delta.s3_upload import S3Uploads

        return S3Uploads(files, threads)
    return _LocalFiles(Path(unquote(urlsplit(files.uri).path)))


class _LocalFiles:
    """Local folder of a table, to which files are written while they grow.

    Only the end of a large file stays in the page cache, so that files reuse the same few pages. Otherwise the pages of
    whole tables would displace other data. If a virtual machine first has to get pages from its host, they would cost
    more time than writing the table.
    """

    most_bytes = sys.maxsize

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun = perf_counter()
        self._writing_back = 0.0

    def open(self, path: str) -> pa.NativeFile:
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)  # a new table is created when its first files are committed
        return pa.OSFile(str(file), "wb")

    def grown(self, file: pa.NativeFile) -> None:
        """Drop the file's written-back pages from the page cache, except its end (posix_fadvise(2)).

        The call also starts the write-back of dirty pages, which the next call drops.
        """
        begin = perf_counter()
        past = file.tell() - _CACHED_BYTES
        keeps_up = self._writing_back <= (begin - self._begun) * _MOST_TIME_WRITING_BACK
        if past > 0 and keeps_up and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # only advice, which some file systems do not accept
                os.posix_fadvise(file.fileno(), 0, past, os.POSIX_FADV_DONTNEED)
            self._writing_back += perf_counter() - begin

    def waiting_bytes(self, file: pa.NativeFile) -> int:
        return 0

    def finish(self, path: str, file: pa.NativeFile) -> None:
        file.close()

    def wait(self) -> None:
        """Do nothing, because a local file is in the folder as soon as it is finished."""

    def close(self) -> None:
        """Do nothing, because a local folder holds no resources."""


def _s3(storage: TableStorage) -> fs.FileSystem:
    given: dict[str, Any] = {"region": region_of(storage), "anonymous": storage.anonymous}
    if storage.access_key_id:
        given |= {"access_key": storage.access_key_id, "secret_key": storage.secret_access_key}
        given |= {"session_token": storage.session_token}
    if storage.s3_endpoint_url:
        endpoint = urlsplit(storage.s3_endpoint_url)
        given |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        given |= {"force_virtual_addressing": not storage.s3_path_style}
    return fs.S3FileSystem(**given)

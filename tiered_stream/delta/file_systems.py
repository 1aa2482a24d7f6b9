"""A table's folder, local or in S3: as tasks write to it, `pyarrow` reads it, and the `deltalake` library opens it."""

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
"""A path's scheme and authority, which may be missing, and the rest."""
_CREDENTIALS = re.compile(r"//[^/]*@")
_DOTS = frozenset((".", ".."))
_CACHED_BYTES = 32 << 20
"""Of a file that grows, as much stays in the page cache; a smaller one is left to the kernel."""
_MOST_TIME_WRITING_BACK = 0.2
"""As a part of a task's: a disk that cannot keep up is left to the kernel, too."""


def delta_storage_options(storage: TableStorage) -> dict[str, str]:
    """The `storage_options` of `DeltaTable`; credentials that are not given come from AWS's own chain."""
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
    """The region for signatures; None: AWS's chain finds it."""
    return storage.s3_region or (_REGION_OF_OTHER_SERVICES if storage.s3_endpoint_url else None)


def uri_of(path: str) -> str | None:
    """`file:///folder`, `s3://bucket/prefix`, or what another scheme has; None: the path has no scheme.

    Raises:
        ConfigurationError: as `normal_path`.
    """
    path = normal_path(path)
    parts = urlsplit(path)
    if parts.scheme in S3_SCHEMES:
        return parts._replace(scheme="s3").geturl().rstrip("/")
    if parts.scheme == "file":
        return Path(parts.path).as_uri()  # Hadoop takes a path's letters as they are: %20 is no blank
    return path if parts.scheme else None


def local_uri(path: str) -> str:
    """Return the `file:///folder` of a path without a scheme; errors as `normal_path`."""
    return Path(normal_path(str(Path(path).absolute()))).as_uri()


def normal_path(path: str) -> str:
    """Return the path without `.` and `..`, as Hadoop's `Path` has it; unchanged where it has none, or is relative.

    `..` takes the name before it away, also where that is a symbolic link. Libraries differ here: some take a name in
    S3 as it is, some resolve links. So each of them gets this form.

    Raises:
        ConfigurationError: it leads above its root, or is in S3 and has `%2e` for a dot.
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
    """The table's folder as a file system of its own, which the process's tasks share."""
    return _folders.get({"uri": uri, "storage": storage}, lambda: _make_folder(uri, storage))


def _make_folder(uri: str, storage: TableStorage) -> fs.FileSystem:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return fs.SubTreeFileSystem(unquote(parts.path), fs.LocalFileSystem())
    return fs.SubTreeFileSystem(f"{parts.netloc}/{parts.path.strip('/')}", _s3(storage))


class DataFolder(Protocol):
    """Where one task's data files of a table go; paths are relative to the table's folder. Errors are `OSError`."""

    most_bytes: int
    """Of one file; one that has so many is to be finished."""

    def open(self, path: str) -> Any:
        """A new file, to be written as pyarrow does it."""
        ...

    def grown(self, file: Any) -> None:
        """A row group was written to the file."""
        ...

    def waiting_bytes(self, file: Any) -> int:
        """What was written to the file, and is still in memory."""
        ...

    def finish(self, path: str, file: Any) -> None:
        """The file is written; it is there after `wait`."""
        ...

    def wait(self) -> None:
        """Return when all files are there."""
        ...

    def close(self) -> None:
        """Let go of what is open; files on their way may be lost."""
        ...


def open_data_folder(files: TableFiles, threads: UploadThreads) -> DataFolder:
    """A table's folder, for a task with these threads."""
    if urlsplit(files.uri).scheme == "s3":
        from tiered_stream.delta.s3_upload import S3Uploads

        return S3Uploads(files, threads)
    return _LocalFiles(Path(unquote(urlsplit(files.uri).path)))


class _LocalFiles:
    """Files that are written while they grow.

    Of large ones the page cache keeps the end alone, so that they take the same few pages again and again: the pages of
    whole tables would displace those of others, and cost more than the table where a virtual machine has first to get
    them from its host.
    """

    most_bytes = sys.maxsize

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun = perf_counter()
        self._writing_back = 0.0

    def open(self, path: str) -> pa.NativeFile:
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)  # a new table is made when its first files are committed
        return pa.OSFile(str(file), "wb")

    def grown(self, file: pa.NativeFile) -> None:
        """Drop what is written back, and begin to write back the rest, which the next call drops (posix_fadvise(2))."""
        begin = perf_counter()
        past = file.tell() - _CACHED_BYTES
        keeps_up = self._writing_back <= (begin - self._begun) * _MOST_TIME_WRITING_BACK
        if past > 0 and keeps_up and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # advice: not every file system takes it
                os.posix_fadvise(file.fileno(), 0, past, os.POSIX_FADV_DONTNEED)
            self._writing_back += perf_counter() - begin

    def waiting_bytes(self, file: pa.NativeFile) -> int:
        return 0

    def finish(self, path: str, file: pa.NativeFile) -> None:
        file.close()

    def wait(self) -> None:
        """Each was there when it was finished."""

    def close(self) -> None:
        """There is nothing to let go of."""


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

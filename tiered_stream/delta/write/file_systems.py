"""Access to a table's folder, as arguments of `deltalake` and as a file system of pyarrow."""

from __future__ import annotations

import io
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.errors import ConfigurationError, CorruptDataError, StorageError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage import cloud_endpoints as endpoints
from tiered_stream.storage.hadoop import client_settings as hadoop
from tiered_stream.storage.identity.google_identity import google_identity
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

_SESSION_TOKENS = frozenset(("AWS_SESSION_TOKEN", "AWS_TOKEN", "SESSION_TOKEN", "TOKEN"))
"""Environment variables from which deltalake takes a session token if the given access key has none."""
_OWN_TIMES = {"timeout": "30s", "connect_timeout": "5s"}
"""Default time limits of the crate `object_store`.

If they are not passed, deltalake takes them from the environment variables `TIMEOUT` and `CONNECT_TIMEOUT`.
"""
_ROLES = frozenset(("AWS_IAM_ROLE_ARN", "AWS_S3_ASSUME_ROLE_ARN"))
"""Environment variables of a role that deltalake would take in place of the given keys, if one of `_LOADS` is set."""
_LOADS = frozenset(("AWS_FORCE_CREDENTIAL_LOAD", "AWS_S3_LOCKING_PROVIDER"))
_ABSOLUTE = re.compile(r"((?:[a-zA-Z][\w+.-]*:(?://[^/]*)?)?)(/.*)", re.DOTALL)
"""Pattern of an absolute path: scheme and authority, which may be missing, and the rest from the first slash."""
_SLASHES = re.compile("//+")
_ODD_LETTERS = re.compile("[?#%]")
"""Characters that some libraries take literally in a path, and other libraries as parts of a URL."""
_ODD_IN_HDFS = re.compile(r'[^!-~]|["<>[\\\]^`{|}]')
"""Characters that deltalake replaces by `%` and their code in the names of folders in HDFS."""
_CREDENTIALS = re.compile(r"//[^/]*@")
_DOTS = frozenset((".", ".."))


def deltalake_arguments(spec: ingest.TableSpec) -> tuple[str, dict[str, str]]:
    """Return the table's URI and `storage_options` as arguments of deltalake's `DeltaTable`.

    Kerberos' key table for HDFS goes into an environment variable of this process, because deltalake has no option for
    it. All schemes of Azure's storage become `az://container/prefix`, because deltalake does not know all of them.

    Raises:
        ConfigurationError: no storage account is named, the connection string is malformed, or deltalake would not use
            the credentials of the settings. Or the path in HDFS has a character that deltalake would write in another
            way than Hadoop.
        StorageAccessError: a file of Google's credentials cannot be read.
    """
    parts = urlsplit(spec.uri)
    if parts.scheme == endpoints.GOOGLE_SCHEME:
        endpoint = endpoints.google_endpoint(spec.storage)
        config = google_identity(spec.storage, ingest.STORAGE_PREFIX).for_deltalake()
        return spec.uri, {"base_url": endpoint, **config, "allow_http": _allows_http(endpoint)}
    if parts.scheme in endpoints.AZURE_SCHEMES:
        place = endpoints.azure_place(spec.storage.at(spec.uri), endpoints.TABLES)
        config = {"account_name": place.account, "endpoint": place.endpoint, **place.identity.for_deltalake()}
        return f"az://{place.container}{parts.path}", {**config, "allow_http": _allows_http(place.endpoint)}
    if parts.scheme == endpoints.HDFS_SCHEME:
        if odd := _ODD_IN_HDFS.search(spec.uri):
            why = f"it has the letter {odd[0]!r}, so that deltalake would look in another folder than Spark"
            raise ConfigurationError(f"the path {spec.uri}: {why}. Choose a folder without it in its name")
        access = spec.storage.at(spec.uri)
        hadoop.set_client_key_table(access)
        settings = hadoop.hadoop_settings_of(access)
        return hadoop.name_node_url(f"hdfs://{parts.netloc}", settings) + parts.path, settings
    return spec.uri, delta_storage_options(spec.storage, parts.netloc) if parts.scheme == "s3" else {}


def _allows_http(endpoint: str) -> str:
    return "true" if endpoint.startswith("http:") else "false"


def delta_storage_options(storage: ingest.TableStorage, bucket: str) -> dict[str, str]:
    """Return the settings for access to the table's bucket in S3, as the argument `storage_options` of deltalake.

    The settings have credentials that are valid now, so that deltalake takes none from the environment.

    Raises:
        ConfigurationError: an environment variable is set that deltalake would follow nevertheless.
    """
    # Imported here, because boto3 takes long to import, and tables elsewhere do not need it.
    from tiered_stream.storage.s3_client import OF_DELTALAKE, check_environment, table_session

    check_environment(OF_DELTALAKE)
    if not _LOADS.isdisjoint(os.environ):
        check_environment(_ROLES)
    session = table_session(storage, bucket)
    options = session.object_store_config() | _OWN_TIMES | {"allow_http": _allows_http(session.bucket_url)}
    if bundle := session.ca_bundle():
        options["certificate_path"] = bundle[0]
    encryption = {"aws_server_side_encryption": storage.encryption, "aws_sse_kms_key_id": storage.kms_key}
    options |= {name: value for name, value in encryption.items() if value}
    if not storage.anonymous:
        found = session.credentials()
        options |= {"aws_access_key_id": found["access_key_id"], "aws_secret_access_key": found["secret_access_key"]}
        if token := found.get("token"):
            options["aws_session_token"] = token
        else:
            check_environment(_SESSION_TOKENS)
    return options


def uri_of(path: str) -> str | None:
    """Return the URI of a path, or None if the path has no scheme.

    `s3`, `s3a` and `s3n` become `s3://bucket/prefix`, `file` becomes `file:///folder`, and `hdfs:/folder` becomes
    `hdfs:///folder`. A path in an object store or HDFS loses repeated slashes and the slash at its end, as in Hadoop.
    In a path with another scheme, only `.` and `..` are resolved (`normal_path`).

    Raises:
        ConfigurationError: `normal_path` refuses the path, or the path is relative and has a scheme. Or the path is in
            an object store or in HDFS and has one of the characters `?#%`.
    """
    path = normal_path(path)
    parts = urlsplit(path)
    if not parts.scheme:
        return None
    if (match := _ABSOLUTE.fullmatch(path)) is None:
        raise ConfigurationError(
            f"the path {_shown(path)} has a scheme, but is relative: write it whole, such as {parts.scheme}:/FOLDER"
        )
    if parts.scheme == "file":
        # Hadoop takes a path's characters literally: %20 is not a blank, and # begins no fragment.
        return Path(match[2]).as_uri()
    if parts.scheme in ingest.BUCKET_SCHEMES:
        if odd := _ODD_LETTERS.search(path):
            why = f"libraries read {odd[0]} in it in different ways"
            raise ConfigurationError(f"the path {_shown(path)}: {why}. Choose a folder without {odd[0]} in its name")
        scheme, _, place = path.partition(":")  # Hadoop writes a path in its default file system as hdfs:/folder
        scheme = "s3" if parts.scheme in ingest.S3_SCHEMES else scheme
        return f"{scheme}://{_SLASHES.sub('/', place.removeprefix('//')).rstrip('/')}"
    return path


def path_uri(path: str, default_fs: Callable[[], str] = hadoop.default_file_system) -> str:
    """Return a path's URI: `file:///folder`, `s3://bucket/prefix`, or the URI of another scheme.

    A path without a scheme is in the file system whose URI `default_fs` returns (Hadoop's `fs.defaultFS`). If the path
    has a scheme, `default_fs` is not called.

    Raises:
        ConfigurationError: `uri_of` refuses the path, or the path leads above its root. Or the path is relative, and
            the default file system is not local.
    """
    if (uri := uri_of(path)) is not None:
        return uri
    home = default_fs()
    if home.startswith("file:"):
        return Path(normal_path(str(Path(path).absolute()))).as_uri()
    whole = f"{home.rstrip('/')}/{path.lstrip('/')}"
    if not path.startswith("/"):
        raise ConfigurationError(
            f"the path {path} is relative, so that Hadoop looks in the user's folder: write it whole, such as "
            f"{home.rstrip('/')}/user/NAME/{path}"
        )
    return uri_of(whole) or normal_path(whole)


def normal_path(path: str) -> str:
    """Return the path with `.` and `..` resolved as Hadoop's `Path` does.

    A relative path, or a path without `.` and `..`, is returned unchanged. `..` removes the name before it, even if
    that name is a symbolic link. Some libraries would take `.` and `..` in object stores literally, and others would
    follow links. So every library gets the resolved path.

    Raises:
        ConfigurationError: the path leads above its root.
    """
    match = _ABSOLUTE.fullmatch(path)
    if match is None or not _DOTS.intersection(match[2].split("/")):
        return path
    below_root = posixpath.normpath(match[2].lstrip("/") or ".")
    if below_root.split("/")[0] == "..":
        raise ConfigurationError(f"the path {_shown(path)}: it leads above its root. Write it without . and ..")
    return f"{match[1]}/{'' if below_root == '.' else below_root}"


def _shown(path: str) -> str:
    """Return the path without credentials before the bucket; Azure's paths have the container's name there."""
    return path if urlsplit(path).scheme in endpoints.AZURE_SCHEMES else _CREDENTIALS.sub("//", path)


_folders: PerProcess[fs.FileSystem] = PerProcess()


def open_folder(uri: str, storage: ingest.TableStorage) -> fs.FileSystem:
    """Return a pyarrow file system whose root is the folder at `uri`.

    For a folder in an object store, all calls in a process with the same arguments return the same object.
    """
    parts, options = urlsplit(uri), storage.at(uri)
    if parts.scheme == "file":
        return fs.SubTreeFileSystem(unquote(parts.path), fs.LocalFileSystem())
    return _folders.get(options, lambda: fs.PyFileSystem(_ObjectFolder(open_store(options, endpoints.TABLES))))


# Folder in an object store as a read-only file system of pyarrow, by means of this package's own store.


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

        The list is empty for a missing folder, because object stores have no folders.
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

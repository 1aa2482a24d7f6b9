"""Object store over a folder in HDFS, by hdfs-native (a client in Rust): each object is a file.

The client finds name nodes, a Kerberos ticket and delegation tokens as Hadoop does: `core-site.xml` and `hdfs-site.xml`
in `HADOOP_CONF_DIR`, `KRB5CCNAME`, `HADOOP_TOKEN_FILE_LOCATION`, `HADOOP_USER_NAME`. It reads from another data node if
one fails or is silent, but waits for a silent name node without a limit. So each call runs in a separate thread, and
nothing waits for this thread any longer when the call's time is over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tiered_stream import errors
from tiered_stream.data_limits import Limit
from tiered_stream.extras import naming_extras
from tiered_stream.kerberos_codes import CLOCK, Culprit
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.attempts import AttemptError, Attempts, FailureKind, RequestTimeouts, check_process
from tiered_stream.storage.cloud_endpoints import StoreUse
from tiered_stream.storage.hadoop import client_settings as hadoop
from tiered_stream.storage.hadoop.client_errors import ClientError, login_fault, parts_of
from tiered_stream.storage.object_store import (
    MAX_CONNECTIONS,
    UPLOAD_SECONDS,
    WritableStore,
    in_one_buffer,
    keys_below,
    range_in,
)

if TYPE_CHECKING:
    from mmap import mmap

    from hdfs_native import Client

T = TypeVar("T")

_INVALID = "SecretManager$InvalidToken"
_NO_ACCESS = ("AccessControlException", "AuthorizationException", _INVALID)
_NO_LOGIN = ("SASLError", "GSSAPIError", "NoSASLMechanism", "SaslException")
_MAY_PASS = ("DataTransferError", "ChecksumError", "BlocksNotFound", "InvalidRPCResponse", "FatalRPCError")
_OF_DATA_NODES = ("DataTransferError", "OperationFailed")
_ENDED_BY_NAME_NODE = "RPC listener disconnected"
_BUSY = ("StandbyException", "RetriableException", "SafeModeException")
_MAX_HUNG = MAX_CONNECTIONS
"""Maximum number of threads of one store that still wait for silent nodes after their calls have timed out."""
_WRITE_BYTES = 4 << 20
"""Maximum bytes that the client writes at once. The client accepts only `bytes`, no memory map, and copies them."""


class HdfsStore(WritableStore):
    """Object store over the files below the folder that `options.uri` names, such as `hdfs://namenode:8020/tier`.

    Args:
        use: names of the settings, for messages.
    """

    writes_in_place = True

    def __init__(self, options: StorageOptions, use: StoreUse) -> None:
        parts = urlsplit(options.uri or "")
        self._root = f"/{parts.path.strip('/')}".rstrip("/")
        self._service = f"{parts.scheme}://{parts.netloc}"
        self._options = options
        self._use = use
        timeouts = RequestTimeouts.of(options)
        self._silence = (timeouts.connect_ms + timeouts.read_ms) / 1000
        self._hung: set[Future[Any]] = set()
        """Results of calls that have timed out, and whose threads have not ended yet."""
        self._attempts = Attempts(timeouts, self._unreachable)

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        name = self.describe(key)

        def read(client: Client, seconds: float) -> memoryview:
            file = self._soon(seconds, lambda: client.read(self._path(key)))
            wanted = range_in(extent, len(file), name)  # beyond the end, the client would panic
            if not wanted:
                return memoryview(b"")
            return self._within(
                seconds, lambda: in_one_buffer(file.read_range_stream(wanted.start, len(wanted)), wanted, name)
            )

        data = self._send(key, read)
        return bytes(data) if isinstance(extent, Limit) else data  # type: ignore[return-value] # used like bytes

    def size(self, key: str) -> int:
        status = self._send(key, lambda client, time: self._soon(time, lambda: client.get_file_info(self._path(key))))
        if status.isdir:
            raise errors.StorageObjectNotFoundError(f"{self.describe(key)} does not exist: it is a folder")
        return status.length

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        def names(client: Client, folder: str) -> list[str]:
            entries = (entry for entry in client.list_status(folder) if entry.path != folder)
            return [f"{entry.path.rpartition('/')[2]}{'/' * entry.isdir}" for entry in entries]

        def entries(folder: str) -> list[str]:
            path = self._path(folder)
            try:
                return self._send(folder, lambda client, seconds: self._within(seconds, lambda: names(client, path)))
            except errors.StorageBucketNotFoundError:
                raise
            except errors.StorageObjectNotFoundError:
                return []

        return keys_below(entries, prefix, after)

    def delete(self, key: str) -> None:
        """Delete a file. A missing file is no error."""
        self._send(key, lambda client, seconds: self._soon(seconds, lambda: client.delete(self._path(key))))

    def _write(self, key: str, data: bytes | mmap, *, overwrite: bool) -> bool:
        """Write a file, and the folders above it. Return False if the file exists and `overwrite` is false."""

        def write(client: Client) -> bool:
            from hdfs_native import WriteOptions

            new = hadoop.new_files(self._settings)
            options = WriteOptions(new.block_bytes, new.replication, new.permission, overwrite, create_parent=True)
            try:
                file = client.create(self._path(key), options)
            except FileExistsError:
                if overwrite:
                    raise
                return False
            with file:
                for start in range(0, len(data), _WRITE_BYTES):
                    file.write(data[start : start + _WRITE_BYTES])
            return True

        return self._send(key, lambda client, seconds: self._within(seconds, lambda: write(client)), UPLOAD_SECONDS)

    def describe(self, key: str) -> str:
        return f"{self._service}{self._root}/{key}"

    def _path(self, key: str) -> str:
        """Return the absolute path of a key. Raises StorageAccessError if the key leads out of the root."""
        if key.startswith("/") or {".", ".."}.intersection(key.split("/")):
            root = self.describe("")
            raise errors.StorageAccessError(f"the object key {key!r} leads out of the folder {root}: refused")
        return f"{self._root}/{key}".rstrip("/") or "/"

    @cached_property
    def _client(self) -> Client:
        with naming_extras(f"the storage {self._service}"):
            from hdfs_native import Client
        options = self._options
        self._check_key_table()
        silence = {} if self._use.may_be_new else {"dfs.client.socket-timeout": str(options.read_timeout_ms)}
        try:
            service = hadoop.name_node_url(self._service, self._settings)
            return Client(
                service if urlsplit(service).netloc else None,
                silence | self._settings,
                kerberos_principal=options.hdfs_principal,
                kerberos_keytab=options.hdfs_keytab,
            )
        except (OSError, RuntimeError) as error:
            raise errors.ConfigurationError(
                f"{self._use.place}: {self._service}/ has no client: {parts_of(error)}. {hadoop.conf_dir_advice()}, or "
                f"set {self._use.prefix}hdfs.core-site.path and {self._use.prefix}hdfs.hdfs-site.path"
            ) from None

    def _check_key_table(self) -> None:
        table, option = self._options.hdfs_keytab, f"{self._use.prefix}hdfs.auth.kerberos"
        if table is not None and self._options.hdfs_principal is None:
            raise errors.ConfigurationError(
                f"{option}.keytab needs {option}.principal: add the user whose key is in {table} (`klist -k {table}` "
                "lists the principals)"
            )
        if table is not None and not os.access(table.removeprefix("FILE:"), os.R_OK):
            raise errors.ConfigurationError(
                f"{option}.keytab = {table!r} is not a file that this process can read: "
                "correct the path, and give the file to the driver and to each executor (spark-submit --files)"
            )

    @cached_property
    def _settings(self) -> dict[str, str]:
        return hadoop.hadoop_settings_of(self._options)

    def _soon(self, seconds: float, call: Callable[[], T]) -> T:
        """Return the result of `call`, a request to the name node. Raises TimeoutError if the call takes too long.

        The time limit is the lower of `seconds` and the sum of the time limits to connect and to read.
        """
        return self._within(min(seconds, self._silence), call)

    def _within(self, seconds: float, call: Callable[[], T]) -> T:
        """Return the result of `call`, which runs in a separate thread. Raises TimeoutError if it takes over `seconds`.

        Raises TimeoutError at once if `_MAX_HUNG` earlier calls that took too long have not ended yet.
        """
        if len(self._hung) >= _MAX_HUNG:
            raise TimeoutError
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is needed
                result.set_exception(error)

        threading.Thread(target=run, name="hdfs", daemon=True).start()
        try:
            return result.result(max(seconds, 0))
        except TimeoutError:
            self._hung.add(result)
            result.add_done_callback(self._hung.discard)
            raise

    def _send(self, key: str, request: Callable[[Client, float], T], seconds: float | None = None) -> T:
        """Return the result of `request`, which is called for each attempt with the client and the seconds left.

        `key` is the key of the requested object, for errors. `seconds` is the time limit of all attempts together.
        None: the time limit of a read.
        """
        check_process()
        self.before_request()

        def attempt(seconds_left: float) -> T:
            try:
                return request(self._client, seconds_left)
            except (errors.TieredStreamError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - a panic in the client is no Exception
                raise self._failure(error, key) from None

        return self._attempts.send(self.describe(key), attempt, seconds=seconds)

    def _failure(self, error: BaseException, key: str) -> Exception:
        """Return the exception for `error`, with which an attempt ended.

        It is an AttemptError, or the final error if another attempt would fail in the same way.
        """
        if isinstance(error, TimeoutError):
            return AttemptError(FailureKind.TIMEOUT)
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            return self._not_found(key)
        if isinstance(error, FileExistsError):
            return errors.StorageError(f"{self.describe(key)} cannot be written, because it is a folder")
        options, parts = self._options, parts_of(error)
        if fault := login_fault(error, options.hdfs_principal, options.hdfs_keytab, self._use.prefix):
            if fault.culprit is Culprit.SERVICE:
                return AttemptError(FailureKind.UNREACHABLE, code=fault.advice)
            return errors.StorageAccessError(f"no access to {self.describe(key)}: {fault.advice}")
        if parts.java in _NO_ACCESS or {parts.kind, parts.java}.intersection(_NO_LOGIN):
            return errors.StorageAccessError(
                f"no access to {self.describe(key)}: {parts.text or parts.kind}; {self._access_hint(parts)}"
            )
        code = f"{parts}{self._hint(parts)}"
        if isinstance(error, OSError) or parts.kind in _MAY_PASS or parts.java in _BUSY:
            return AttemptError(FailureKind.UNREACHABLE, code=code)
        return errors.StorageError(f"the request for {self.describe(key)} failed: {code}")

    def _hint(self, parts: ClientError) -> str:
        """Return advice if a setting for Kerberos or SASL may be the reason of the error `parts`; otherwise empty."""
        if parts.text == _ENDED_BY_NAME_NODE and not hadoop.asks_for_kerberos(self._settings):
            return f"; if the name node asks for Kerberos, {self._ask_for_kerberos()}"
        if parts.kind not in _OF_DATA_NODES or not hadoop.asks_for_kerberos(self._settings):
            return ""
        if self._settings.get(hadoop.PROTECTION):
            return ""
        return f"; if the data nodes ask for SASL, set {hadoop.PROTECTION} as in the hdfs-site.xml of the cluster"

    def _ask_for_kerberos(self) -> str:
        files = f"core-site.xml, in the folder HADOOP_CONF_DIR or as {self._use.prefix}hdfs.core-site.path"
        return f"set {hadoop.AUTHENTICATION}=kerberos in {files}"

    def _not_found(self, key: str) -> errors.StorageError:
        """Return the error for the missing file `key`, or for the root folder if the whole root is missing."""
        root = self.describe("")
        missing = errors.StorageObjectNotFoundError(f"{self.describe(key)} does not exist")
        if self._use.may_be_new:
            return missing
        if not key:
            return errors.StorageBucketNotFoundError(f"the folder {root} ({self._use.place}) does not exist")
        try:
            self._send("", lambda client, seconds: self._soon(seconds, lambda: client.get_file_info(self._path(""))))
        except errors.StorageBucketNotFoundError as error:
            return error
        return missing

    def _access_hint(self, parts: ClientError) -> str:
        prefix = self._use.prefix
        if parts.java == "SaslException":
            return f"the name node refused the login: {CLOCK}, and check that its key table has its key at the KDC"
        if parts.java == _INVALID:
            return f"get new delegation tokens, and put them into the file that {hadoop.LOGIN_FILE} names"
        if "SIMPLE authentication is not enabled" in parts.text:
            return self._ask_for_kerberos()
        return (
            "check the permissions of the user: HADOOP_USER_NAME or the process's own, with Kerberos the user of the "
            f"ticket (kinit, KRB5CCNAME), of {prefix}hdfs.auth.kerberos.principal with "
            f"{prefix}hdfs.auth.kerberos.keytab, or of delegation tokens ({hadoop.LOGIN_FILE})"
        )

    def _unreachable(self, name: str, failure: AttemptError) -> str:
        return f"{self._service}/ ({self._use.place}) could not be reached for {name}: {failure.code}"

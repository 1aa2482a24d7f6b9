"""Object store over a folder in HDFS, by hdfs-native (a client in Rust): each object is a file.

The client finds name nodes, a Kerberos ticket and delegation tokens as Hadoop does: `core-site.xml` and `hdfs-site.xml`
in `HADOOP_CONF_DIR`, `KRB5CCNAME`, `HADOOP_TOKEN_FILE_LOCATION`, `HADOOP_USER_NAME`. It reads from another data node if
one fails or is silent, but waits for a silent name node without a limit. So each call runs in a thread of its own, and
nothing waits for the thread when the call's time is over.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit
from xml.etree import ElementTree

import orjson

from tiered_stream import errors
from tiered_stream.extras import naming_extras
from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.attempts import AttemptError, Attempts, FailureKind, RequestTimeouts, check_process
from tiered_stream.storage.cloud_endpoints import StoreUse
from tiered_stream.storage.object_store import ObjectStore, keys_below, too_short

if TYPE_CHECKING:
    from mmap import mmap

    from hdfs_native import Client

T = TypeVar("T")

_CONF = "storage.hdfs.conf."
_RETRIES = {"max.attempts": "3", "sleep.base.millis": "100", "sleep.max.millis": "500"}
"""The client's retries, which would take minutes by default, while `Attempts` repeats requests already."""
_RUST_ERROR = re.compile(r'(?P<kind>\w+)\((?:"(?P<java>[\w.$]+)", )?"?(?P<text>.*?)(?:\\n|"?\)$|$)', re.DOTALL)
"""An error of the client as text: its kind, and for an error of a node Java's class and message."""
_NO_ACCESS = ("AccessControlException", "AuthorizationException", "SecretManager$InvalidToken")
_NO_LOGIN = ("SASLError", "GSSAPIError", "NoSASLMechanism")
_MAY_PASS = ("DataTransferError", "ChecksumError", "BlocksNotFound", "InvalidRPCResponse", "FatalRPCError")
_BUSY = ("StandbyException", "RetriableException", "SafeModeException")


class HdfsStore(ObjectStore):
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
        self._attempts = Attempts(timeouts, self._unreachable)

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        def read(client: Client, seconds: float) -> bytes:
            file = self._soon(seconds, lambda: client.read(self._path(key)))
            wanted, size = extent, len(file)
            if isinstance(wanted, Limit):
                wanted.check(size, f"the bytes of {self.describe(key)}")
                wanted = ByteRange(0, size)
            elif wanted.end > size:  # the client would panic
                raise too_short(self.describe(key), wanted, size)
            start, count = wanted.start, len(wanted)
            return _within(seconds, lambda: file.read_range(start, count)) if count else b""

        return self._send(key, read)

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
                return self._send(folder, lambda client, seconds: _within(seconds, lambda: names(client, path)))
            except errors.StorageBucketNotFoundError:
                raise
            except errors.StorageObjectNotFoundError:
                return []

        return keys_below(entries, prefix, after)

    def put(self, key: str, data: bytes | mmap) -> None:
        """Write a file, which replaces a file of the same key. Folders above the file are created.

        Raises: the errors of `ObjectStore`.
        """
        self._write(key, data, overwrite=True)

    def create(self, key: str, data: bytes) -> bool:
        """Write a file if there is no file of this key; return whether it was written.

        Raises: the errors of `ObjectStore`.
        """
        return self._write(key, data, overwrite=False)

    def delete(self, key: str) -> None:
        """Delete a file. A missing file is no error.

        Raises: the errors of `ObjectStore`.
        """
        self._send(key, lambda client, seconds: self._soon(seconds, lambda: client.delete(self._path(key))))

    def _write(self, key: str, data: bytes | mmap, *, overwrite: bool) -> bool:
        """Write a file, and return True; return False if there is one that must not be overwritten."""

        def write(client: Client) -> bool:
            from hdfs_native import WriteOptions

            try:
                file = client.create(self._path(key), WriteOptions(overwrite=overwrite, create_parent=True))
            except FileExistsError:
                if overwrite:
                    raise
                return False
            with file:
                file.write(data)
            return True

        return self._send(key, lambda client, seconds: _within(seconds, lambda: write(client)))

    def describe(self, key: str) -> str:
        return f"{self._service}{self._root}/{key}"

    def _path(self, key: str) -> str:
        """Return the absolute path of a key.

        Raises:
            StorageAccessError: the key leads out of the folder.
        """
        if key.startswith("/") or {".", ".."}.intersection(key.split("/")):
            root = self.describe("")
            raise errors.StorageAccessError(f"the object key {key!r} leads out of the folder {root}: refused")
        return f"{self._root}/{key}".rstrip("/") or "/"

    @cached_property
    def _client(self) -> Client:
        with naming_extras(f"the storage {self._service}"):
            from hdfs_native import Client
        options, authority = self._options, urlsplit(self._service).netloc
        silence = {} if self._use.may_be_new else {"dfs.client.socket-timeout": str(options.read_timeout_ms)}
        settings = silence | hadoop_settings_of(options)
        try:
            return Client(
                self._service if authority else None,
                settings,
                kerberos_principal=options.hdfs_principal,
                kerberos_keytab=options.hdfs_keytab,
            )
        except (OSError, RuntimeError) as error:
            raise errors.ConfigurationError(
                f"{self._use.place}: {self._service}/ has no client: {_text(error)}. Set HADOOP_CONF_DIR to the folder "
                f"of core-site.xml and hdfs-site.xml, or {self._use.prefix}hdfs.core-site.path and "
                f"{self._use.prefix}hdfs.hdfs-site.path"
            ) from None

    def _soon(self, seconds: float, call: Callable[[], T]) -> T:
        """Return the result of a call of the name node, which has the time limit of a silent connection."""
        return _within(min(seconds, self._silence), call)

    def _send(self, key: str, request: Callable[[Client, float], T]) -> T:
        """Return the result of `request`, which is called for each attempt, with the seconds that are left.

        Raises: the errors of `ObjectStore`.
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

        try:
            return self._attempts.send(self.describe(key), attempt)
        except AttemptError as failure:
            raise errors.StorageError(f"the request for {self.describe(key)} failed: {failure.code}") from None

    def _failure(self, error: BaseException, key: str) -> Exception:
        """Return the failure of an attempt, or the error if another attempt would fail in the same way."""
        if isinstance(error, TimeoutError):
            return AttemptError(FailureKind.TIMEOUT)
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            return self._not_found(key)
        kind, java, text = _parts(error)
        if java in _NO_ACCESS or kind in _NO_LOGIN:
            return errors.StorageAccessError(
                f"no access to {self.describe(key)}: {text or kind}; {self._access_hint()}"
            )
        if isinstance(error, OSError) or kind in _MAY_PASS or java in _BUSY:
            return AttemptError(FailureKind.UNREACHABLE, code=_text(error))
        return AttemptError(FailureKind.OTHER, code=_text(error))

    def _not_found(self, key: str) -> errors.StorageError:
        """Return the error for a missing file, or for a missing root."""
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

    def _access_hint(self) -> str:
        prefix = self._use.prefix
        return (
            "check the permissions of the user: HADOOP_USER_NAME or the process's own, with Kerberos the user of the "
            f"ticket (kinit, KRB5CCNAME), of {prefix}hdfs.auth.kerberos.principal with "
            f"{prefix}hdfs.auth.kerberos.keytab, or of delegation tokens (HADOOP_TOKEN_FILE_LOCATION)"
        )

    def _unreachable(self, name: str, failure: AttemptError) -> str:
        return f"{self._service}/ ({self._use.place}) could not be reached for {name}: {failure.code}"


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of `call`.

    Raises:
        TimeoutError: the call takes longer than `seconds`.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is needed
            result.set_exception(error)

    threading.Thread(target=run, name="hdfs", daemon=True).start()
    return result.result(max(seconds, 0))


def _parts(error: BaseException) -> tuple[str, str, str]:
    """Return the client's kind of an error, the short name of Java's class, and the first line of the text."""
    text = str(error)
    if isinstance(error, RuntimeError) and (match := _RUST_ERROR.match(text)):
        return match["kind"], (match["java"] or "").rpartition(".")[2], match["text"][:300]
    return type(error).__name__, "", text.partition("\n")[0][:300]


def _text(error: BaseException) -> str:
    kind, java, text = _parts(error)
    return f"{java or kind} {text}".strip()


def hadoop_settings_of(options: StorageOptions) -> dict[str, str]:
    """Return Hadoop's settings from the files and properties in the options, which override HADOOP_CONF_DIR.

    The plugin's `storage.hdfs.conf.*` override its files. Their names are in lower case, as all names of options are.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    settings = {f"dfs.client.failover.{name}": value for name, value in _RETRIES.items()}
    for path in filter(None, (options.hdfs_core_site, options.hdfs_hdfs_site)):
        settings |= _settings_in(Path(path))
    own = {name.removeprefix(_CONF): value for name, value in options.rsm_config.items() if name.startswith(_CONF)}
    if (default := own.pop("fs.defaultfs", None)) is not None:
        own["fs.defaultFS"] = default
    return settings | own | dict(orjson.loads(options.hdfs_settings or "{}"))


def _settings_in(file: Path) -> Mapping[str, str]:
    try:
        properties = ElementTree.parse(file).iter("property")
    except (OSError, ElementTree.ParseError) as error:
        raise errors.ConfigurationError(f"the file {file} with settings of Hadoop cannot be read: {error}") from error
    pairs = ((each.findtext("name"), each.findtext("value")) for each in properties)
    return {name.strip(): value.strip() for name, value in pairs if name and value}

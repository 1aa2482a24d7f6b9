"""Reader of single commit files in a table's log (Delta protocol: "Delta Log Entries"); it builds no table state."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import orjson
from pyarrow import NativeFile
from pyarrow.fs import FileSelector

from tiered_stream.delta.commit.transaction import TOPIC_IDS
from tiered_stream.delta.settings.ingest_settings import TableFiles
from tiered_stream.delta.write.file_systems import open_folder
from tiered_stream.errors import TableError
from tiered_stream.model import uuid_from_text

_BUFFER_BYTES = 1 << 20
_COMMIT_FILE = re.compile(r"(\d{20})\.json")
_MAX_PROTOCOL_FILES = 100


class TableLog:
    """Reader of the commit files in a table's log, through the file system with which tasks write.

    A version's file can be missing, because Delta removes old versions (`delta.logRetentionDuration`). All methods
    raise TableError if a file cannot be read.
    """

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def newest_batch(self, query_id: str, first: int, last: int) -> int | None:
        """Return the id of the query's newest batch in the versions from `first` to `last`, both inclusive.

        -1: these versions have no batch of the query. None: the file of one of these versions is missing.
        """
        try:
            transactions = self._actions(first, last, "txn")
            return max((_batch(txn) for txn in transactions if txn.get("appId") == query_id), default=-1)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise TableError(f"the table {self._files.uri}: {error}") from error

    def topic_ids(self, query_id: str, first: int, last: int) -> dict[str, UUID]:
        """Return the topic ids, by topic, in the query's newest commit that has topic ids.

        The versions from `last` down to `first` are searched, until the file of a version is missing. The mapping is
        empty if none of the searched versions is a commit of the query with topic ids.
        """
        for version in range(last, first - 1, -1):
            try:
                newest = self.newest_batch(query_id, version, version)
                commits = [] if newest == -1 else list(self._actions(version, version, "commitInfo"))
                if commits and (topic_ids := _topic_ids(commits[0].get("userMetadata"))):
                    return topic_ids
            except FileNotFoundError:  # this version is removed, and so are all earlier ones
                break
            except ValueError as error:
                raise TableError(f"the table {self._files.uri}, version {version} of its log: {error}") from error
        return {}

    def features(self) -> frozenset[str]:
        """Return the features of readers and writers in the log's newest protocol.

        The newest `_MAX_PROTOCOL_FILES` commit files are searched. The result is empty if none of them has a protocol.
        """
        try:
            for version in self._newest_versions():
                for protocol in self._actions(version, version, "protocol"):
                    return frozenset((*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())))
        except OSError as error:
            raise TableError(f"the table {self._files.uri}: its log cannot be read: {error}") from error
        return frozenset()

    def _newest_versions(self) -> list[int]:
        """Return the versions of the newest `_MAX_PROTOCOL_FILES` commit files, newest first."""
        folder = open_folder(self._files.uri, self._files.storage)
        names = (file.base_name for file in folder.get_file_info(FileSelector("_delta_log")))
        versions = (int(match[1]) for name in names if (match := _COMMIT_FILE.fullmatch(name)))
        return sorted(versions, reverse=True)[:_MAX_PROTOCOL_FILES]

    def digest(self, version: int) -> bytes | None:
        """Return the SHA-256 digest (32 bytes) of the commit file of `version`; None: there is no such file.

        If the digest has changed since an earlier call, another writer has overwritten the file.
        """
        try:
            with self._stream(version) as stream:
                return hashlib.file_digest(io.BufferedReader(stream, _BUFFER_BYTES), "sha256").digest()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(version, error) from error

    def _actions(self, first: int, last: int, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the actions of the kind `kind`, such as `txn`, in the versions from `first` to `last`, in order.

        Only lines that contain the kind's name are parsed.

        Raises:
            FileNotFoundError: the file of a version is missing.
            TableError: the file of a version cannot be read.
        """
        name = f'"{kind}"'.encode()
        for version in range(first, last + 1):
            try:
                with self._stream(version) as stream:
                    for line in io.BufferedReader(stream, _BUFFER_BYTES):
                        if name in line and (action := _action(orjson.loads(line), kind)) is not None:
                            yield action
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as error:
                raise self._unreadable(version, error) from error

    def _stream(self, version: int) -> NativeFile:
        folder = open_folder(self._files.uri, self._files.storage)
        return folder.open_input_stream(f"_delta_log/{version:020d}.json")

    def _unreadable(self, version: int, error: Exception) -> TableError:
        return TableError(f"the table {self._files.uri}: version {version} of its log cannot be read: {error}")


def _action(line: object, kind: str) -> dict[str, Any] | None:
    """Return the action of the kind `kind` in a parsed line of the log; None: the line has an action of another kind.

    Raises:
        ValueError: the line or the action is not a JSON object.
    """
    if not isinstance(line, dict):
        raise ValueError(f"{line!r:.80} is no action")
    action = line.get(kind)
    if action is not None and not isinstance(action, dict):
        raise ValueError(f"{action!r:.80} is no {kind}")
    return action


def _topic_ids(metadata: object) -> dict[str, UUID]:
    """Return the topic ids in a commit's user metadata, by topic.

    The mapping is empty if the metadata has no topic ids, such as the metadata of another writer.

    Raises:
        ValueError: the metadata has topic ids, but they are malformed.
    """
    try:
        values = orjson.loads(metadata) if isinstance(metadata, str) else None
    except orjson.JSONDecodeError:
        return {}
    ids = values.get(TOPIC_IDS, {}) if isinstance(values, dict) else {}
    if not isinstance(ids, dict) or not all(isinstance(topic_id, str) for topic_id in ids.values()):
        raise ValueError(f"{ids!r:.80} are no topic ids")
    return {topic: uuid_from_text(text) for topic, text in ids.items()}


def _batch(txn: dict[str, Any]) -> int:
    version = txn.get("version")
    if type(version) is not int:
        raise ValueError(f"{version!r:.80} is no version of the application transaction {txn['appId']}")
    return version

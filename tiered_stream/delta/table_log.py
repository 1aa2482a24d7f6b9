"""The commits in a table's log, file by file (Delta protocol: "Delta Log Entries"); no state is made of them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import orjson
from pyarrow import NativeFile

from tiered_stream.delta.file_systems import open_folder
from tiered_stream.delta.ingest_settings import TableFiles
from tiered_stream.delta.transaction import TOPIC_IDS
from tiered_stream.errors import TableError
from tiered_stream.model import uuid_from_text

_BUFFER_BYTES = 1 << 20


class TableLog:
    """Reads through the file system by which the tasks write.

    Most answers are None where not all of the versions asked for are there: old ones are removed in the end
    (`delta.logRetentionDuration`). All raise `TableError` where the log cannot be read.
    """

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def newest_batch(self, query_id: str, first: int, last: int) -> int | None:
        """The query's newest batch that the versions `first` to `last` brought; -1: none."""
        try:
            found = self._actions(first, last, b'"txn"', ("txn",))
            return max((_batch(txn) for txn in found if txn.get("appId") == query_id), default=-1)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise TableError(f"the table {self._files.uri}: {error}") from error

    def topic_ids(self, query_id: str, first: int, last: int) -> dict[str, UUID]:
        """The topics' ids in the query's newest commit of the versions `first` to `last` that has any."""
        for version in range(last, first - 1, -1):
            newest = self.newest_batch(query_id, version, version)
            if newest is None:  # removed, and so are those before
                break
            if newest >= 0 and (found := self._ids_in(version)):
                return found
        return {}

    def _ids_in(self, version: int) -> dict[str, UUID]:
        try:
            for commit in self._actions(version, version, b'"commitInfo"', ("commitInfo",)):
                return _topic_ids(commit.get("userMetadata"))
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise TableError(f"the table {self._files.uri}, version {version} of its log: {error}") from error
        return {}

    def mentioned(self, paths: Collection[str], first: int, last: int) -> set[str] | None:
        """Those of the data files that the versions `first` to `last` added or removed."""
        wanted, found = frozenset(paths), set[str]()
        try:
            for file in self._actions(first, last, b'"path"', ("add", "remove")):
                path = unquote(str(file.get("path")))
                if path in wanted:
                    found.add(path)
        except FileNotFoundError:
            return None
        return found

    def digest(self, version: int) -> bytes | None:
        """Of the version's file, by which it is known again."""
        try:
            with self._stream(version) as stream:
                return hashlib.file_digest(io.BufferedReader(stream, _BUFFER_BYTES), "sha256").digest()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(version, error) from error

    def _actions(self, first: int, last: int, having: bytes, kinds: Collection[str]) -> Iterator[dict[str, Any]]:
        """The actions of these kinds in the versions, both included; only lines that have `having` are parsed."""
        for version in range(first, last + 1):
            try:
                with self._stream(version) as stream:
                    for line in io.BufferedReader(stream, _BUFFER_BYTES):
                        if having in line:
                            yield from _of_kinds(orjson.loads(line), kinds)
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as error:
                raise self._unreadable(version, error) from error

    def _stream(self, version: int) -> NativeFile:
        folder = open_folder(self._files.uri, self._files.storage)
        return folder.open_input_stream(f"_delta_log/{version:020d}.json")

    def _unreadable(self, version: int, error: Exception) -> TableError:
        return TableError(f"the table {self._files.uri}: version {version} of its log cannot be read: {error}")


def _of_kinds(line: object, kinds: Collection[str]) -> Iterator[dict[str, Any]]:
    """Raises ValueError: the line is no action."""
    if not isinstance(line, dict):
        raise ValueError(f"{line!r:.80} is no action")
    for kind in kinds:
        action = line.get(kind)
        if action is not None:
            if not isinstance(action, dict):
                raise ValueError(f"{action!r:.80} is no {kind}")
            yield action


def _topic_ids(metadata: object) -> dict[str, UUID]:
    """Raises ValueError: there are ids, and they are none. What others write there is their own."""
    try:
        told = orjson.loads(metadata) if isinstance(metadata, str) else None
    except orjson.JSONDecodeError:
        return {}
    ids = told.get(TOPIC_IDS, {}) if isinstance(told, dict) else {}
    if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
        raise ValueError(f"{ids!r:.80} are no topic ids")
    return {topic: uuid_from_text(text) for topic, text in ids.items()}


def _batch(txn: dict[str, Any]) -> int:
    version = txn.get("version")
    if type(version) is not int:
        raise ValueError(f"{version!r:.80} is no version of the application transaction {txn['appId']}")
    return version

"""The commits in a table's log, file by file (Delta protocol: "Delta Log Entries"); no state is made of them."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import unquote

import orjson

from tiered_stream.delta.file_systems import open_folder
from tiered_stream.delta.ingest_settings import TableFiles
from tiered_stream.errors import TableError

_BUFFER_BYTES = 1 << 20


class TableLog:
    """Reads through the file system by which the tasks write."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def newest_batch(self, query_id: str, first: int, last: int) -> int | None:
        """The query's newest batch that the versions `first` to `last` brought; -1: none.

        None says that not all of these files are there: old ones are removed in the end (`delta.logRetentionDuration`).

        Raises:
            TableError: the log cannot be read.
        """
        newest = -1
        for version in range(first, last + 1):
            try:
                # A writer's own JSON may have blanks in it: parsed is only what can be it.
                for action in self._actions(version, b"txn"):
                    transaction = action.get("txn")
                    if transaction and transaction["appId"] == query_id:
                        newest = max(newest, transaction["version"])
            except FileNotFoundError:
                return None
        return newest

    def mentioned(self, paths: Collection[str], first: int, last: int) -> set[str] | None:
        """Those of the data files that the versions `first` to `last` added or removed; None as above.

        Raises:
            TableError: the log cannot be read.
        """
        wanted = {unquote(path): path for path in paths}
        found: set[str] = set()
        for version in range(first, last + 1):
            try:
                for action in self._actions(version, b"path"):
                    for kind in ("add", "remove"):
                        path = unquote(action.get(kind, {}).get("path", ""))
                        if path in wanted:
                            found.add(wanted[path])
            except FileNotFoundError:
                return None
        return found

    def _actions(self, version: int, having: bytes) -> Iterator[dict[str, Any]]:
        """The actions of a version whose JSON has the name in it."""
        name = b'"%s"' % having
        try:
            folder = open_folder(self._files.uri, self._files.storage)
            with folder.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                for line in io.BufferedReader(stream, _BUFFER_BYTES):
                    if name in line:
                        yield orjson.loads(line)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise TableError(
                f"the table {self._files.uri}: version {version} of its log cannot be read: {error}"
            ) from error

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
    """Reads through the file system by which the tasks write.

    Answers are None where not all of the versions asked for are there: old ones are removed in the end
    (`delta.logRetentionDuration`). Both raise `TableError` where the log cannot be read.
    """

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def newest_batch(self, query_id: str, first: int, last: int) -> int | None:
        """The query's newest batch that the versions `first` to `last` brought; -1: none."""
        found = (action.get("txn") or {} for action in self._actions(first, last, b'"txn"'))
        try:
            return max((each["version"] for each in found if each.get("appId") == query_id), default=-1)
        except FileNotFoundError:
            return None

    def mentioned(self, paths: Collection[str], first: int, last: int) -> set[str] | None:
        """Those of the data files that the versions `first` to `last` added or removed."""
        wanted = {unquote(path): path for path in paths}
        found: set[str] = set()
        try:
            for action in self._actions(first, last, b'"path"'):
                for kind in ("add", "remove"):
                    path = unquote(action.get(kind, {}).get("path", ""))
                    if path in wanted:
                        found.add(wanted[path])
        except FileNotFoundError:
            return None
        return found

    def _actions(self, first: int, last: int, having: bytes) -> Iterator[dict[str, Any]]:
        """The actions of the versions, both included, whose JSON has `having` in it: only those are parsed."""
        for version in range(first, last + 1):
            try:
                folder = open_folder(self._files.uri, self._files.storage)
                with folder.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                    yield from (
                        orjson.loads(line) for line in io.BufferedReader(stream, _BUFFER_BYTES) if having in line
                    )
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as error:
                name = f"version {version} of its log"
                raise TableError(f"the table {self._files.uri}: {name} cannot be read: {error}") from error

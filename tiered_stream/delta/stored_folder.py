"""A checkpoint's folder, local or in S3, without Spark."""

from __future__ import annotations

from pyarrow import fs

from tiered_stream.delta.file_systems import open_folder
from tiered_stream.delta.ingest_settings import TableStorage
from tiered_stream.delta.spark_checkpoint import MOST_BYTES, too_large
from tiered_stream.errors import CorruptDataError


class StoredFolder:
    """The folder at a URI of `file_systems.uri_of`, which the user knows as `folder`. Its methods raise OSError."""

    def __init__(self, folder: str, uri: str, storage: TableStorage) -> None:
        self.folder = folder
        self._files = open_folder(uri, storage)

    def entries(self, name: str = "") -> list[str]:
        """Return the names in the folder, or in a folder in it; none where there is no such folder."""
        return [each.base_name for each in self._files.get_file_info(fs.FileSelector(name, allow_not_found=True))]

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes; None where there is no such file.

        Raises:
            CorruptDataError: it has more than `MOST_BYTES`, or is no file.
        """
        info = self._files.get_file_info(name)
        if info.type is fs.FileType.NotFound:
            return None
        if info.type is not fs.FileType.File:
            raise CorruptDataError(f"the checkpoint {self.folder}, {name}: it is no file")
        if info.size > MOST_BYTES:
            raise too_large(self.folder, name)
        with self._files.open_input_stream(name) as stream:
            return bytes(stream.read(MOST_BYTES))

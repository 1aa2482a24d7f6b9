"""Access without Spark to a checkpoint's folder, local or in an object store."""

from __future__ import annotations

from pyarrow import fs

from tiered_stream.delta.checkpoint.spark_checkpoint import MAX_FILE_BYTES, too_large
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.delta.write.file_systems import open_folder
from tiered_stream.errors import CorruptDataError


class StoredFolder:
    """Folder of a checkpoint, which is read without Spark.

    `uri` is the folder's URI, such as `file:///folder` or `s3://bucket/prefix`. `folder` is the folder's name in
    errors. `storage` has the settings for access to the object store. Methods raise OSError if the folder cannot be
    read.
    """

    def __init__(self, folder: str, uri: str, storage: TableStorage) -> None:
        self.folder = folder
        self._files = open_folder(uri, storage)

    def entries(self, name: str = "") -> list[str]:
        """Return the names of the files and subfolders in the checkpoint's folder, or in its subfolder `name`.

        The list is empty if there is no such folder. Raise OSError if the folder cannot be read.
        """
        return [info.base_name for info in self._files.get_file_info(fs.FileSelector(name, allow_not_found=True))]

    def read(self, name: str) -> bytes | None:
        """Return the bytes of the file `name`, or None if there is no such file.

        Raises:
            CorruptDataError: the file has more than `MAX_FILE_BYTES`, or `name` is a folder.
            OSError: the file cannot be read.
        """
        info = self._files.get_file_info(name)
        if info.type is fs.FileType.NotFound:
            return None
        if info.type is not fs.FileType.File:
            raise CorruptDataError(f"the checkpoint {self.folder}, {name}: it is no file")
        if info.size > MAX_FILE_BYTES:
            raise too_large(self.folder, name)
        with self._files.open_input_stream(name) as stream:
            return bytes(stream.read(MAX_FILE_BYTES))

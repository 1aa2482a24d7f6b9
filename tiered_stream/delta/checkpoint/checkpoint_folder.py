"""Access to the files in a checkpoint's folder through Spark's JVM, on any file system that Hadoop supports.

A file is written completely or not at all, in the same way as Spark's own offset log (`CheckpointFileManager`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any, cast

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, java_exception
from tiered_stream.delta.catalog.session_checks import check_file_system
from tiered_stream.delta.checkpoint.spark_checkpoint import MAX_FILE_BYTES, too_large
from tiered_stream.errors import TableError


class CheckpointFolder:
    """Folder of a checkpoint, whose files are listed, read, written and deleted through Spark's JVM.

    The constructor gets the folder's path, and raises ConfigurationError if Spark has no file system for it. The
    methods get names of files and subfolders relative to the folder, and raise TableError if the folder cannot be
    reached.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        check_file_system(spark, "the folder", folder)
        self.folder = folder
        self._java = cast(Any, spark._jvm)
        # Looked up once, because py4j sends a request to the JVM for each part of a class's name.
        self._new_path = self._java.org.apache.hadoop.fs.Path
        self._path = self._new_path(folder)
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._made: set[str] = set()

    def entries(self, name: str = "") -> list[str]:
        """Return the names of the files and subfolders in the folder, or in its subfolder `name`.

        The list is empty if the folder or the subfolder does not exist.

        Raises:
            TableError: the folder cannot be read.
        """
        path = self._child(name) if name else self._path
        with self._errors("read"):
            files = self._files
            return [status.getPath().getName() for status in files.list(path)] if files.exists(path) else []

    def read(self, name: str) -> bytes | None:
        """Return the bytes of the file `name`, or None if there is no such file.

        Raises:
            CorruptDataError: the file has more than `MAX_FILE_BYTES`.
            TableError: the file cannot be read.
        """
        path = self._child(name)
        with self._errors("read"):
            files = self._files
            if not files.exists(path):
                return None
            with closing(files.open(path)) as stream:
                text = bytes(stream.readNBytes(MAX_FILE_BYTES + 1))
        if len(text) > MAX_FILE_BYTES:
            raise too_large(self.folder, name)
        return text

    def write(self, name: str, text: bytes, *, replace: bool = False) -> None:
        """Write the bytes `text` to the file `name` atomically; a missing subfolder in `name` is created.

        If the file exists already and `replace` is false, the file is kept as it is, without an error.

        Raises:
            TableError: the file cannot be written.
        """
        path = self._child(name)
        with self._errors("written to"):
            files = self._files
            within = name.rpartition("/")[0]
            if within not in self._made:
                files.mkdirs(path.getParent())
                self._made.add(within)
            try:
                stream = files.createAtomic(path, replace)
                stream.write(text)
                stream.close()
            except JAVA_ERRORS as error:
                if "FileAlreadyExistsException" not in str(java_exception(error)):
                    raise

    def delete(self, name: str) -> None:
        """Delete the file `name`; a missing file is no error. Raise TableError if the file cannot be deleted."""
        with self._errors("written to"):
            self._files.delete(self._child(name))

    @cached_property
    def _files(self) -> Any:
        streaming = self._java.org.apache.spark.sql.execution.streaming
        managers = streaming.checkpointing.CheckpointFileManager
        if isinstance(managers, JavaPackage):
            managers = streaming.CheckpointFileManager  # where Spark 4.0 has it
        return managers.create(self._path, self._configuration)

    def _child(self, name: str) -> Any:
        return self._new_path(self._path, name)

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except JAVA_ERRORS as error:
            raise TableError(f"the checkpoint {self.folder} cannot be {done}: {java_exception(error)}") from error

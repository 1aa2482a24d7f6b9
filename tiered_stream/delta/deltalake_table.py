"""The Delta table by the `deltalake` library: opened, described, made when it is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import orjson
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql.types import StructType

from tiered_stream.delta.file_systems import delta_storage_options
from tiered_stream.delta.ingest_settings import TableFiles
from tiered_stream.delta.lane import TableDescription
from tiered_stream.errors import TableAccessError, TableError

_OF_FILE_SYSTEM = re.compile(r"\(os error \d+\)")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_S3_ERROR = re.compile(r"(?:<\?xml[^>]*>)?\s*<Error>.*?<Code>(.*?)</Code>.*?<Message>(.*?)</Message>.*", re.DOTALL)


def open_table(files: TableFiles) -> DeltaTable | None:
    """The table as it is now, or None where there is none.

    Raises:
        TableError: the place cannot be reached, or its log cannot be read.
    """
    with table_errors(files.uri, "opened"):
        try:
            return DeltaTable(files.uri, storage_options=delta_storage_options(files.storage))
        except TableNotFoundError:
            return None


def make_table(files: TableFiles, schema: StructType, properties: Mapping[str, str]) -> DeltaTable:
    """A new table, or the one that somebody else has just made.

    Raises:
        TableError: the place cannot be written to, or a property is unknown.
    """
    with table_errors(files.uri, "made"):
        return DeltaTable.create(
            files.uri,
            Schema.from_json(schema.json()),
            mode="ignore",
            partition_by=[files.day_column] if files.day_column else None,
            configuration=dict(properties),
            storage_options=delta_storage_options(files.storage),
        )


def describe(table: DeltaTable) -> TableDescription:
    """What the lanes ask of it."""
    metadata = table.metadata()
    return TableDescription(
        fields=tuple(orjson.loads(table.schema().to_json())["fields"]),
        partition_columns=tuple(metadata.partition_columns),
        configuration=metadata.configuration,
        writer_features=frozenset(table.protocol().writer_features or ()),
        table_id=str(metadata.id),
    )


@contextmanager
def table_errors(uri: str, done: str) -> Iterator[None]:
    """Foreign errors as `TableError`: the table could not be `done`. What the store refuses comes as `OSError`."""
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        text = in_one_line(str(error))
        of_store = isinstance(error, OSError) or _OF_FILE_SYSTEM.search(text)
        raise (TableAccessError if of_store else TableError)(f"the table {uri} cannot be {done}: {text}") from error


def in_one_line(text: str) -> str:
    """The library's tree of causes; of S3's XML, which repeats much of the request, the code and the message."""
    said = _S3_ERROR.search(text)
    plain = _COLOUR.sub("", text[: said.start()] if said else text)
    lines = [line.strip(" \u21b3\t") for line in plain.splitlines()]
    answer = [f"{said.group(1)}: {said.group(2)}"] if said else []
    return ": ".join(filter(None, [*lines, *answer]))

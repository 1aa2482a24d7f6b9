"""Access to Delta tables through the `deltalake` library, without a JVM: open, create, alter and commit.

Writers that use deltalake always exclude each other. In object stores, they use conditional puts. In a local folder,
they use hard links. But delta-spark does not exclude deltalake. Its log store checks whether a version exists, and then
overwrites it (S3) or renames a file to it (local folder). In a local folder, within one application, both libraries
exclude each other by delta-spark's lock.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyspark.sql.types import StructType

from tiered_stream.delta.commit.deltalake_statistics import writer_properties
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.commit.transaction import (
    BatchCommit,
    CatalogManagedError,
    Lock,
    TableState,
    UncertainCommitError,
)
from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.writer_requirements import managing_feature
from tiered_stream.delta.schema.row_plan import check_day_column
from tiered_stream.delta.schema.row_schema import LOCAL_TIMES, columns_for_creation, hides_local_times
from tiered_stream.delta.schema.sql_types import common_fields, struct_of
from tiered_stream.delta.settings.ingest_settings import COMMIT, CREATION, TableSpec
from tiered_stream.delta.write.file_systems import deltalake_arguments
from tiered_stream.errors import ConfigurationError, StorageAccessError, StorageError, TableAccessError, TableError
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES, GOOGLE_SCHEME, S3_SCHEMES, TABLES
from tiered_stream.storage.obstore_errors import failure_of
from tiered_stream.storage.open_store import open_service

log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
DEFAULT_CHECKPOINT_INTERVAL = 10
"""Delta's default number of commits per checkpoint (`DeltaConfigs.CHECKPOINT_INTERVAL`); deltalake's default is 100."""
NO_CHECKPOINT = PostCommitHookProperties(create_checkpoint=False)
_POSITIVE = re.compile(r"0*[1-9]\d{0,17}", re.ASCII)
_LOG_CLEANUP = "delta.enableExpiredLogCleanup"
_OF_FILE_SYSTEM = re.compile(r"\(os error \d+\)")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_S3_ERROR = re.compile(r"(?:<\?xml[^>]*>)?\s*<Error>.*?<Code>(.*?)</Code>.*?<Message>(.*?)</Message>.*", re.DOTALL)

_LISTED_FROM_THE_START = "Invalid table version"
"""Text in deltalake's error after a commit, if the S3 service ignores `start-after` in a listing of the log."""
_QUERY = re.compile(r"(https?://[^\s?]+)\?[^\s)\"']*")
"""Pattern of a URL with a query, which may be a shared access signature of Azure's."""

_CREATION = CommitProperties(custom_metadata={"userMetadata": CREATION})
_T = TypeVar("_T")
_MAX_ATTEMPTS = 3
"""Maximum number of attempts at a change that delta-spark may overwrite.

delta-spark can overwrite a change only if it opens the table during the change. Later attempts hold delta-spark's lock.
"""


def open_table(spec: TableSpec) -> DeltaTable | None:
    """Open the table at its newest version; return None if there is no table.

    Raises:
        TableAccessError: the folder cannot be reached.
        TableError: the table's log cannot be read.
    """
    with _table_errors(spec, "opened"):
        try:
            return _open(spec)
        except TableNotFoundError:
            return None


def _open(spec: TableSpec, place: tuple[str, dict[str, str]] | None = None) -> DeltaTable:
    """Open the table at its newest version; `place` is the result of `_place(spec)` if the caller has it already.

    Raises:
        TableNotFoundError: there is no table.
        CatalogManagedError: a catalog manages the table's commits.
        DeltaError: the table's log cannot be read.
    """
    uri, storage_options = place or _place(spec)
    try:
        table = DeltaTable(uri, storage_options=storage_options)
    except TableNotFoundError:
        raise
    except DeltaError as error:
        feature = None
        with suppress(TableError):
            feature = managing_feature(TableLog(spec).features())
        if feature is None:
            raise
        raise CatalogManagedError(spec.uri, feature) from error
    if feature := _managing_feature(table):
        raise CatalogManagedError(spec.uri, feature)
    return table


def _place(spec: TableSpec) -> tuple[str, dict[str, str]]:
    """Return the table's URI and `storage_options` for deltalake (`deltalake_arguments`).

    In Azure's or Google's storage, an access token is requested first, because deltalake would wait for minutes for a
    token service that does not respond.
    """
    place = deltalake_arguments(spec)
    if urlsplit(spec.uri).scheme in (*AZURE_SCHEMES, GOOGLE_SCHEME):
        open_service(spec.storage.at(spec.uri), TABLES).check_token()
    return place


def _managing_feature(table: DeltaTable) -> str | None:
    protocol = table.protocol()
    return managing_feature((*(protocol.reader_features or ()), *(protocol.writer_features or ())))


def create_table(
    spec: TableSpec,
    schema: StructType,
    properties: Mapping[str, str],
    lock: Lock = nullcontext,
    *,
    replaces: bool = False,
) -> DeltaTable:
    """Create a table at `spec.uri` with the columns of `schema` and the table properties `properties`, and return it.

    The table is created in a `with` block of `lock`. If another process has just created the table, return the table of
    this process. If `replaces` is true, an existing table is replaced.

    Raises:
        ConfigurationError: Delta does not allow the name of the day column.
        TableError: the folder cannot be written to, or a property is unknown.
    """
    if spec.day_column is not None:
        check_day_column(spec.day_column)  # deltalake accepts any name, but delta-spark then refuses ALTER TABLE
    with _table_errors(spec, "made"):
        return _run_locked(lock, partial(_create, spec, schema, properties, replaces=replaces))


def _create(spec: TableSpec, schema: StructType, properties: Mapping[str, str], *, replaces: bool) -> DeltaTable:
    first, others = columns_for_creation(schema, spec.day_column)
    uri, storage_options = _place(spec)
    table = DeltaTable.create(
        uri,
        Schema.from_json(first.json()),
        mode="overwrite" if replaces else "ignore",
        partition_by=[spec.day_column] if spec.day_column else None,
        configuration=dict(properties),
        storage_options=storage_options,
        commit_properties=_CREATION,
    )
    if others.fields and len(table.schema().fields) == len(first):
        _add_columns(table, others, _CREATION)
        table.update_incremental()
    return table


def add_columns(spec: TableSpec, columns: StructType, lock: Lock = nullcontext) -> None:
    """Add to the table the columns and the nested fields of `columns` that the table lacks.

    The change is made in a `with` block of `lock`.

    Raises:
        TableError: the table cannot be changed.
    """
    with _table_errors(spec, "changed"):
        _run_locked(lock, lambda: _add_columns(_open(spec), columns))


def _run_locked(lock: Lock, change: Callable[[], _T]) -> _T:
    """Call `change`, which changes a table, in a `with` block of `lock`, and return the result of `change`.

    If the lock raises UncertainCommitError because another writer may have overwritten the change, call `change` again,
    up to `_MAX_ATTEMPTS` times in all.
    """
    for _ in range(_MAX_ATTEMPTS - 1):
        with suppress(UncertainCommitError), lock():
            return change()
    with lock():
        return change()


def delete_rows(spec: TableSpec, predicate: str) -> None:
    """Delete the table's rows that meet the SQL condition `predicate` (DataFusion's SQL), in one commit.

    Raises:
        TableError: the table cannot be changed.
    """
    with _table_errors(spec, "changed"):
        table = _open(spec)
        table.delete(predicate, writer_properties=writer_properties(table, spec.codec, with_times=False))


def _add_columns(table: DeltaTable, columns: StructType, commit: CommitProperties | None = None) -> None:
    if any(map(hides_local_times, columns)) and LOCAL_TIMES not in (table.protocol().writer_features or ()):
        feature = TableFeatures.TimestampWithoutTimezone
        table.alter.add_feature(feature, allow_protocol_versions_increase=True, commit_properties=commit)
        table.update_incremental()
    table_fields = {field["name"].lower(): field for field in orjson.loads(table.schema().to_json())["fields"]}
    # A whole field is repeated, because deltalake drops a NOT NULL that is not repeated.
    added = columns.jsonValue()["fields"]
    grown = [_grown_field(table_fields.get(field["name"].lower(), field), field) for field in added]
    fields = Schema.from_json(orjson.dumps(struct_of(grown)).decode()).fields
    table.alter.add_columns(fields, commit_properties=commit)


def _grown_field(table_field: dict[str, Any], wider_field: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `table_field` with the nested fields that only `wider_field` has; both are in Spark's JSON."""
    kind = table_field["type"]
    if not isinstance(kind, dict) or not isinstance(wider_field["type"], dict):
        return table_field
    grown = {known["name"]: _grown_field(known, field) for known, field in common_fields(kind, wider_field["type"])}
    if "fields" in kind:
        own = {field["name"].lower() for field in kind["fields"]}
        new = [field for field in wider_field["type"].get("fields", ()) if field["name"].lower() not in own]
        fields = [grown.get(field["name"], field) for field in kind["fields"]]
        return {**table_field, "type": {**kind, "fields": fields + new}}
    return {**table_field, "type": {**kind, **{f"{step}Type": field["type"] for step, field in grown.items()}}}


def describe(table: DeltaTable) -> TableDescription:
    """Return a description with the table's columns, partition columns, properties, writer features and table id."""
    metadata = table.metadata()
    return TableDescription(
        fields=tuple(orjson.loads(table.schema().to_json())["fields"]),
        partition_columns=tuple(metadata.partition_columns),
        configuration=metadata.configuration,
        writer_features=frozenset(table.protocol().writer_features or ()),
        table_id=str(metadata.id),
    )


class DeltalakeTable:
    """Table opened by deltalake for commits, each of which is made in a `with` block of `lock`."""

    def __init__(self, spec: TableSpec, lock: Lock = nullcontext) -> None:
        self.lock = lock
        self.spec = spec
        self._log = TableLog(spec)
        self._opening = ThreadPoolExecutor(1, thread_name_prefix="delta-table")
        self._prepared: Future[tuple[DeltaTable, bytes | None, object]] | None = None
        """Table that `prepare` opens, SHA-256 of its version's log file, and URI and `storage_options` of the table.

        The SHA-256 is None if the log file does not exist. The attribute is None if `prepare` was not called.
        """
        self._checkpoint_looked_for: int | None = None

    def prepare(self) -> None:
        if self._prepared is None:
            self._prepared = self._opening.submit(self._open_ahead)

    def begin(self) -> DeltalakeTransaction:
        with _table_errors(self.spec, "opened"):
            return DeltalakeTransaction(self, self._prepared_table() or _open(self.spec))

    def _open_ahead(self) -> tuple[DeltaTable, bytes | None, object]:
        place = _place(self.spec)
        table = _open(self.spec, place)
        return table, self._log.digest(table.version()), place

    def _prepared_table(self) -> DeltaTable | None:
        """Return the table that `prepare` opened, updated to its newest version; None: the caller must open the table.

        The result is None if `prepare` was not called, if opening or updating failed, or if credentials were renewed
        since. It is also None if the log file of the opened version has another digest now, because the folder then has
        another table, or another writer has overwritten the version. For a table that a catalog manages, the result is
        None, so that the caller's `_open` raises the error.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared.exception() is not None:
            return None
        table, newest, access = prepared.result()
        if newest is None or self._log.digest(table.version()) != newest or deltalake_arguments(self.spec) != access:
            return None
        try:
            table.update_incremental()
        except (DeltaError, OSError):
            return None
        return None if _managing_feature(table) else table

    def checkpoint(self, table: DeltaTable, state: TableState) -> None:
        """Write a Delta checkpoint of `table` after a commit, if a checkpoint is due.

        One checkpoint is due every N versions, where N is the property `delta.checkpointInterval`. `state` is the
        table's state before the commit. Together with a checkpoint, expired log files are deleted, unless the table
        forbids it (`delta.enableExpiredLogCleanup`). A failure is only logged, because a table without the checkpoint
        is merely slower to open.
        """
        configuration = state.description.configuration
        given = configuration.get(CHECKPOINT_INTERVAL, "")
        # Other writers may have set any text.
        interval = int(given) if _POSITIVE.fullmatch(given) else DEFAULT_CHECKPOINT_INTERVAL
        # The commit may have a higher version, if other commits came first. Then the next call writes the checkpoint.
        before, version = self._checkpoint_looked_for or state.version, state.version + 1
        self._checkpoint_looked_for = version
        if before // interval == version // interval:
            return
        try:
            table.update_incremental()
            table.create_checkpoint()
            if configuration.get(_LOG_CLEANUP, "true").lower() == "true":
                table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            log.warning("the table %s: no checkpoint at version %d: %s", self.spec.uri, version, error)


class DeltalakeTransaction:
    """One attempt at a commit through deltalake: a `transaction.DeltaTransaction`."""

    def __init__(self, of: DeltalakeTable, table: DeltaTable) -> None:
        self._of = of
        self._table = table
        self.state = TableState(table.version(), describe(table))

    def last_batch(self, query_id: str) -> int | None:
        with _table_errors(self._of.spec, "read"):
            version: int | None = self._table.transaction_version(query_id)
            return version

    def paths(self) -> list[str]:
        """Return the paths of the table's files in `state.version`, as the log writes them."""
        return [str(path) for path in pa.table(self._table.get_add_actions()).column("path").to_pylist()]

    def commit(self, batch: BatchCommit) -> int:
        return self.write(batch, partial(append, batch), _append_info(self.state.version, batch))

    def write(
        self, batch: BatchCommit, write: Callable[[DeltaTable, CommitProperties], None], info: Mapping[str, Any]
    ) -> int:
        """Call `write`, which commits the batch to the table in one version, and return a version of the table.

        The batch is in the returned version or in a later one. `write` gets the table, and properties with the batch's
        application transaction and `info`, the further fields of `commitInfo`. `write` may raise errors of deltalake.

        Raises:
            UncertainCommitError: another commit came first, or the result is unknown.
            TableError: the table refused the commit, and would refuse it again.
        """
        moment = time.time_ns() // 1_000_000
        transaction = Transaction(batch.query_id, batch.batch_id, moment)
        properties = CommitProperties(app_transactions=[transaction], custom_metadata=dict(info))
        try:
            with self._of.lock():
                write(self._table, properties)
        except (CommitFailedError, OSError) as error:
            raise UncertainCommitError(_without_queries(str(error))) from error
        except DeltaError as error:
            text = _without_queries(str(error))
            if _LISTED_FROM_THE_START in text:
                text += f". The storage may ignore start-after in listings: set {COMMIT.name}=spark"
            raise TableError(f"the table {self._of.spec.uri} refused batch {batch.batch_id}: {text}") from error
        self._of.checkpoint(self._table, self.state)
        return self.state.version + 1


def append(batch: BatchCommit, table: DeltaTable, properties: CommitProperties) -> None:
    """Commit a version that adds the batch's files, if any, to the table; write no checkpoint.

    `properties` has the metadata and the application transaction of the commit. Errors of deltalake are raised
    unchanged.
    """
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            file.path, file.size, batch.partition_values(file), file.modification_time,
            data_change=True, stats=file.stats,
        )
        for file in batch.files
    ]  # fmt: skip
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        [batch.day_column] if batch.day_column else None,
        commit_properties=properties,
        post_commithook_properties=NO_CHECKPOINT,
    )


def _append_info(version: int, batch: BatchCommit) -> dict[str, Any]:
    """Return the fields of `commitInfo` for the batch's commit, which `DESCRIBE HISTORY` shows.

    `version` is the table's version on which the commit is based. `isBlindAppend` lets concurrent writers see that this
    commit does not conflict with their commits.
    """
    metrics = {"numFiles": len(batch.files), **batch.metrics()}
    return {
        "operationParameters": {"mode": "Append", "queryId": batch.query_id, "epochId": str(batch.batch_id)},
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "userMetadata": batch.metadata(),
        "readVersion": version,
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": True,
    }


@contextmanager
def _table_errors(spec: TableSpec, done: str) -> Iterator[None]:
    """Turn deltalake's errors in the `with` block into TableError, or TableAccessError if the table's storage failed.

    The storage has failed if the error is an OSError, or if its text contains an error number of the operating system.
    `done` is a participle for the text "the table X cannot be {done}", such as "opened".
    """
    uri = spec.uri
    try:
        yield
    except ConfigurationError:
        raise
    except StorageError as error:
        raise TableAccessError(f"the table {uri} cannot be {done}: {error}") from error
    except (DeltaError, OSError, ValueError) as error:
        text = _in_one_line(str(error))
        of_store = isinstance(error, OSError) or _OF_FILE_SYSTEM.search(text)
        hint = _access_hint(spec, error) if of_store else ""
        raise (TableAccessError if of_store else TableError)(
            f"the table {uri} cannot be {done}: {text}{hint}"
        ) from error


def _access_hint(spec: TableSpec, error: Exception) -> str:
    """Return advice on the credentials if the table's storage has refused the credentials, else an empty text."""
    if urlsplit(spec.uri).scheme not in (*S3_SCHEMES, *AZURE_SCHEMES, GOOGLE_SCHEME):
        return ""
    service = open_service(spec.storage.at(spec.uri), TABLES)
    lines = [line.strip(" \u21b3\t") for line in _COLOUR.sub("", str(error)).splitlines()]
    refused = service.refused(failure_of(OSError(": ".join(lines))), spec.uri, listing=False)  # as obstore says it
    return f"; {service.access_hint()}" if isinstance(refused, StorageAccessError) else ""


def _in_one_line(text: str) -> str:
    """Return the text of a deltalake error, which has a line for each cause, as one line without colour codes.

    An XML error of the store in the text is reduced to its code and message. The queries of URLs are removed, because
    they may have secrets.
    """
    text = _without_queries(text)
    s3_error = _S3_ERROR.search(text)
    plain = _COLOUR.sub("", text[: s3_error.start()] if s3_error else text)
    lines = [line.strip(" \u21b3\t") for line in plain.splitlines()]
    s3_text = [f"{s3_error.group(1)}: {' '.join(s3_error.group(2).split())}"] if s3_error else []
    return ": ".join(filter(None, [*lines, *s3_text]))


def _without_queries(text: str) -> str:
    return _QUERY.sub(r"\1", text)

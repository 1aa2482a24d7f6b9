"""Declaration and parsing of the `ingest.*` settings for a table (`TableSpec`), and checks of all `ingest.*` names."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tiered_stream.delta.settings import row_settings as row
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import Envelope, Evolution
from tiered_stream.options import types
from tiered_stream.options.given_options import (
    JOB_PREFIX,
    OPTIONS,
    GivenOptions,
    check_placeholders,
    declared,
    is_known,
    of,
    read_fields,
)
from tiered_stream.options.parsing import StorageOptions, StoreAccess
from tiered_stream.options.remote_options import SETTINGS_FILE
from tiered_stream.options.settings_files import read_settings, without
from tiered_stream.options.types import Option, option, optional
from tiered_stream.options.unknown_names import is_typing_error, nearest_name, unknown_setting
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES, GOOGLE_SCHEME, HDFS_SCHEME

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tiered_stream.formats.rows.row_format import RowFormat

TOPIC = "{topic}"
"""Placeholder for the topic in a table's path or name."""
TARGET_FILE_SIZE = option("ingest.targetFileSize", types.byte_size(1 << 20), "128m", "Approximate size of a data file.")
CODECS = ZSTD, SNAPPY, GZIP, UNCOMPRESSED = "zstd", "snappy", "gzip", "none"
COMPRESSION = optional(
    "ingest.compression", types.one_of(*CODECS),
    "Compression of data files: `zstd`, `snappy`, `gzip` or `none`. By default: the session's "
    "`spark.sql.parquet.compression.codec` if it is set; otherwise `zstd`, but `snappy` in a local folder.",
)  # fmt: skip
DAY_COLUMN = optional("ingest.dayColumn", types.text, "Name of a partition column with the UTC day of `timestamp`.")
CLUSTER_BY: Option[tuple[str, ...]] = Option(
    "ingest.clusterBy", row.column_names, (), "",
    "Columns for liquid clustering of a table that the query creates, separated by commas.",
)  # fmt: skip
COMPACT_EVERY = optional(
    "ingest.compactEvery", types.integer(1),
    "Number of table versions after which small files are compacted, while the query runs.",
    shown="not at all",
)  # fmt: skip
AUTO, COMMIT_BY_SPARK, COMMIT_BY_DELTALAKE = "auto", "spark", "deltalake"
COMMIT = option(
    "ingest.commit", types.one_of(AUTO, COMMIT_BY_SPARK, COMMIT_BY_DELTALAKE), AUTO,
    "Library that commits in the direct lane. `auto`: the session's delta-spark, or deltalake without it.",
)  # fmt: skip


def is_append_only(properties: Mapping[str, str]) -> bool:
    """Return whether the table property `delta.appendOnly` is `true`; upper and lower case do not matter."""
    return any(name.lower() == APPEND_ONLY.lower() and value.lower() == "true" for name, value in properties.items())


def _routes(value: str) -> tuple[tuple[str, str], ...]:
    """Parse `pattern=table` pairs, separated by commas, into pairs of a regular expression and a table.

    A pattern is a topic, or a regular expression for a topic's whole name. Raise ValueError if a pair lacks a part.
    """
    routes = []
    for route in filter(str.strip, value.split(",")):
        pattern, _, table = (part.strip() for part in route.partition("="))
        if not pattern or not table:
            raise ValueError(f"has {route.strip()!r}, which is not pattern=table")
        routes.append((types.topic_pattern(pattern), table))
    return tuple(routes)


ROUTE: Option[tuple[tuple[str, str], ...]] = Option(
    "ingest.route", _routes, (), "",
    "Tables of single topics: `pattern=table`, separated by commas. A pattern is a topic, or a regular expression for "
    "a topic's whole name. The first matching pattern counts; other topics go to `ingest.table`.",
)  # fmt: skip
FAIL, PARK = "fail", "park"
ON_TABLE_ERROR = option(
    "ingest.onTableError", types.one_of(FAIL, PARK), FAIL,
    "If a table cannot be written: `fail` the query, or `park` the table. The query then continues with its other "
    "tables, and adds the parked table's rows when the table can be written again.",
)  # fmt: skip
CREATION = '{"createdBy":"tiered_stream"}'
"""User metadata of the commits that create a table, before the table has rows."""
LAND = "land"
ON_LANDED_OFFSETS = option(
    "ingest.onLandedOffsets", types.one_of(FAIL, LAND), FAIL,
    "If a new query begins with records that another query has landed in the table, as after the loss of a checkpoint: "
    "`fail`, or `land` them again. Tables of the latest state are not checked.",
)  # fmt: skip
INGEST_OPTIONS: tuple[Option[Any], ...] = (
    TARGET_FILE_SIZE, COMPRESSION, DAY_COLUMN, CLUSTER_BY, COMPACT_EVERY, COMMIT, ROUTE, ON_TABLE_ERROR,
    ON_LANDED_OFFSETS,
    *row.UPSERT_OPTIONS,
)  # fmt: skip
_OF_QUERY = (COMMIT, ROUTE, ON_TABLE_ERROR, ON_LANDED_OFFSETS, row.MAX_DEAD_LETTERS)
TOPIC_OPTIONS = tuple(each for each in (*INGEST_OPTIONS, *row.ROW_OPTIONS) if each not in _OF_QUERY)
"""Options that may be set for a single topic, such as `ingest.topic.orders.dayColumn`."""
TABLE, CHECKPOINT = "ingest.table", "ingest.checkpointLocation"
TRIGGER, LANE = "ingest.trigger", "ingest.lane"
METRICS_PROMETHEUS, METRICS_OTLP = "ingest.metrics.prometheus", "ingest.metrics.otlp"
METRICS_LINES = "ingest.metrics.lines"
STOP_TIMEOUT = option(
    "ingest.stop.timeout", types.duration_ms, "20s",
    "After SIGTERM or Ctrl-C: time in which running micro-batches are finished. Others are done again by the next run.",
)  # fmt: skip
JOB_SETTINGS = (
    TABLE, CHECKPOINT, TRIGGER, LANE, METRICS_PROMETHEUS, METRICS_OTLP, METRICS_LINES, STOP_TIMEOUT.name,
)  # fmt: skip
"""Names of settings of the ingest job itself: where its queries write, how they run, and where metrics go."""
STORAGE_PREFIX = "ingest.storage."
"""Prefix of the settings for access to the table's bucket or container.

The names after the prefix are the same as after `remote.storage.`, the prefix for Kafka's tiered storage.
"""
PROPERTY_PREFIX = "ingest.tableProperty."
"""Prefix of Delta table properties for a table that the query creates.

Example: `ingest.tableProperty.delta.appendOnly=true`.
"""
COLUMN_MAPPING = "delta.columnMapping.mode"
"""Delta's table property that lets columns have other names in Parquet files than in the table."""
APPEND_ONLY = "delta.appendOnly"
"""Delta's table property that forbids changes of rows."""
TYPE_WIDENING = "delta.enableTypeWidening"
"""Delta's table property that allows columns to get a wider type."""
TOPIC_PREFIX = "ingest.topic."
S3_SCHEMES = ("s3", "s3a", "s3n")
"""URI schemes of S3 that Hadoop's file systems use."""
BUCKET_SCHEMES = (*S3_SCHEMES, GOOGLE_SCHEME, *AZURE_SCHEMES, HDFS_SCHEME)
"""URI schemes of the object stores to which tasks write, and of HDFS."""

_PREFIXES = (PROPERTY_PREFIX.lower(), row.REGISTRY_PREFIX, "kafka.", "remote.", "rsm.", "rlmm.")
"""Prefixes, in lower case, of settings whose names are checked elsewhere, or not at all."""
_SEGMENTS_PREFIX = "remote.storage."


@dataclass(frozen=True, slots=True)
class TableStorage(StoreAccess):
    """Access to the bucket or container of the table; a local folder needs none of the fields.

    If no credentials are set, requests to S3 are signed by AWS's default chain, or not at all if `anonymous` is true.
    `acl`, `storage_class`, `encryption` and `kms_key` are S3's values, which are sent with each new object.
    """

    acl: str | None = None
    storage_class: str | None = None
    encryption: str | None = None
    kms_key: str | None = None

    def put_object_arguments(self) -> dict[str, str | bytes]:
        """Return ACL, storage class, encryption and payer as arguments of boto3's `put_object`, without None values."""
        key = self.s3_customer_key
        arguments = {
            "ACL": self.acl,
            "StorageClass": self.storage_class,
            "ServerSideEncryption": self.encryption,
            "SSEKMSKeyId": self.kms_key,
            "SSECustomerAlgorithm": "AES256" if key else None,
            "SSECustomerKey": b64decode(key) if key else None,
            "RequestPayer": "requester" if self.s3_requester_pays else None,
        }
        return {name: value for name, value in arguments.items() if value}

    def at(self, uri: str) -> StorageOptions:
        """Return options for `open_store` to open the folder `uri` with this access."""
        access: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(StoreAccess)}
        return StorageOptions(uri=uri, **access)


_STORAGE_NAMES = {field: option.name.removeprefix(_SEGMENTS_PREFIX) for field, option in declared(TableStorage).items()}
"""Names of the settings `ingest.storage.*` without this prefix, by field of `TableStorage`."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Everything that a user wants of one table: its place, access, files, rows, keys, dead letters and properties.

    `uri` is the URI of the table's folder, such as `file:///folder` or `s3://bucket/prefix`.
    """

    uri: str
    storage: TableStorage = TableStorage()
    day_column: str | None = of(DAY_COLUMN)
    target_bytes: int = of(TARGET_FILE_SIZE)
    compression: str | None = of(COMPRESSION)
    cluster_by: tuple[str, ...] = of(CLUSTER_BY)
    compact_every: int | None = of(COMPACT_EVERY)
    mode: str = of(row.MODE)
    keys: tuple[str, ...] = of(row.KEYS)
    """Columns that identify a row of the table with `ingest.mode=upsert`; empty: rows are appended.

    If there are keys, tasks write the last row of each key to files, and a MERGE applies the files to the table.
    """
    order_by: str | None = of(row.ORDER_BY)
    own_columns: tuple[str, ...] = of(row.OWN_COLUMNS)
    """Columns whose values an update by MERGE keeps, because records never have them (`ingest.ownColumns`)."""
    unavailable_value: str | None = of(row.UNAVAILABLE_VALUE)
    tasks: int = 1
    """Number of tasks that run at once; a small micro-batch is divided into at most this many tasks."""
    merge_on: str | None = of(row.MERGE_ON)
    commit: str = of(COMMIT)
    on_landed_offsets: str = of(ON_LANDED_OFFSETS)
    on_table_error: str = of(ON_TABLE_ERROR)
    rows: row.RowSettings = field(default_factory=row.RowSettings)
    own_properties: tuple[tuple[str, str], ...] = ()
    """Delta table properties that the user sets for a new table (`ingest.tableProperty.*`)."""
    name: str = ""
    """Path, or name in the catalog, as the user wrote it."""
    columns: StructType | None = None
    """Columns of the rows to write, including the day column. None: the columns are not known yet."""
    row_format: RowFormat | None = None
    """Format by which records become rows. None: the format is not known yet, or the table is for dead letters."""

    @property
    def schema(self) -> StructType:
        """Spark schema of the rows to write (`columns`); an empty schema if `columns` is None."""
        if self.columns is not None:
            return self.columns
        from pyspark.sql.types import StructType  # late, because most commands do not need Spark

        return StructType()

    @property
    def key(self) -> str:
        """URI of the table's folder, which identifies the table. Two names of one table have equal keys."""
        return self.uri

    @property
    def properties(self) -> dict[str, str]:
        """Delta table properties for the creation of the table, by name.

        With `ingest.schemaEvolution=widen`, `delta.enableTypeWidening` is `true`.
        """
        widens = self.rows.schema_evolution is Evolution.WIDEN
        return dict(self.own_properties) | ({TYPE_WIDENING: "true"} if widens else {})

    @property
    def shared(self) -> tuple[object, ...]:
        """Values that must be equal in the specifications of all topics that land in one table."""
        topics_own = {"rows", "unavailable_value", "own_properties", "name", "row_format"}
        return (self.properties, *(getattr(self, each.name) for each in fields(self) if each.name not in topics_own))

    @property
    def is_upsert(self) -> bool:
        """True if the table has the latest row of each key (`ingest.mode=upsert`)."""
        return self.mode == row.UPSERT

    @property
    def placeholder(self) -> str:
        """Text that Debezium writes in place of a value that the database does not send; empty: it writes none."""
        default = "" if self.rows.envelope is Envelope.NONE else row.DEBEZIUM_PLACEHOLDER
        return self.unavailable_value or default

    @property
    def parks(self) -> bool:
        """True if the query continues without this table when it cannot be written (`ingest.onTableError=park`)."""
        return self.on_table_error == PARK

    @property
    def codec(self) -> str:
        """Name of the compression of the table's data files, as `ingest.compression` takes it.

        The default is zstd in object stores and HDFS, where files of half the size save time in the network. In local
        folders it is Snappy, which takes less CPU time (docs/figures.md).
        """
        return self.compression or (ZSTD if urlsplit(self.uri).scheme in BUCKET_SCHEMES else SNAPPY)


def table_storage(settings: Mapping[str, str]) -> TableStorage:
    """Return the access to the table's bucket or container from `ingest.storage.*` in `settings`.

    Raises:
        ConfigurationError: a setting is unknown or malformed, or only one of the two access keys is set.
    """
    options = GivenOptions(settings)
    own = options.with_prefix(STORAGE_PREFIX)
    known = sorted(_STORAGE_NAMES.values())
    for name in own.keys() - set(known):
        raise ConfigurationError(f"{STORAGE_PREFIX}{name} is unknown; known are {', '.join(known)}")
    segment_options = GivenOptions({_SEGMENTS_PREFIX + name: value for name, value in own.items()})
    storage = TableStorage(**read_fields(TableStorage, segment_options))
    if (storage.access_key_id is None) != (storage.secret_access_key is None):
        raise ConfigurationError(
            f"{STORAGE_PREFIX}aws.access.key.id and .aws.secret.access.key belong together: set both"
        )
    return storage


def table_spec(settings: Mapping[str, str]) -> TableSpec:
    """Return the specification of a table that a job's settings (texts by name) describe.

    `uri` and `name` are empty in the result, and `columns` and `row_format` are None.

    Raises:
        ConfigurationError: a setting is unknown or malformed, two settings exclude each other, or only one of the two
            access keys is set.
    """
    options = GivenOptions(settings)
    size = len(PROPERTY_PREFIX)
    spec = TableSpec(
        "", table_storage(settings), **read_fields(TableSpec, options), rows=row.row_settings(settings),
        own_properties=tuple(  # names keep their case, because Delta distinguishes it
            (name[size:], value) for name, value in settings.items() if name.lower().startswith(PROPERTY_PREFIX.lower())
        ),
    )  # fmt: skip
    if spec.day_column and spec.cluster_by:
        raise ConfigurationError(
            f"{DAY_COLUMN.name} and {CLUSTER_BY.name} exclude each other: Delta clusters no table that is partitioned"
        )
    return spec


def check_names(settings: Mapping[str, str], own: Collection[str] = ()) -> None:
    """Check that all `ingest.*` settings are known, and that no other setting is a misspelled known name.

    `own` has the names of the job's own settings. If `own` is given, every unknown name is an error. If `own` is empty,
    unknown names without the prefix `ingest.` are left to the check of the source's options.

    Raises:
        ConfigurationError: a name is unknown or misspelled (the error has the nearest known name), or a setting has a
            placeholder of Kafka's config providers.
    """
    check_placeholders(settings, (JOB_PREFIX,))
    storage = (STORAGE_PREFIX + name for name in _STORAGE_NAMES.values())
    ours = [option.name for option in INGEST_OPTIONS] + [option.name for option in row.ROW_OPTIONS]
    known = {name.lower(): name for name in (*ours, *own, *storage, row.REGISTRY_PREFIX + "url")}
    prefixes = (*_PREFIXES, GivenOptions(settings).plugin_prefix)
    for name in settings:
        lower = name.lower()
        if lower in known or is_known(lower) or lower.startswith(prefixes):
            continue
        if lower.startswith(TOPIC_PREFIX):
            _split_topic_setting(name)
            continue
        # A property may have any name, so only the prefix before it can be misspelled.
        candidates = known | {(PROPERTY_PREFIX + ".".join(lower.split(".")[2:])).lower(): PROPERTY_PREFIX + "…"}
        if lower.startswith(JOB_PREFIX) or is_typing_error(lower, nearest_name(lower, candidates)):
            raise unknown_setting(name, candidates)
        if own:
            raise unknown_setting(name, candidates | {option.name.lower(): option.name for option in OPTIONS})


def job_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the job itself (`JOB_SETTINGS`) among `settings`, by name in the case of `JOB_SETTINGS`.

    Settings that are not set are left out. Upper and lower case of names in `settings` do not matter.
    """
    options = {name.lower(): value for name, value in settings.items()}
    return {name: options[name.lower()] for name in JOB_SETTINGS if name.lower() in options}


def source_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the options of `format("tiered_stream")` among the settings: all except `ingest.*`."""
    return {name: value for name, value in settings.items() if not name.lower().startswith(JOB_PREFIX)}


def read_options(path: str | PathLike[str]) -> dict[str, str]:
    """Read the settings file of a job, and return the options of the source in it: all settings except `ingest.*`.

    Example: `spark.readStream.format("tiered_stream").options(**read_options("orders.properties")).load()`.

    The result also has the option `remote.settings.file`: the file's path, so that errors can name wrong lines.

    Raises:
        ConfigurationError: the file cannot be read, is not UTF-8, has a malformed escape, or gives a name twice.
    """
    return source_options(read_settings(Path(path))) | {SETTINGS_FILE.name: str(Path(path).absolute())}


def topic_overrides(settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the settings of single topics, by topic and then by the name that the setting has for all topics.

    Example: `ingest.topic.orders.dayColumn` becomes `ingest.dayColumn` of the topic `orders`.

    Raises:
        ConfigurationError: a setting cannot be set for a single topic, or a topic has it twice.
    """
    overrides: dict[str, dict[str, str]] = {}
    for name, value in settings.items():
        if name.lower().startswith(TOPIC_PREFIX):
            topic, own = _split_topic_setting(name)
            if own in overrides.setdefault(topic, {}):
                raise ConfigurationError(
                    f"topic {topic} has {own} twice, in different spellings such as {name}: keep one of them"
                )
            overrides[topic][own] = value
    return overrides


def shared_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that apply to all topics: all except `ingest.topic.*`."""
    return {name: value for name, value in settings.items() if not name.lower().startswith(TOPIC_PREFIX)}


def settings_of_topics(settings: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
    """Return the settings of topics that share a table: settings for all topics, overridden by `ingest.topic.NAME.*`.

    `ingest.topic.NAME.table` is ignored. If `topics` is empty, the result is the settings for all topics.

    Raises:
        ConfigurationError: two of the topics have different settings, or a setting cannot be set for a single topic.
    """
    overrides, shared = topic_overrides(settings), shared_settings(settings)
    by_topic = {
        topic: dict(with_overrides(shared, without(overrides.get(topic, {}), [TABLE]))) for topic in sorted(topics)
    }
    first = next(iter(by_topic), None)
    for topic, own in by_topic.items():
        if own != by_topic[first or ""]:
            raise ConfigurationError(
                f"topics {first} and {topic} have different settings by {TOPIC_PREFIX}NAME.*: name topics with the "
                "same settings by subscribe, and the others in a run of their own"
            )
    return shared if first is None else by_topic[first]


def _split_topic_setting(name: str) -> tuple[str, str]:
    """Split `ingest.topic.TOPIC.SETTING` into the topic, which may have dots, and the name `ingest.SETTING`.

    Raises:
        ConfigurationError: `ingest.SETTING` cannot be set for a single topic.
    """
    known = [own.removeprefix(JOB_PREFIX) for own in (TABLE, *(option.name for option in TOPIC_OPTIONS))]
    properties = PROPERTY_PREFIX.removeprefix(JOB_PREFIX)
    # The pattern finds the shortest topic, because a property's name may end like the name of a setting.
    forms = "|".join([f"{re.escape(properties)}.*", *map(re.escape, known)])
    match = re.fullmatch(rf"(.+?)\.({forms})", name[len(TOPIC_PREFIX) :], re.IGNORECASE | re.DOTALL)
    if match is None:
        raise ConfigurationError(f"setting {name} is unknown; a topic may have {', '.join(known)} and {properties}*")
    own_property = properties + match[2][len(properties) :]
    return match[1], JOB_PREFIX + next((own for own in known if own.lower() == match[2].lower()), own_property)


def with_overrides(settings: Mapping[str, str], overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Return `settings` with the values of `overrides` for equal names; names are compared without regard to case."""
    return {**without(settings, overrides), **overrides} if overrides else settings

"""What the executors have to know to write a table's files, and how it travels there: as options of the source."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tiered_stream.errors import ConfigurationError
from tiered_stream.options import types
from tiered_stream.options.fields import declared, of, read_fields
from tiered_stream.options.given import LIKENESS_OF_A_SLIP, GivenOptions, is_known
from tiered_stream.options.parsing import S3Access
from tiered_stream.options.types import Option, option, optional

TARGET_FILE_SIZE = option("ingest.targetFileSize", types.byte_size(1 << 20), "128m", "About how large a file gets.")
COMPRESSION = option(
    "ingest.compression", types.one_of("zstd", "snappy", "none"), "snappy", "How files are compressed."
)
DAY_COLUMN = optional(
    "ingest.dayColumn", types.text, "A column with the UTC day of `timestamp`, by which to partition."
)
AUTO, COMMIT_BY_SPARK, COMMIT_BY_DELTALAKE = "auto", "spark", "deltalake"
COMMIT = option(
    "ingest.commit", types.one_of(AUTO, COMMIT_BY_SPARK, COMMIT_BY_DELTALAKE), AUTO,
    "Who commits in the direct lane: the session's delta-spark, or the package deltalake.",
)  # fmt: skip
INGEST_OPTIONS = (TARGET_FILE_SIZE, COMPRESSION, DAY_COLUMN, COMMIT)
STORAGE_PREFIX = "ingest.storage."
"""`ingest.storage.s3.region` is for the table what `remote.storage.s3.region` is for the segments."""
PROPERTY_PREFIX = "ingest.tableProperty."
"""Properties that a table gets when it is made, as `ingest.tableProperty.delta.appendOnly=true`."""

_OURS, _OF_THE_SOURCE = "ingest.", ("kafka.", "remote.", "rsm.")
_SEGMENTS_PREFIX = "remote.storage."
_URI: Option[str] = Option("ingest.uri", str, "", "", "Where the table is.", internal=True)
_TASKS: Option[int] = Option("ingest.tasks", types.integer(1), 1, "1", "Tasks that run at once.", internal=True)
_ANONYMOUS: Option[bool] = Option(
    "remote.storage.s3.anonymous", types.boolean, False, "false", "Sign no request.", internal=True
)


@dataclass(frozen=True, slots=True)
class TableStorage(S3Access):
    """How to reach the bucket that the table is in; local folders need nothing.

    Without credentials, unless `anonymous`, AWS's own chain finds some.
    """

    anonymous: bool = of(_ANONYMOUS)


_STORAGE_NAMES = {field: each.name.removeprefix(_SEGMENTS_PREFIX) for field, each in declared(TableStorage).items()}
"""Of the settings, without `STORAGE_PREFIX`, by the field of `TableStorage`."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Where a table's files go and what they are like. `uri` is `file:///folder` or `s3://bucket/prefix`."""

    uri: str
    storage: TableStorage = TableStorage()
    day_column: str | None = of(DAY_COLUMN)
    target_bytes: int = of(TARGET_FILE_SIZE)
    compression: str = of(COMPRESSION)
    tasks: int = of(_TASKS)
    """How many tasks run at once: a micro-batch is not cut finer than these can use."""


def table_storage(settings: Mapping[str, str]) -> TableStorage:
    """The `ingest.storage.*` settings.

    Raises:
        ConfigurationError: one of them is unknown or malformed, or there is one key of two.
    """
    own = GivenOptions(settings).with_prefix(STORAGE_PREFIX)
    known = sorted(_STORAGE_NAMES.values())
    for name in own.keys() - set(known):
        raise ConfigurationError(f"{STORAGE_PREFIX}{name} is unknown; known are {', '.join(known)}")
    given = GivenOptions({_SEGMENTS_PREFIX + name: value for name, value in own.items()})
    storage = TableStorage(**read_fields(TableStorage, given))
    if (storage.access_key_id is None) != (storage.secret_access_key is None):
        raise ConfigurationError(
            f"{STORAGE_PREFIX}aws.access.key.id and .aws.secret.access.key belong together: set both"
        )
    return storage


def table_files(settings: Mapping[str, str]) -> TableFiles:
    """What the settings say of the table's files; where it is and how it is reached comes from `as_options`.

    Raises:
        ConfigurationError: a setting is malformed, or as `table_storage`.
    """
    given = GivenOptions(settings)
    return TableFiles(given.read(_URI), table_storage(settings), **read_fields(TableFiles, given))


def table_properties(settings: Mapping[str, str]) -> dict[str, str]:
    """The properties that a new table gets; their names keep their case, which Delta heeds."""
    size = len(PROPERTY_PREFIX)
    return {name[size:]: value for name, value in settings.items() if name.lower().startswith(PROPERTY_PREFIX.lower())}


def check_names(settings: Mapping[str, str], own: Collection[str] = ()) -> None:
    """Refuse `ingest.*` settings that are not known here, and names that look like a slip in one.

    What else is unknown is the source's business. `own`: those that the caller knows.

    Raises:
        ConfigurationError: names the setting, and the nearest known one.
    """
    storage = (STORAGE_PREFIX + name for name in _STORAGE_NAMES.values())
    known = {name.lower(): name for name in (*(each.name for each in INGEST_OPTIONS), *own, *storage)}
    for name in settings:
        lower = name.lower()
        if lower in known or is_known(lower) or lower.startswith((PROPERTY_PREFIX.lower(), *_OF_THE_SOURCE)):
            continue
        # A property may be called anything: only what stands before it can be mistyped.
        candidates = known | {(PROPERTY_PREFIX + ".".join(lower.split(".")[2:])).lower(): PROPERTY_PREFIX + "…"}
        nearest = difflib.get_close_matches(lower, candidates, n=1, cutoff=0.0)[0]
        if lower.startswith(_OURS) or difflib.SequenceMatcher(None, lower, nearest).ratio() >= LIKENESS_OF_A_SLIP:
            raise ConfigurationError(f"setting {name} is unknown; the nearest known one is {candidates[nearest]}")


def source_options(settings: Mapping[str, str]) -> dict[str, str]:
    """The options of `format("tiered_stream")` among the settings: all but `ingest.*`."""
    return {name: value for name, value in settings.items() if not name.lower().startswith(_OURS)}


def as_options(settings: Mapping[str, str], files: TableFiles) -> dict[str, str]:
    """The source's options from which `table_files` knows `files`; Spark redacts those that hold secrets."""
    others = {name: value for name, value in settings.items() if not name.lower().startswith(STORAGE_PREFIX)}
    values = {name: getattr(files.storage, field) for field, name in _STORAGE_NAMES.items()}
    storage = {STORAGE_PREFIX + name: str(value) for name, value in values.items() if value is not None}
    return {**others, **storage, _URI.name: files.uri, _TASKS.name: str(files.tasks)}

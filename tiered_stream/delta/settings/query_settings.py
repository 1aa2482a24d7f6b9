"""Settings of a query for one Delta table or for many, parsed once, with checks that need neither Spark nor a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings import row_settings as row
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import Envelope, OnDecodeError
from tiered_stream.options.given_options import GivenOptions, declared
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.spark_options import INCLUDE_HEADERS

LANES = ("auto", "direct", "spark")


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """Parsed settings of a query that lands topics in Delta tables, without the job's `ingest.table`."""

    options: Mapping[str, str] = field(repr=False)  # it may have secrets
    """Options of `format("tiered_stream")` as texts, by name: all settings of the job except `ingest.*`."""
    spec: ingest.TableSpec
    """Settings of the table of each topic that is not in `topics`."""
    topics: Mapping[str, ingest.TableSpec] = field(default_factory=dict)
    """Settings of the tables of topics with settings of their own (`ingest.topic.NAME.*`), by topic.

    A setting that the topic does not have is taken from the settings for all topics.
    """
    tables: Mapping[str, str] = field(default_factory=dict)
    """Paths or names of the tables that `ingest.topic.NAME.table` sets, by topic."""
    routes: tuple[tuple[str, str], ...] = ()
    """Pairs from `ingest.route`: a regular expression for a topic's whole name, and the path or name of a table."""

    def spec_of(self, topic: str) -> ingest.TableSpec:
        """Return the settings of the topic's table from `topics`, or `spec` if `topics` has no entry for the topic."""
        return self.topics.get(topic, self.spec)

    @property
    def include_headers(self) -> bool:
        """True if the records are read with their headers."""
        return GivenOptions(self.options).read(INCLUDE_HEADERS)


def query_settings(settings: Mapping[str, str]) -> QuerySettings:
    """Parse a job's settings, texts by name, into the settings of its query.

    Raises:
        ConfigurationError: a setting of a table is unknown or malformed, or two settings exclude each other.
    """
    shared, overrides = ingest.shared_settings(settings), ingest.topic_overrides(settings)
    return QuerySettings(
        ingest.source_options(settings),
        ingest.table_spec(shared),
        {topic: ingest.table_spec(ingest.with_overrides(shared, own)) for topic, own in overrides.items()},
        {topic: own[ingest.TABLE] for topic, own in overrides.items() if ingest.TABLE in own},
        GivenOptions(shared).read(ingest.ROUTE),
    )


def check_settings(settings: Mapping[str, str], lane: str) -> tuple[QuerySettings, Options]:
    """Parse a job's settings, texts by name, and make all checks that need neither Spark nor the table.

    `lane` says who writes the table's files: `direct` (tasks), `spark` (Spark's Delta sink), or `auto` (not decided).

    Returns:
        The settings of the query, and the parsed options of the source.

    Raises:
        ConfigurationError: a setting is missing, unknown or malformed, two settings exclude each other, or `lane` has
            another value.
    """
    if lane not in LANES:
        raise ConfigurationError(f"the lane is {lane!r}; it may be {', '.join(LANES)}")
    ingest.check_names(settings)
    source = parse_options(ingest.source_options(settings), streaming=True)
    check_all_columns(source)
    query = query_settings(settings)
    # Topics may all have keys of their own; a topic without keys is refused when its table is looked up.
    _check_mode(query.spec, lane, needs_keys=not any(spec.keys for spec in query.topics.values()))
    for spec in query.topics.values():
        _check_mode(spec, lane, needs_keys=True)
    return query, source


def _check_mode(spec: ingest.TableSpec, lane: str, *, needs_keys: bool) -> None:
    """Raise ConfigurationError if a setting in `spec`, or the lane, does not go with the table's `ingest.mode`.

    `needs_keys` is false if `ingest.keys` may be missing, because single topics have their own `ingest.keys`.
    """
    if not spec.is_upsert:
        _check_append(spec)
        return
    if needs_keys:
        check_keys(spec)
    own = {name.lower() for name in spec.own_columns}
    for name in (*spec.keys, spec.order_by or ""):
        if name.lower() in own:
            raise ConfigurationError(f"{row.OWN_COLUMNS.name} has {name}, which records must set: remove it there")
    for name, advice in _refused_with_upsert(spec, lane).items():
        raise ConfigurationError(f"{name} does not go with {row.MODE.name}={row.UPSERT}: {advice}")


def _check_append(spec: ingest.TableSpec) -> None:
    """Raise ConfigurationError if `spec`, whose mode is `append`, has a setting that needs `ingest.mode=upsert`."""
    for name, option in declared(ingest.TableSpec).items():
        if option in row.UPSERT_OPTIONS[1:] and getattr(spec, name) != option.default:
            raise ConfigurationError(
                f"{option.name} is set, but {row.MODE.name} is {row.APPEND}: set {row.MODE.name}={row.UPSERT}"
            )
    if spec.rows.envelope is Envelope.FLATTENED:
        raise ConfigurationError(
            f"{row.ENVELOPE.name}={Envelope.FLATTENED} deletes rows, but {row.MODE.name} is {row.APPEND}: set "
            f"{row.MODE.name}={row.UPSERT}, or remove the envelope to land the column __deleted"
        )


def check_keys(spec: ingest.TableSpec, topic: str | None = None) -> None:
    """Raise ConfigurationError if `spec` has `ingest.mode=upsert` and no key columns (`ingest.keys`).

    `topic` is the topic whose table `spec` describes, for the error; None: `spec` is for all topics.
    """
    if spec.is_upsert and not spec.keys:
        given = row.KEYS.name if topic is None else f"{row.KEYS.name}, or ingest.topic.{topic}.keys,"
        raise ConfigurationError(f"{row.MODE.name} is {row.UPSERT}: set {given} to the columns that identify a row")


def _refused_with_upsert(spec: ingest.TableSpec, lane: str) -> dict[str, str]:
    """Return the settings in `spec` that exclude `ingest.mode=upsert`, by name, each with advice for the error.

    If `lane` is `spark`, the result has an entry for the Spark lane, too.
    """
    refused = {}
    if spec.day_column is not None:
        refused[ingest.DAY_COLUMN.name] = "an update would move rows from day to day. Set ingest.clusterBy in its place"
    if spec.placeholder and spec.rows.value_columns.lower() != row.FLAT:
        refused[row.VALUE_COLUMNS.name] = (
            "an update would land placeholders of values that the database does not send. Land a column for each field"
        )
    if ingest.is_append_only(spec.properties):
        refused[f"{ingest.PROPERTY_PREFIX}{ingest.APPEND_ONLY}"] = "a MERGE changes rows. Remove the property"
    if lane == "spark":
        refused["the Spark lane"] = "tasks write the new rows, and the driver merges them. Use lane auto or direct"
    if spec.rows.transform is not None:
        refused[row.TRANSFORM.name] = (
            "a function could drop deletes. Land the records with it in a table that appends, or remove it"
        )
    if spec.rows.on_decode_error is OnDecodeError.NULL:
        refused[f"{row.ON_DECODE_ERROR.name}={OnDecodeError.NULL}"] = (
            f"a row of nulls would replace the row of its key. Set {OnDecodeError.FAIL} or {OnDecodeError.DEAD_LETTER}"
        )
    return refused


def check_all_columns(options: Options) -> None:
    """Raise ConfigurationError if the option `columns` is set, because the tables get whole records."""
    if options.columns is not None:
        raise ConfigurationError("option columns is for queries of your own: remove it, all columns are written")

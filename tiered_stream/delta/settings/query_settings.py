"""Settings of a query for one table or for many, parsed once, with checks that need neither Spark nor a table."""

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
    """Parsed settings of a query, except the place of its tables."""

    options: Mapping[str, str] = field(repr=False)  # it may have secrets
    """Options of the source, as Spark takes them."""
    spec: ingest.TableSpec
    """Settings for all topics."""
    topics: Mapping[str, ingest.TableSpec] = field(default_factory=dict)
    """Settings of each topic that has settings of its own (`ingest.topic.NAME.*`), by topic."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Tables that `ingest.topic.NAME.table` names, by topic."""
    routes: tuple[tuple[str, str], ...] = ()
    """Pairs of `ingest.route`: a pattern for topics and a table."""

    def spec_of(self, topic: str) -> ingest.TableSpec:
        """Return the settings of the topic, with its own settings in place of the settings for all topics."""
        return self.topics.get(topic, self.spec)

    @property
    def include_headers(self) -> bool:
        """True if the records are read with their headers."""
        return GivenOptions(self.options).read(INCLUDE_HEADERS)


def query_settings(settings: Mapping[str, str]) -> QuerySettings:
    """Parse the settings of a query.

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
    """Parse the settings of a query, and check all that can be checked without Spark and without the table.

    `lane` is the lane that the user has chosen.

    Returns:
        The settings of the query, and the parsed options of the source.

    Raises:
        ConfigurationError: a setting is missing, unknown or malformed.
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
    """Check the settings that only suit `ingest.mode=upsert`, or that do not suit it.

    `needs_keys` is false if the settings are for all topics, and single topics have their own `ingest.keys`.
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
    """Raise ConfigurationError if a setting is for tables of the latest state only."""
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
    """Raise ConfigurationError if `spec` asks for a table of the latest state and names no key columns.

    `topic` is the topic of the settings, for the error; None: they are for all topics.
    """
    if spec.is_upsert and not spec.keys:
        given = row.KEYS.name if topic is None else f"{row.KEYS.name}, or ingest.topic.{topic}.keys,"
        raise ConfigurationError(f"{row.MODE.name} is {row.UPSERT}: set {given} to the columns that identify a row")


def _refused_with_upsert(spec: ingest.TableSpec, lane: str) -> dict[str, str]:
    """Return the settings that are given and do not suit `ingest.mode=upsert`, with an advice for each."""
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
